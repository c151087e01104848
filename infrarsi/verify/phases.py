"""Where the reference's steps go: seconds by phase, as the witness timed them on the host.

The witness times phases at close looks only. On a GPU those of the model and the optimizer are the
times of launches, not of kernels; only `data`, waiting for a DataLoader, is what it seems.
"""

from collections.abc import Sequence
from math import fsum
from statistics import fmean

from infrarsi.contract import RankRecord, StepRecord
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.measurement import measure

DATA, EVAL, OTHER = "data", "eval", "other"


def phase_times(evidence: Evidence) -> dict[str, float]:
    """Mean seconds of each phase in a steady step of the timed runs, on the rank where it is most.

    Keys as in `StepRecord.phases_s`, and `data`. `other` is what remains of a steady step's mean.
    `data` is absent where no step waited for a torch DataLoader at all: the job reads its data in
    another way, and what that takes is not known.
    """
    steps: dict[int, list[StepRecord]] = {}
    step_s: list[float] = []
    for result in evidence.timed:
        times = measure(result)
        step_s += [times.mean_step_s] if times else []
        for rank in result.ranks:
            steady = _steady(rank, times.first_steady if times else 0)
            steps.setdefault(rank.rank, []).extend(steady)
    found: dict[str, float] = {}
    for of_rank in steps.values():
        phases = _mean(of_rank)
        if len(phases) > 1 and step_s:
            phases[OTHER] = max(0.0, fmean(step_s) - fsum(phases.values()))
        for name, seconds in phases.items():
            found[name] = max(found.get(name, 0.0), seconds)
    if not found.get(DATA):
        found.pop(DATA, None)
    return found


def _steady(rank: RankRecord, first: int) -> list[StepRecord]:
    steps = rank.steps[:-1] if rank.end.get("closed_at_exit") else rank.steps
    return [step for step in steps if step.index >= first]


def _mean(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Means of the phases at close looks; of evaluation and waiting for data in ordinary steps."""
    plain = [step for step in steps if not step.close_look] or steps
    timed = [step for step in steps if step.close_look and step.phases_s]
    if not plain:
        return {}
    names = {name for step in timed for name in step.phases_s} - {OTHER, EVAL}
    found = {name: fmean(s.phases_s.get(name, 0.0) for s in timed) for name in sorted(names)}
    evaluating = fmean(step.phases_s.get(EVAL, 0.0) for step in plain)
    if evaluating:
        found[EVAL] = evaluating
    return {**found, DATA: fmean(step.data_wait_s for step in plain)}
