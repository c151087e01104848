"""The history that a proposer sees."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infrarsi.contract.outcome import Outcome
from infrarsi.contract.places import Scalar
from infrarsi.contract.space import Point


@dataclass(frozen=True)
class Trial:
    """One finished search trial, or one reference run (`number` 0).

    `step_time_s` is the median steady step, None unless `outcome` is ok (or it was stopped early
    after steady steps). `one_off_s` is the time from the command's start to its first steady step.
    `peak_bytes` is the largest reserved (CPU: resident) memory of a rank; an out-of-memory trial
    has `peak_at_least_bytes` instead. `same_job` is False where a check failed. `device_s` is the
    charged time, seconds times devices.
    """

    number: int
    point: Point
    outcome: Outcome
    same_job: bool | None = None
    step_time_s: float | None = None
    one_off_s: float | None = None
    peak_bytes: int | None = None
    peak_at_least_bytes: int | None = None
    node_ids: tuple[str, ...] = ()
    wall_s: float = 0.0
    device_s: float = 0.0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Trial":
        """The inverse of `to_dict`."""
        fields = dict(data)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["node_ids"] = tuple(fields.get("node_ids", ()))
        return cls(**fields)


@dataclass(frozen=True)
class ActiveTrial:
    """A trial that was proposed and has not ended."""

    number: int
    point: Point


@dataclass(frozen=True)
class Proposal:
    """What to try next, and what the proposer expects of it.

    `expected_log_time` is relative to the reference (negative is faster), `expected_peak_bytes` the
    peak of a rank if memory had no end; each with its standard deviation. `fits` and `runs` are the
    probabilities that it fits into memory, and that it otherwise runs as the same job. `why` is one
    line for the report.
    """

    point: Point
    why: str
    expected_log_time: float | None = None
    expected_log_time_sd: float | None = None
    fits: float | None = None
    runs: float | None = None
    expected_peak_bytes: float | None = None
    expected_peak_sd_bytes: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)


@dataclass(frozen=True)
class NotYet:
    """Nothing to propose before an active trial has ended."""

    why: str = ""


@dataclass(frozen=True)
class Exhausted:
    """Nothing is left to propose; `stopped_by` is the reason for result.json."""

    stopped_by: str


Setting = tuple[str, Scalar]
