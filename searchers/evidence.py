"""A history of trials as what the models learn from."""

import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import is_
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import ActiveTrial, Outcome, Trial, point_key
from searchers.failures import FailedTrial
from searchers.features import Codes, Coding, Floats, Grown
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
    ended: set[Key] = {point_key(t.point) for t in history if t.outcome is not Outcome.INFRA}
    lost: Counter[Key] = Counter(point_key(t.point) for t in history if t.outcome is Outcome.INFRA)
    return _taken(ended, lost, [point_key(a.point) for a in active])


def _taken(ended: set[T], lost: Counter[T], running: Sequence[T]) -> set[T]:
    return ended.union(running, (k for k, count in lost.items() if count >= MAX_INFRA_REPEATS))


@dataclass(frozen=True)
class TrialCost:
    """Seconds of the reference: its start to the first steady step, the rest, and one step."""

    start_s: float = 0.0
    run_s: float = 1.0
    step_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """One history, read once.

    `good` (n,) tells which rows of `timed` are ok and the same job, the reference included; `point`
    (n,) numbers their points in order of appearance, from the reference's 0; `one_off_s` (n,) is
    NaN where it was not measured. `ran` (m, d) are the trials that ran as the same job. `taken`
    are the codes, as bytes, that must not be proposed again.
    """

    timed: TimedTrials
    good: NDArray[np.bool_]
    point: NDArray[np.int64]
    one_off_s: Floats
    memory: MemoryTrials
    ran: Codes
    failed: tuple[FailedTrial, ...]
    cost: TrialCost
    pending: Codes
    pending_point: NDArray[np.int64]
    taken: Collection[bytes]


class _Said(NamedTuple):
    """What each known trial says by itself, a number a trial; NaN where it says nothing.

    `point` numbers the points in order of appearance; `bound` is what a trial that ran out of
    memory needed at least, infinite below zero where it does not tell; `ran` is 1 where it ran as
    the same job.
    """

    point: float
    step_s: float
    good: float
    one_off_s: float
    peak: float
    bound: float
    ran: float


class Reader:
    """Turns histories of one space into evidence; a longer one costs what is new in it.

    What it answers is a function of its arguments alone: what was read is used again while a
    history goes on with the very same trials.
    """

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._clear()

    def _clear(self) -> None:
        self._trials: list[Trial] = []
        # Of those of this space that were not lost:
        self._codes = Grown(len(self._coding.dimensions), np.int64)
        self._columns = Grown(len(_Said._fields))
        self._nodes: list[tuple[str, ...]] = []
        self._references: list[Trial] = []
        self._failed: dict[int, FailedTrial] = {}  # by position, those out of memory too
        self._host: set[int] = set()  # positions of those out of host memory
        self._number: dict[bytes, int] = {self._coding.reference.tobytes(): 0}
        self._ended: set[bytes] = set()
        self._lost: Counter[bytes] = Counter()

    def read(self, history: Sequence[Trial], active: Sequence[ActiveTrial]) -> Evidence:
        """What `history` says; trials at points of another space are left out."""
        if len(history) < len(self._trials) or not all(map(is_, self._trials, history)):
            self._clear()
        for trial in history[len(self._trials) :]:
            self._add(trial)
        codes, columns = (
            self._codes.rows,
            dict(zip(_Said._fields, self._columns.rows.T, strict=True)),
        )
        timed = np.isfinite(columns["step_s"])
        step_s = columns["step_s"][timed]
        cost = _cost(self._references)
        base = cost.step_s or float(step_s.min(initial=np.inf if len(step_s) else 1.0))
        several = len(set(self._nodes)) > 1
        nodes = tuple(self._nodes[i] for i in np.flatnonzero(timed)) if several else ()
        memory, unseen = self._memory(columns)
        running = [c for a in active if (c := self._coding.encode(a.point)) is not None]
        keys = [c.tobytes() for c in running]
        number = dict(self._number)
        return Evidence(
            timed=TimedTrials(codes[timed], np.log(step_s / base), nodes),
            good=columns["good"][timed] > 0.0,
            point=columns["point"][timed].astype(np.int64),
            one_off_s=columns["one_off_s"][timed],
            memory=memory,
            ran=codes[columns["ran"] > 0.0],
            failed=tuple(
                trial
                for position, trial in self._failed.items()
                if np.isnan(columns["bound"][position]) or position in unseen
            ),
            cost=cost,
            pending=_stack(self._coding, running),
            pending_point=np.array([number.setdefault(key, len(number)) for key in keys], np.int64),
            taken=_taken(self._ended, self._lost, keys),
        )

    def _add(self, trial: Trial) -> None:
        self._trials.append(trial)
        codes = self._coding.encode(trial.point)
        if codes is None:
            return
        key = codes.tobytes()
        if trial.outcome is Outcome.INFRA:
            self._lost[key] += 1
            return
        self._ended.add(key)
        position, nan = len(self._nodes), float("nan")
        ok = trial.outcome is Outcome.OK
        finished, same = ok or trial.outcome is Outcome.STOPPED, trial.same_job is not False
        out_of_memory = trial.outcome in (Outcome.OOM_GPU, Outcome.OOM_HOST)
        self._codes.append(codes[None, :])
        self._nodes.append(trial.node_ids)
        said = _Said(
            point=self._number.setdefault(key, len(self._number)),
            step_s=(trial.step_time_s or nan)
            if finished and same and _positive(trial.step_time_s)
            else nan,
            good=float(ok),
            one_off_s=nan if trial.one_off_s is None else trial.one_off_s,
            peak=float(trial.peak_bytes or nan) if ok and same else nan,
            bound=float(trial.peak_at_least_bytes or "-inf") if out_of_memory else nan,
            ran=float(finished and same),
        )
        self._columns.append(np.array([said]))
        if trial.outcome is Outcome.OOM_HOST:
            self._host.add(position)
        if not (finished and same):
            accident = ACCIDENT.get(trial.outcome, ACCIDENT_OTHER)
            named = _named(self._coding, codes, trial.reason)
            self._failed[position] = FailedTrial(codes, accident, named)
        if said.point == 0:
            self._references.append(trial)

    def _memory(self, columns: Mapping[str, Floats]) -> tuple[MemoryTrials, set[int]]:
        """The memory trials, and the positions of those that ran out unexplained by it.

        Host memory on a GPU job is not what the model is about: without a bound of its own such a
        trial is left to the failure model.
        """
        limit = self._coding.space.memory_limit_bytes
        codes, bound = self._codes.rows, columns["bound"].copy()
        reached = np.isfinite(columns["peak"])
        out = ~np.isnan(bound)
        silent = out & ~np.isfinite(bound)
        if limit is None and not reached.any():
            unseen = set(np.flatnonzero(silent).tolist())
        else:
            unseen = {i for i in self._host if silent[i]}
        if limit:
            bound[out & (bound > 0.0)] = np.maximum(bound[out & (bound > 0.0)], float(limit))
        bound[silent] = np.nan
        out[list(unseen)] = False
        of_reference = columns["peak"][reached & (columns["point"] == 0)]
        return (
            MemoryTrials(
                codes=codes[reached],
                peak_bytes=columns["peak"][reached],
                censored_codes=codes[out],
                at_least_bytes=bound[out],
                reference_peak=float(np.median(of_reference)) if len(of_reference) else None,
            ),
            unseen,
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


def _named(coding: Coding, codes: Codes, reason: str) -> frozenset[int]:
    """The dimensions off their reference whose fault signs the text of a failure matches."""
    return frozenset(
        int(i)
        for i in np.flatnonzero(codes != coding.reference)
        if any(re.search(s, reason, re.IGNORECASE) for s in coding.dimensions[i].fault_signs)
    )
