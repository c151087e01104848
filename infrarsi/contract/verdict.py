"""What the 16 invariants say of one candidate."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

LAYERS: dict[str, tuple[str, ...]] = {
    "L1": ("completes", "no_errors", "memory_cap"),
    "L2": ("same_workload", "same_data", "same_model", "frozen_files"),
    "L3": ("optimizer_steps",),
    "L4": ("loss_within_tolerance", "grad_norm_within_tol", "precision", "eval_matches"),
    "L5": ("timing_consistent", "speed_reproduces", "resume_continues", "user_tests"),
}
CHECKS = tuple(check for checks in LAYERS.values() for check in checks)


class Status(StrEnum):
    """What a check found."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_COVERED = "not_covered"


@dataclass(frozen=True)
class CheckResult:
    """One check: `reason` is one sentence with the figures."""

    check: str
    status: Status
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The results of all 16 checks, in the order of `CHECKS`."""

    results: tuple[CheckResult, ...]

    def __getitem__(self, check: str) -> CheckResult:
        return next(r for r in self.results if r.check == check)

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(r for r in self.results if r.status is Status.FAILED)

    @property
    def passed(self) -> int:
        """How many of the 16 passed."""
        return sum(r.status is Status.PASSED for r in self.results)

    @property
    def same_job(self) -> bool:
        """No check failed (a signal that vanished against the reference is a failure already)."""
        return not self.failed

    def with_result(self, result: CheckResult) -> "Verdict":
        """The same verdict with one check replaced."""
        return Verdict(tuple(result if r.check == result.check else r for r in self.results))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Verdict":
        """The inverse of `to_dict`."""
        return cls(
            tuple(
                CheckResult(r["check"], Status(r["status"]), r["reason"]) for r in data["results"]
            )
        )
