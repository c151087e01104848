"""Peak memory of every point of a space, learned also from the trials that did not fit.

peak = static + activations. The static part (parameters, gradients, optimizer states) is known or,
where it is not, one of `STATIC_SHARES` of the reference's peak, each weighted by how well it
explains the trials. log(activations / reference activations) is linear in the settings with normal
priors. A trial that ran out of memory says only that its peak would have been at least some bound
(right-censored; Tobin 1958), so the likelihood has a normal survival term for it. The posterior is
the normal approximation at its mode: the log likelihood is concave, so Newton's method finds it.

Notation: n trials; X features (n, P); s residual deviation; z = (bound - X b) / s; lam the inverse
Mills ratio phi(z) / (1 - Phi(z)).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from infrarsi.contract import Space
from searchers.features import MEMORY, Codes, Coding, Floats, Products, Rows, Terms
from searchers.information import Information, settled_count, weighted_gram
from searchers.neighbourhood import Near, Points, Quadratic, level
from searchers.normal import log_survival, mills, normal_cdf

RESIDUAL_SD = 0.05  # of log activations: what effects and pairs miss; chosen by judgement
BASE_SD_KNOWN = 0.03
BASE_SD_UNKNOWN = 0.7  # where the reference's own peak was never measured
STATIC_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SMALLEST_SHARE = 0.01  # activations are taken to be at least this part of the reference's
MAX_NEWTON = 25
SMALL_STEP = 1e-6


@dataclass(frozen=True)
class MemoryTrials:
    """What the model learns from.

    `codes` (n, d) of trials that reached their peak, with `peak_bytes` (n,); `censored_codes`
    (m, d) of trials that ran out of memory, with `at_least_bytes` (m,), NaN where only that is
    known. `reference_peak` is the reference's measured peak, None where there is none.
    """

    codes: Codes
    peak_bytes: Floats
    censored_codes: Codes
    at_least_bytes: Floats
    reference_peak: float | None

    def first(self, reached: int, out: int) -> "MemoryTrials":
        """The first so many of each kind."""
        return MemoryTrials(
            self.codes[:reached],
            self.peak_bytes[:reached],
            self.censored_codes[:out],
            self.at_least_bytes[:out],
            self.reference_peak,
        )


class PeakMemoryPosterior:
    """Belief on the peak of every point, as a mixture over the static part.

    `log_evidence` is comparable between models of the same trials.
    """

    def __init__(
        self,
        terms: Terms,
        parts: Sequence["_Part"],
        limit_bytes: float | None,
        log_evidence: float,
    ) -> None:
        self._terms = terms
        self._parts = tuple(parts)
        self.limit_bytes = limit_bytes
        self.log_evidence = log_evidence

    def log_activations(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and deviation of each point's log activation memory over the reference's, (n,)."""
        features = self._terms.features(codes)
        found = [part.difference(features) for part in self._parts]
        weights = np.array([part.weight for part in self._parts])
        means, sds = np.array([m for m, _ in found]), np.array([s for _, s in found])
        mean = weights @ means / weights.sum()
        second = weights @ (sds**2 + means**2) / weights.sum()
        return mean, np.sqrt(np.maximum(second - mean**2, 0.0))

    def fits(self, points: Points) -> Floats:
        """Probability that each point stays within the limit, (n,); 1 where no limit is known."""
        total = np.zeros(len(points))
        if self.limit_bytes is None:
            return np.ones(len(points))
        for part in self._parts:
            if isinstance(points, Near):
                mean, sd = part.log_activations_near(points)
            else:
                mean, sd = part.log_activations(self._terms.features(points))
            total += part.weight * normal_cdf((part.log_room(self.limit_bytes) - mean) / sd)
        return total

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each point's peak in bytes, (n,) each."""
        features = self._terms.features(codes)
        first, second = np.zeros(len(codes)), np.zeros(len(codes))
        for part in self._parts:
            mean, sd = part.log_activations(features)
            activations = part.scale * np.exp(np.minimum(mean + sd**2 / 2, 50.0))
            peak = part.static + activations
            variance = activations**2 * np.expm1(np.minimum(sd**2, 50.0))
            first += part.weight * peak
            second += part.weight * (peak**2 + variance)
        return first, np.sqrt(np.maximum(second - first**2, 0.0))

    def shortfall(self, codes: Codes) -> Floats:
        """Expected bytes above the limit, (n,): E[max(peak - limit, 0)]; 0 without a limit."""
        total = np.zeros(len(codes))
        if self.limit_bytes is None:
            return total
        features = self._terms.features(codes)
        for part in self._parts:
            mean, sd = part.log_activations(features)
            log_room = part.log_room(self.limit_bytes)
            room = part.scale * np.exp(log_room)
            # Upper partial expectation of a log-normal (the call of Black 1976).
            above = normal_cdf((mean + sd**2 - log_room) / sd)
            activations = part.scale * np.exp(np.minimum(mean + sd**2 / 2, 50.0))
            total += part.weight * (activations * above - room * normal_cdf((mean - log_room) / sd))
        return np.maximum(total, 0.0)


@dataclass(frozen=True)
class _Part:
    """The posterior under one assumption on the static part."""

    static: float
    scale: float  # the reference's activations in bytes, as far as known
    products: Products
    mean: Floats
    information: Information
    log_evidence: float
    weight: float = 1.0

    def log_activations(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation, of features without the column of the base level."""
        variance = self.information.variance(features, rest=1.0)
        mean = features @ self.mean[:-1] + self.mean[-1]
        return mean, np.sqrt(variance + RESIDUAL_SD**2)

    def difference(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and deviation of what the settings alone do."""
        return features @ self.mean[:-1], np.sqrt(self.information.variance(features))

    def log_activations_near(self, points: Near) -> tuple[Floats, Floats]:
        """The same as `log_activations`, of neighbours."""
        base_level = np.append(np.zeros(len(self.mean) - 1), -1.0)
        variance = self._spread.around(points, base_level)
        mean = level(self.products, self.mean[:-1], points) + self.mean[-1]
        return mean, np.sqrt(variance + RESIDUAL_SD**2)

    @cached_property
    def _spread(self) -> Quadratic:
        return Quadratic(self.products, self.information.covariance)

    def log_room(self, limit: float) -> float:
        return float(np.log(max(limit - self.static, SMALLEST_SHARE * self.scale) / self.scale))


class PeakMemoryModel:
    """The memory model of one space."""

    def __init__(self, coding: Coding) -> None:
        self.terms = Terms(coding, MEMORY)
        self._space: Space = coding.space
        self._rows, self._censored_rows = (Rows(self.terms, base=True) for _ in range(2))
        self._known: _Settled | None = None

    def fit(self, trials: MemoryTrials) -> PeakMemoryPosterior | None:
        """The posterior, or None where neither a peak nor a limit was ever seen."""
        limit = self._limit(trials)
        level = trials.reference_peak
        if level is None:
            level = float(np.median(trials.peak_bytes)) if len(trials.peak_bytes) else limit
        if level is None or level <= 0:
            return None
        parts = self._parts(trials, _Scale(level, limit))
        evidence = [p.log_evidence for p in parts]
        weights = _shares(evidence)
        return PeakMemoryPosterior(
            self.terms,
            [replace(p, weight=w) for p, w in zip(parts, weights, strict=True) if w > 1e-4],
            limit,
            float(np.logaddexp.reduce(evidence)),
        )

    def _parts(self, trials: MemoryTrials, scale: "_Scale") -> list[_Part]:
        """The posterior under each static part; of many trials the first ones are settled.

        What those that ran out of memory weigh is not looked at again then, nor a static part
        that explained the settled ones badly.
        """
        base_sd = BASE_SD_UNKNOWN if trials.reference_peak is None else BASE_SD_KNOWN
        prior = _Prior(
            np.append(self.terms.prior_mean, 0.0),
            np.append(self.terms.prior_variance, base_sd**2),
        )
        statics = self._statics(scale.level, scale.limit)
        rows, censored = self._rows.of(trials.codes), self._censored_rows.of(trials.censored_codes)
        counts = settled_count(len(rows)), settled_count(len(censored))
        if not any(counts):
            return [
                self._part(static, scale, _Tobit.of(trials, static, scale, rows, censored), prior)
                for static in statics
            ]
        first = trials.first(*counts)
        if self._known is None or not self._known.is_of(first, scale):
            some = rows[: counts[0]], censored[: counts[1]]
            found = [_Tobit.of(first, static, scale, *some).settled(prior) for static in statics]
            shares = _shares([mode.log_evidence for mode in found])
            likely = {s: f for s, f, w in zip(statics, found, shares, strict=True) if w > 1e-6}
            self._known = _Settled(first, scale, likely)
        return [
            self._part(
                static, scale, _Tobit.of(trials, static, scale, rows, censored), prior, before
            )
            for static, before in self._known.modes.items()
        ]

    def _part(
        self,
        static: float,
        scale: "_Scale",
        data: "_Tobit",
        prior: "_Prior",
        before: "_Mode | None" = None,
    ) -> _Part:
        mode = data.posterior(prior) if before is None else data.posterior_after(before, prior)
        return _Part(static, scale.activations(static), self.terms.products, *mode)

    def _statics(self, level: float, limit: float | None) -> list[float]:
        static = self._space.static_memory_bytes
        highest = level if limit is None else min(level, limit)
        if static is not None and static < highest:
            return [float(static)]
        return [share * highest for share in STATIC_SHARES]

    def _limit(self, trials: MemoryTrials) -> float | None:
        """The stated limit; else, after an out-of-memory trial, the least that was too much."""
        if self._space.memory_limit_bytes is not None:
            return float(self._space.memory_limit_bytes)
        if not len(trials.censored_codes):
            return None
        bounds = trials.at_least_bytes[np.isfinite(trials.at_least_bytes)]
        largest = float(trials.peak_bytes.max()) if len(trials.peak_bytes) else None
        if len(bounds):
            return max(float(bounds.min()), largest or 0.0)
        return largest


@dataclass(frozen=True)
class _Scale:
    """`level` is the reference's peak as far as known, `limit` what is too much; both bytes."""

    level: float
    limit: float | None

    def activations(self, static: float) -> float:
        """Those of the reference."""
        return max(self.level - static, SMALLEST_SHARE * self.level)


@dataclass(frozen=True)
class _Prior:
    """Independent normal priors of P coefficients, that of the base level last."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class _Mode:
    """What the settled trials say under one static part.

    `gram` (P, P) and `moment` (P,) are the sums over those that reached their peak,
    `censored_gram` that over the others, as they weigh at the `mode` (P,).
    """

    counts: tuple[int, int]
    mode: Floats
    gram: Floats
    moment: Floats
    censored_gram: Floats
    log_evidence: float


@dataclass(frozen=True)
class _Settled:
    """The first trials of a history, and what they say under each likely static part."""

    trials: MemoryTrials
    scale: _Scale
    modes: Mapping[float, _Mode]

    def is_of(self, trials: MemoryTrials, scale: _Scale) -> bool:
        """Whether these are the trials."""
        own = self.trials
        return (
            self.scale == scale
            and own.reference_peak == trials.reference_peak
            and np.array_equal(own.codes, trials.codes)
            and np.array_equal(own.peak_bytes, trials.peak_bytes)
            and np.array_equal(own.censored_codes, trials.censored_codes)
            and np.array_equal(own.at_least_bytes, trials.at_least_bytes, equal_nan=True)
        )


@dataclass(frozen=True)
class _Tobit:
    """Rows of the trials that reached their peak with its logarithm, and of those that did not."""

    features: Floats
    targets: Floats
    censored: Floats
    bounds: Floats

    @classmethod
    def of(
        cls, trials: MemoryTrials, static: float, scale: _Scale, features: Floats, censored: Floats
    ) -> "_Tobit":
        """The trials' activations over the reference's, under one static part."""

        def logs(peaks: Floats) -> Floats:
            over = (peaks - static) / scale.activations(static)
            return np.asarray(np.log(np.maximum(over, SMALLEST_SHARE)), dtype=np.float64)

        unknown = scale.level if scale.limit is None else scale.limit
        bounds = np.where(np.isfinite(trials.at_least_bytes), trials.at_least_bytes, unknown)
        return cls(features, logs(trials.peak_bytes), censored, logs(bounds))

    def posterior(self, prior: _Prior) -> tuple[Floats, Information, float]:
        """Mode, information there, and the log evidence by Laplace's approximation."""
        rows = np.vstack([self.features, self.censored])
        precision = np.full(len(rows), 1.0 / RESIDUAL_SD**2)
        mode = prior.mean.copy()
        for _ in range(MAX_NEWTON):
            lam, curvature = self._censoring(mode)
            gradient = (
                self.features.T @ (self.targets - self.features @ mode) / RESIDUAL_SD**2
                + self.censored.T @ lam / RESIDUAL_SD
                - (mode - prior.mean) / prior.variance
            )
            precision[len(self.features) :] = curvature
            information = Information(rows, precision, prior.variance)
            step = information.solve(gradient)
            mode = mode + step
            if float(np.abs(step).max(initial=0.0)) < SMALL_STEP:
                break
        return mode, information, self._evidence(mode, information, prior)

    def settled(self, prior: _Prior) -> _Mode:
        """The sums that these trials leave behind, once they are settled."""
        mode, _, log_evidence = self.posterior(prior)
        return _Mode(
            (len(self.features), len(self.censored)),
            mode,
            weighted_gram(self.features, _certain(self.features)),
            self.features.T @ self.targets / RESIDUAL_SD**2,
            weighted_gram(self.censored, self._censoring(mode)[1]),
            log_evidence,
        )

    def posterior_after(self, before: _Mode, prior: _Prior) -> tuple[Floats, Information, float]:
        """The same as `posterior` where the first trials weigh what they did `before`.

        The mode is the same, for the gradient is exact; the information is taken two steps before
        it and serves the steps that follow.
        """
        reached, out = before.counts
        since, censored_since = self.features[reached:], self.censored[out:]
        gram = before.gram + weighted_gram(since, _certain(since))
        moment = before.moment + since.T @ self.targets[reached:] / RESIDUAL_SD**2
        mode = before.mode
        for step_number in range(MAX_NEWTON):
            lam, curvature = self._censoring(mode)
            gradient = (
                moment
                - gram @ mode
                + self.censored.T @ lam / RESIDUAL_SD
                - (mode - prior.mean) / prior.variance
            )
            if step_number < 2:
                of_censored = before.censored_gram + weighted_gram(censored_since, curvature[out:])
                information = Information.of_gram(gram + of_censored, prior.variance)
            step = information.solve(gradient)
            mode = mode + step
            if float(np.abs(step).max(initial=0.0)) < SMALL_STEP:
                return mode, information, self._evidence(mode, information, prior)
        return self.posterior(prior)

    def _censoring(self, mode: Floats) -> tuple[Floats, Floats]:
        """The inverse Mills ratio of each trial that did not reach its peak, and its curvature."""
        z = (self.bounds - self.censored @ mode) / RESIDUAL_SD
        lam = mills(z)
        return lam, np.clip(lam * (lam - z), 1e-9, 1.0) / RESIDUAL_SD**2

    def _evidence(self, mode: Floats, information: Information, prior: _Prior) -> float:
        residual = (self.targets - self.features @ mode) / RESIDUAL_SD
        moved = (mode - prior.mean) / np.sqrt(prior.variance)
        z = (self.bounds - self.censored @ mode) / RESIDUAL_SD
        return float(
            -0.5 * (residual**2).sum()
            + log_survival(z).sum()
            - 0.5 * (moved**2).sum()
            - 0.5 * information.log_det()
        )


def _certain(rows: Floats) -> Floats:
    """The precision of trials that reached their peak, (n,)."""
    return np.full(len(rows), 1.0 / RESIDUAL_SD**2)


def _shares(log_evidence: Sequence[float]) -> list[float]:
    """The weights of alternatives, which sum to 1."""
    weights = np.exp(np.array(log_evidence) - max(log_evidence))
    return [float(w) for w in weights / weights.sum()]
