"""What the trials of one campaign say of single settings, and what earlier ones say of a space."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from infrarsi.contract.space import Point, Space
from infrarsi.contract.trial import Setting

Normal = tuple[float, float]
"""Mean and standard deviation."""


@dataclass(frozen=True)
class LearnedEffect:
    """Posterior change of log step time and log activation memory against the reference value.

    None where the trials say little of it.
    """

    setting: Setting
    log_time: Normal | None
    log_memory: Normal | None


@dataclass(frozen=True)
class Fault:
    """One setting, or two together, that made trials fail with this probability."""

    settings: tuple[Setting, ...]
    probability: float


@dataclass(frozen=True)
class Learned:
    """Effects and faults of single settings.

    They start from the catalogue's priors alone, so that experience is not passed on as if it had
    been measured again.
    """

    effects: tuple[LearnedEffect, ...] = ()
    faults: tuple[Fault, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Learned":
        """The inverse of `to_dict`."""
        return cls(
            tuple(
                LearnedEffect(
                    _setting(each["setting"]),
                    _normal(each["log_time"]),
                    _normal(each["log_memory"]),
                )
                for each in data["effects"]
            ),
            tuple(
                Fault(tuple(_setting(each) for each in fault["settings"]), fault["probability"])
                for fault in data["faults"]
            ),
        )


def _setting(pair: Any) -> Setting:
    return (pair[0], pair[1])


def _normal(pair: Any) -> Normal | None:
    return None if pair is None else (pair[0], pair[1])


@dataclass(frozen=True)
class Experience:
    """What earlier campaigns say of a space: it with other effects, and points to look at.

    `space` differs in its effects alone; None where nothing is known.
    """

    space: Space | None = None
    starts: tuple[Point, ...] = ()
