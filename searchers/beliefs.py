"""What is believed of every point after a history: the three models put together."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import ActiveTrial, Learned, Space, Trial
from searchers.evidence import Evidence, Reader
from searchers.failures import FailureModel, FailurePosterior
from searchers.features import Codes, Coding, Floats
from searchers.lessons import learned
from searchers.neighbourhood import Near, Points
from searchers.peak_memory import PeakMemoryModel, PeakMemoryPosterior
from searchers.step_time import LACK_OF_FIT_SD, StepTimeModel, StepTimePosterior, TimedTrials

SUSPECT = 0.4  # probability from which a setting is called suspect
ONE_OFF_SCALES = (0.05, 20.0)  # how far measured one-off costs may move the prior ones


class _Side:
    """The three models under one set of priors."""

    def __init__(self, coding: Coding, *, noise_log_sd: float) -> None:
        self.coding = coding
        self.step_time = StepTimeModel(coding, noise_log_sd=noise_log_sd)
        self.peak_memory = PeakMemoryModel(coding)
        self.failures = FailureModel(coding)

    def fit(self, evidence: Evidence) -> "_Fitted":
        """Step time and memory after the evidence, and how well these priors explain it."""
        time, memory = self.step_time.fit(evidence.timed), self.peak_memory.fit(evidence.memory)
        return _Fitted(
            self, time, memory, time.log_evidence + (memory.log_evidence if memory else 0.0)
        )


@dataclass(frozen=True)
class _Fitted:
    side: _Side
    time: StepTimePosterior
    memory: PeakMemoryPosterior | None
    log_evidence: float


class Models:
    """The models of one space, which turn a history into beliefs.

    `informed` is the same space with the effects that experience makes likely. Of the two sets of
    priors that one is believed which explains the trials better; at first the informed one.
    """

    def __init__(
        self, coding: Coding, *, noise_log_sd: float, informed: Space | None = None
    ) -> None:
        self.coding = coding
        self._cold = _Side(coding, noise_log_sd=noise_log_sd)
        self._sides = [self._cold]
        self._reader = Reader(coding)
        if informed is not None:
            self._sides.insert(0, _Side(Coding(informed), noise_log_sd=noise_log_sd))

    def learn(self, history: Sequence[Trial], active: Sequence[ActiveTrial]) -> "Beliefs":
        """The beliefs after `history`, each active trial imagined to end as predicted."""
        evidence = self._reader.read(history, active)
        best = max((side.fit(evidence) for side in self._sides), key=_log_evidence)
        posterior = best.time
        if len(evidence.pending):
            pending, timed = evidence.pending, evidence.timed
            evidence = replace(
                evidence,
                timed=TimedTrials(
                    np.vstack([timed.codes, pending]),
                    np.concatenate([timed.log_ratio, posterior.expected(pending)]),
                ),
                good=np.concatenate([evidence.good, np.ones(len(pending), dtype=bool)]),
                point=np.concatenate([evidence.point, evidence.pending_point]),
            )
            noise = best.side.step_time.noise_variance(pending)
            posterior = posterior.imagining(pending, noise)
        return Beliefs(
            best.side.coding,
            evidence,
            posterior,
            best.memory,
            best.side.failures.fit(evidence.ran, evidence.failed),
            best.side.step_time.noise_log_sd,
            by_experience=best.side is not self._cold,
        )

    def learned(self, history: Sequence[Trial]) -> Learned:
        """What the trials say of single settings, under the space's own priors."""
        evidence = self._reader.read(history, ())
        fitted, failures = (
            self._cold.fit(evidence),
            self._cold.failures.fit(evidence.ran, evidence.failed),
        )
        return learned(self.coding, fitted.time, fitted.memory, failures, suspect=SUSPECT)


def _log_evidence(fitted: _Fitted) -> float:
    return fitted.log_evidence


class Beliefs:
    """Predictions for many points at once, rows of codes (n, d) or neighbours; results (n,)."""

    def __init__(
        self,
        coding: Coding,
        evidence: Evidence,
        time: StepTimePosterior,
        memory: PeakMemoryPosterior | None,
        failures: FailurePosterior,
        noise_log_sd: float,
        *,
        by_experience: bool = False,
    ) -> None:
        self.coding = self._coding = coding
        self.by_experience = by_experience
        self._evidence = evidence
        self._time = time
        self._memory = memory
        self._failures = failures
        self._noise = noise_log_sd
        self._one_off: Floats = np.array(
            [max(coding.dimensions[i].effects[v].one_off_s, 0.0) for i, v in coding.settings]
        )
        self._one_off_scale = self._scale_of_one_off()
        self._values, self._best = self._shrunk_trials()

    @property
    def taken(self) -> Collection[bytes]:
        """The codes, as bytes, of the points that must not be proposed again."""
        return self._evidence.taken

    @property
    def noise_log_sd(self) -> float:
        """How far one trial's log step time is from the model's: noise and lack of fit."""
        return float(np.hypot(LACK_OF_FIT_SD, self._noise))

    @property
    def planned_s(self) -> float:
        """How long the real run takes as it is; infinite where no reference was measured."""
        step_s = self._evidence.cost.step_s
        return float("inf") if step_s is None else self._coding.space.planned_steps * step_s

    @property
    def reference_cost_s(self) -> float:
        """What one run of the reference takes."""
        return self._evidence.cost.start_s + self._evidence.cost.run_s

    def log_time(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and deviation of log step time over the reference."""
        return self._time.predict(codes)

    def gain(self, points: Points, base: Codes) -> tuple[Floats, Floats]:
        """How much less log net step time than `base` (d,): mean and deviation.

        Net step time is step time plus extra one-off cost over the planned steps.
        """
        mean, sd = self._time.difference(points, base)
        own = self._time.expected(base[None, :])
        penalty = self._penalty(points, mean + own[0])
        base_penalty = self._penalty(base[None, :], own)
        return base_penalty[0] - mean - penalty, sd

    def fits(self, points: Points) -> Floats:
        """Probability of fitting into memory; 1 where nothing is known of it."""
        return np.ones(len(points)) if self._memory is None else self._memory.fits(points)

    def peak(self, codes: Codes) -> tuple[Floats, Floats] | None:
        """Mean and deviation of the peak in bytes; None where nothing is known of it."""
        return None if self._memory is None else self._memory.predict(codes)

    def runs(self, points: Points) -> Floats:
        """Probability of running as the same job, memory aside."""
        return self._failures.runs(points)

    @property
    def has_failed(self) -> bool:
        """Whether a trial failed, memory aside, for a reason that may lie in its settings."""
        return self._failures.is_alarmed

    @property
    def priors_hold(self) -> bool:
        """Whether the step times came out about as the priors said."""
        return self._time.prior_scale <= 1.0

    @property
    def suspects(self) -> list[int]:
        """Dimensions believed to have failed a trial by themselves, the likeliest first."""
        blamed = self._failures.blamed
        found = [i for i, blame in blamed.items() if blame >= SUSPECT]
        return sorted(found, key=lambda i: (-blamed[i], i))

    def cost(self, points: Points) -> Floats:
        """Expected duration of a trial over that of the reference."""
        mean = self._time.expected(points)
        cost = self._evidence.cost
        seconds = cost.start_s + self._extra_s(points) + cost.run_s * np.exp(np.minimum(mean, 5.0))
        return np.asarray(seconds / self.reference_cost_s, dtype=np.float64)

    def incumbent(self) -> Codes:
        """The best same-job point so far, imagined ones included; else the reference."""
        best = self.best_trials(1)
        return best[0] if best else self._coding.reference

    def best_trials(self, count: int) -> list[Codes]:
        """The best same-job points believed faster than the reference, best first."""
        values = self._values[:count]
        return list(self._best[:count][values < 0.0])

    def _shrunk_trials(self) -> tuple[Floats, Codes]:
        """The good points' shrunk log net step times over the reference, best first, and codes.

        A point's own residual counts as lack of fit to noise allows, more with each repetition.
        """
        timed = self._evidence.timed
        rows = np.flatnonzero(self._evidence.good)
        codes, ratio, point = timed.codes[rows], timed.log_ratio[rows], self._evidence.point[rows]
        offset = float(np.median(ratio[point == 0])) if (point == 0).any() else 0.0
        _, first, group = np.unique(point, return_index=True, return_inverse=True)
        own = _medians(ratio - offset, group.ravel())
        mean = self._time.expected_of(timed, imagined=len(self._evidence.pending))[rows[first]]
        count = np.bincount(group.ravel())
        share = LACK_OF_FIT_SD**2 / (LACK_OF_FIT_SD**2 + self._noise**2 / count)
        # An outlier says nothing of its point beyond what the model takes from it.
        limit = 2.0 * self.noise_log_sd
        value = mean + share * np.clip(own - mean, -limit, limit)
        value = value + self._penalty(codes[first], value)
        # The earlier of two that are equal comes first.
        order = np.argsort(value, kind="stable")
        order = order[point[first][order] != 0]
        return value[order], codes[first[order]]

    def _extra_s(self, points: Points) -> Floats:
        one_off = self._one_off * self._one_off_scale
        if not one_off.any():
            return np.zeros(len(points))
        if isinstance(points, Near):
            added = np.broadcast_to(one_off, points.hot.shape)
            return points.linear(points.hot @ one_off, added)
        return np.asarray(self._coding.one_hot(points) @ one_off, dtype=np.float64)

    def _penalty(self, points: Points, mean: Floats) -> Floats:
        """log(1 + extra one-off seconds a planned step / step time)."""
        step_s = self._evidence.cost.step_s
        if step_s is None:
            return np.zeros(len(points))
        per_step = self._extra_s(points) / max(self._coding.space.planned_steps, 1)
        return np.log1p(per_step / (step_s * np.exp(mean)))

    def _scale_of_one_off(self) -> float:
        """How measured one-off costs compare to the prior ones, the coldest trial deciding.

        Later trials find warm caches, so the largest ratio is the nearest to a cold start.
        """
        measured = np.isfinite(self._evidence.one_off_s)
        if not measured.any() or not self._one_off.any():
            return 1.0
        seconds = self._evidence.one_off_s[measured] - self._evidence.cost.start_s
        codes = self._evidence.timed.codes[: len(measured)][measured]
        expected = self._coding.one_hot(codes) @ self._one_off
        known = expected > 0
        if not known.any():
            return 1.0
        return float(np.clip((seconds[known] / expected[known]).max(), *ONE_OFF_SCALES))


def _medians(values: Floats, group: NDArray[np.int64]) -> Floats:
    """The median of the values of each group, in ascending order of the groups' numbers."""
    order = np.lexsort((values, group))
    ordered, ends = values[order], np.cumsum(np.bincount(group))
    begins = np.concatenate([[0], ends[:-1]])
    middle = begins + (ends - begins - 1) // 2
    return np.asarray((ordered[middle] + ordered[begins + (ends - begins) // 2]) / 2)
