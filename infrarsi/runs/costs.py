"""What a run cost, added up from its journal."""

import itertools
from dataclasses import dataclass
from statistics import median

from infrarsi.contract import Outcome, Purpose
from infrarsi.runs.state import RunState

_WELL = (Outcome.OK, Outcome.STOPPED)  # one stopped early taught what it was to teach


@dataclass(frozen=True)
class Costs:
    """Charged time in device-hours (seconds times devices; a node without a GPU is one device).

    `failed_h` is the part of the search whose trials failed. `overhead_per_trial_s` is
    the median time from the end of one search trial's command to the start of the next one's, None
    below two trials.
    """

    reference_h: float
    search_h: float
    failed_h: float
    verification_h: float
    overhead_per_trial_s: float | None

    @property
    def total_h(self) -> float:
        """All of it."""
        return self.reference_h + self.search_h + self.failed_h + self.verification_h


def costs_of(state: RunState) -> Costs:
    """Add up a run; infrastructure failures are charged to nobody."""
    hours = dict.fromkeys(("reference", "search", "failed", "verification"), 0.0)
    for execution in state.executions:
        use = str(execution.purpose)
        if execution.outcome is Outcome.INFRA:
            continue
        if execution.purpose is Purpose.SEARCH and execution.outcome not in _WELL:
            use = "failed"
        hours[use] += execution.device_s / 3600
    return Costs(
        reference_h=hours["reference"],
        search_h=hours["search"],
        failed_h=hours["failed"],
        verification_h=hours["verification"],
        overhead_per_trial_s=overhead_per_trial_s(state),
    )


def overhead_per_trial_s(state: RunState) -> float | None:
    """Median gap between the commands of successive search trials, where none overlapped."""
    spans = sorted(
        (e.started_at, e.started_at + e.command_s)
        for e in state.executions
        if e.purpose is Purpose.SEARCH and e.command_s > 0
    )
    gaps = [start - end for (_, end), (start, _) in itertools.pairwise(spans) if start >= end]
    return median(gaps) if gaps else None
