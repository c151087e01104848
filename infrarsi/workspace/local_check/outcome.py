"""What a local check found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CheckStatus(StrEnum):
    """Whether old and new code were seen to do the same."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_POSSIBLE = "not_possible"


@dataclass(frozen=True)
class CheckOutcome:
    """The answer of a local check, `reason` one sentence with the figures.

    `figures` holds the largest relative differences that were seen (`output`, `gradient`,
    `optimizer`). `not_possible` means that nothing was compared: the trial alone judges.
    """

    status: CheckStatus
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def not_possible(reason: str, seconds: float = 0.0) -> CheckOutcome:
    """Nothing could be compared, and why."""
    return CheckOutcome(CheckStatus.NOT_POSSIBLE, reason, seconds=seconds)
