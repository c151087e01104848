"""Where the reference's steps go: seconds by phase, as the witness timed them on the host.

On a GPU the phases of the model and the optimizer are the times of launches, not of kernels; only
`data`, waiting for a DataLoader, is what it seems.
"""

from collections.abc import Sequence
from math import fsum

from infrarsi.contract import RankRecord, StepRecord
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.measurement import measure

DATA, OTHER = "data", "other"


def phase_times(evidence: Evidence) -> dict[str, float]:
    """Mean seconds of each phase in a steady step of the timed runs, on the rank where it is most.

    Keys as in `StepRecord.phases_s`, and `data`, which is then not part of `other`. Close looks
    are left out. `data` is absent where no step waited for a torch DataLoader at all: the job
    reads its data in another way, and what that takes is not known.
    """
    steps: dict[int, list[StepRecord]] = {}
    for result in evidence.timed:
        times = measure(result)
        for rank in result.ranks:
            steady = _steady(rank, times.first_steady if times else 0)
            steps.setdefault(rank.rank, []).extend(steady)
    found: dict[str, float] = {}
    for of_rank in steps.values():
        for name, seconds in _mean(of_rank).items():
            found[name] = max(found.get(name, 0.0), seconds)
    if not found.get(DATA):
        found.pop(DATA, None)
    return found


def _steady(rank: RankRecord, first: int) -> list[StepRecord]:
    steps = rank.steps[:-1] if rank.end.get("closed_at_exit") else rank.steps
    return [step for step in steps if step.index >= first and not step.close_look]


def _mean(steps: Sequence[StepRecord]) -> dict[str, float]:
    names = {name for step in steps for name in step.phases_s}
    total = {name: fsum(s.phases_s.get(name, 0.0) for s in steps) for name in names}
    waited = fsum(step.data_wait_s for step in steps)
    total[DATA] = waited
    if OTHER in total:
        total[OTHER] = max(0.0, total[OTHER] - waited)
    return {name: seconds / len(steps) for name, seconds in sorted(total.items())} if steps else {}
