"""A history of trials as what the models learn from."""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeVar

import numpy as np

from infrarsi.contract import ActiveTrial, Outcome, Trial, point_key
from searchers.failures import JudgedTrial
from searchers.features import Codes, Coding
from searchers.peak_memory import MemoryTrials
from searchers.step_time import TimedTrials

MAX_INFRA_REPEATS = 3
# Chance of such an end without a cause in the settings: chosen by judgement.
ACCIDENT = {Outcome.USER_ERROR: 0.01, Outcome.TIMEOUT: 0.02}
ACCIDENT_OTHER = 0.002  # NaN, a failed check, a conflict, the compiler, a patch

Key = tuple[tuple[str, object], ...]
T = TypeVar("T", bound=Hashable)


def taken_keys(history: Sequence[Trial], active: Sequence[ActiveTrial]) -> set[Key]:
    """Keys of the points that must not be proposed again.

    A point that only infrastructure kept from running may be, up to `MAX_INFRA_REPEATS` times.
    """
    ended = [(point_key(t.point), t.outcome) for t in history]
    return _taken(ended, [point_key(a.point) for a in active])


def taken_codes(
    coding: Coding, history: Sequence[Trial], active: Sequence[ActiveTrial]
) -> set[bytes]:
    """The same as the bytes of codes; points of another space are left out."""
    ended = [(c.tobytes(), t.outcome) for t in history if (c := coding.encode(t.point)) is not None]
    running = [c.tobytes() for a in active if (c := coding.encode(a.point)) is not None]
    return _taken(ended, running)


def _taken(ended: Sequence[tuple[T, Outcome]], running: Sequence[T]) -> set[T]:
    taken = set(running)
    repeats: Counter[T] = Counter()
    for key, outcome in ended:
        if outcome is Outcome.INFRA:
            repeats[key] += 1
        else:
            taken.add(key)
    return taken | {key for key, count in repeats.items() if count >= MAX_INFRA_REPEATS}


@dataclass(frozen=True)
class TrialCost:
    """Seconds of the reference: its start to the first steady step, the rest, and one step."""

    start_s: float = 0.0
    run_s: float = 1.0
    step_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """One history, read once.

    `timed_points` are the codes of the rows of `timed`; `good` tells which of them are ok and the
    same job, the reference included.
    """

    timed: TimedTrials
    good: np.ndarray[tuple[int], np.dtype[np.bool_]]
    memory: MemoryTrials
    judged: tuple[JudgedTrial, ...]
    cost: TrialCost
    one_off_s: tuple[tuple[Codes, float], ...]
    pending: Codes


def read_evidence(
    coding: Coding, history: Sequence[Trial], active: Sequence[ActiveTrial]
) -> Evidence:
    """What `history` says; trials at points of another space are left out."""
    known = [(t, codes) for t in history if (codes := coding.encode(t.point)) is not None]
    known = [(t, c) for t, c in known if t.outcome is not Outcome.INFRA]
    reference = coding.reference.tobytes()
    cost = _cost([t for t, c in known if c.tobytes() == reference])
    timed = [
        (t, c)
        for t, c in known
        if t.outcome in (Outcome.OK, Outcome.STOPPED)
        and t.same_job is not False
        and _positive(t.step_time_s)
    ]
    base = cost.step_s or (min(t.step_time_s or 1.0 for t, _ in timed) if timed else 1.0)
    pending = [c for a in active if (c := coding.encode(a.point)) is not None]
    memory, unseen = _memory(coding, known)
    return Evidence(
        timed=TimedTrials(
            codes=_stack(coding, [c for _, c in timed]),
            log_ratio=np.log(np.array([(t.step_time_s or base) / base for t, _ in timed])),
            nodes=tuple(t.node_ids for t, _ in timed),
        ),
        good=np.array([t.outcome is Outcome.OK for t, _ in timed], dtype=bool),
        memory=memory,
        judged=tuple(_judged(coding, known, unseen)),
        cost=cost,
        one_off_s=tuple((c, t.one_off_s) for t, c in timed if t.one_off_s is not None),
        pending=_stack(coding, pending),
    )


def _positive(value: float | None) -> bool:
    return value is not None and isfinite(value) and value > 0


def _stack(coding: Coding, rows: Sequence[Codes]) -> Codes:
    if not rows:
        return np.zeros((0, len(coding.dimensions)), dtype=np.int64)
    return np.stack(list(rows))


def _cost(references: Sequence[Trial]) -> TrialCost:
    steps = [t.step_time_s for t in references if t.step_time_s and _positive(t.step_time_s)]
    if not steps:
        return TrialCost()
    starts = [t.one_off_s for t in references if t.one_off_s is not None and t.one_off_s >= 0]
    walls = [t.wall_s for t in references if _positive(t.wall_s)]
    start = float(np.median(starts)) if starts else 0.0
    run = float(np.median(walls)) - start if walls else 0.0
    step = float(np.median(steps))
    return TrialCost(start, run if run > 0 else step, step)


def _memory(coding: Coding, known: Sequence[tuple[Trial, Codes]]) -> tuple[MemoryTrials, set[int]]:
    """The memory trials, and the positions in `known` that ran out of memory unexplained by it.

    Host memory on a GPU job is not what the model is about: without a bound of its own such a
    trial is left to the failure model.
    """
    limit = coding.space.memory_limit_bytes
    peaks = [
        (c, float(t.peak_bytes))
        for t, c in known
        if t.outcome is Outcome.OK and t.same_job is not False and t.peak_bytes
    ]
    censored: list[tuple[Codes, float]] = []
    unseen: set[int] = set()
    for position, (trial, codes) in enumerate(known):
        if trial.outcome not in (Outcome.OOM_GPU, Outcome.OOM_HOST):
            continue
        bound = float(trial.peak_at_least_bytes or "nan")
        unexplained = trial.outcome is Outcome.OOM_HOST or (limit is None and not peaks)
        if unexplained and not isfinite(bound):
            unseen.add(position)
        else:
            censored.append((codes, max(bound, float(limit)) if limit and bound > 0 else bound))
    own = coding.reference.tobytes()
    reference = [p for c, p in peaks if c.tobytes() == own]
    return (
        MemoryTrials(
            codes=_stack(coding, [c for c, _ in peaks]),
            peak_bytes=np.array([p for _, p in peaks]),
            censored_codes=_stack(coding, [c for c, _ in censored]),
            at_least_bytes=np.array([b for _, b in censored]),
            reference_peak=float(np.median(reference)) if reference else None,
        ),
        unseen,
    )


def _judged(
    coding: Coding, known: Sequence[tuple[Trial, Codes]], unseen: set[int]
) -> list[JudgedTrial]:
    judged = []
    for position, (trial, codes) in enumerate(known):
        if trial.outcome in (Outcome.OOM_GPU, Outcome.OOM_HOST) and position not in unseen:
            continue
        if trial.outcome not in (Outcome.OK, Outcome.STOPPED):
            failed, accident = True, ACCIDENT.get(trial.outcome, ACCIDENT_OTHER)
        else:
            failed, accident = trial.same_job is False, ACCIDENT_OTHER
        named = _named(coding, codes, trial.reason) if failed else frozenset()
        judged.append(JudgedTrial(codes, failed, accident, named))
    return judged


def _named(coding: Coding, codes: Codes, reason: str) -> frozenset[int]:
    """The dimensions off their reference whose fault signs the text of a failure matches."""
    return frozenset(
        int(i)
        for i in np.flatnonzero(codes != coding.reference)
        if any(re.search(s, reason, re.IGNORECASE) for s in coding.dimensions[i].fault_signs)
    )
