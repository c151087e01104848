"""Checks that nothing is recorded for yet, each with what is missing.

A check that cannot be judged is never counted as passed. These say `not covered`, so the report
reads "9 of 16", and a promotion does not rest on them. Each gets a module of its own, with reasons,
once its signal is there.
"""

from collections.abc import Callable

from infrarsi.contract import CheckResult
from infrarsi.verify.comparison import Comparison, uncovered

_REASONS = {
    "speed_reproduces": "paired re-runs have not been made",
}


def not_judged(check: str) -> Callable[[Comparison], CheckResult]:
    """A judge of that check which says why it cannot be judged."""
    reason = _REASONS[check]

    def judge(comparison: Comparison) -> CheckResult:
        return uncovered(check, reason)

    return judge
