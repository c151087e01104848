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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from infrarsi.contract import Space
from searchers.features import MEMORY, Codes, Coding, Floats, Terms
from searchers.information import Information
from searchers.normal import log_survival, mills, normal_cdf

RESIDUAL_SD = 0.05  # of log activations: what effects and pairs miss; chosen by judgement
BASE_SD_KNOWN = 0.03
BASE_SD_UNKNOWN = 0.7  # where the reference's own peak was never measured
STATIC_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SMALLEST_SHARE = 0.01  # activations are taken to be at least this part of the reference's
MAX_NEWTON = 25


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

    def fits(self, codes: Codes) -> Floats:
        """Probability that each point stays within the limit, (n,); 1 where no limit is known."""
        if self.limit_bytes is None:
            return np.ones(len(codes))
        features = self._terms.features(codes)
        total = np.zeros(len(codes))
        for part in self._parts:
            mean, sd = part.log_activations(features)
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

    def log_room(self, limit: float) -> float:
        return float(np.log(max(limit - self.static, SMALLEST_SHARE * self.scale) / self.scale))


class PeakMemoryModel:
    """The memory model of one space."""

    def __init__(self, coding: Coding) -> None:
        self.terms = Terms(coding, MEMORY)
        self._space: Space = coding.space

    def fit(self, trials: MemoryTrials) -> PeakMemoryPosterior | None:
        """The posterior, or None where neither a peak nor a limit was ever seen."""
        limit = self._limit(trials)
        level = trials.reference_peak
        if level is None:
            level = float(np.median(trials.peak_bytes)) if len(trials.peak_bytes) else limit
        if level is None or level <= 0:
            return None
        known = trials.reference_peak is not None
        parts = [self._part(trials, s, level, known, limit) for s in self._statics(level, limit)]
        evidence = np.array([p.log_evidence for p in parts])
        weights = np.exp(evidence - evidence.max())
        total = weights.sum()
        weights /= total
        return PeakMemoryPosterior(
            self.terms,
            [replace(p, weight=float(w)) for p, w in zip(parts, weights, strict=True) if w > 1e-4],
            limit,
            float(evidence.max() + np.log(total)),
        )

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

    def _part(
        self,
        trials: MemoryTrials,
        static: float,
        level: float,
        level_known: bool,
        limit: float | None,
    ) -> _Part:
        scale = max(level - static, SMALLEST_SHARE * level)
        bounds = np.where(np.isfinite(trials.at_least_bytes), trials.at_least_bytes, limit or level)

        def logs(peaks: Floats) -> Floats:
            return np.log(np.maximum((peaks - static) / scale, SMALLEST_SHARE))

        base_sd = BASE_SD_KNOWN if level_known else BASE_SD_UNKNOWN
        prior_mean = np.concatenate([self.terms.prior_mean, [0.0]])
        prior_variance = np.concatenate([self.terms.prior_variance, [base_sd**2]])
        data = _Tobit(
            _with_base(self.terms.features(trials.codes)),
            logs(trials.peak_bytes),
            _with_base(self.terms.features(trials.censored_codes)),
            logs(bounds),
        )
        return _Part(static, scale, *data.posterior(prior_mean, prior_variance))


def _with_base(features: Floats) -> Floats:
    return np.hstack([features, np.ones((len(features), 1))])


@dataclass(frozen=True)
class _Tobit:
    features: Floats
    targets: Floats
    censored: Floats
    bounds: Floats

    def posterior(
        self, prior_mean: Floats, prior_variance: Floats
    ) -> tuple[Floats, Information, float]:
        """Mode, information there, and the log evidence by Laplace's approximation."""
        rows = np.vstack([self.features, self.censored])
        precision = np.full(len(rows), 1.0 / RESIDUAL_SD**2)
        mode = prior_mean.copy()
        for _ in range(MAX_NEWTON):
            z = (self.bounds - self.censored @ mode) / RESIDUAL_SD
            lam = mills(z)
            gradient = (
                self.features.T @ (self.targets - self.features @ mode) / RESIDUAL_SD**2
                + self.censored.T @ lam / RESIDUAL_SD
                - (mode - prior_mean) / prior_variance
            )
            curvature = np.clip(lam * (lam - z), 1e-9, 1.0) / RESIDUAL_SD**2
            precision[len(self.features) :] = curvature
            information = Information(rows, precision, prior_variance)
            step = information.solve(gradient)
            mode = mode + step
            if float(np.abs(step).max(initial=0.0)) < 1e-6:
                break
        return mode, information, self._evidence(mode, information, prior_mean, prior_variance)

    def _evidence(
        self, mode: Floats, information: Information, prior_mean: Floats, prior_variance: Floats
    ) -> float:
        residual = (self.targets - self.features @ mode) / RESIDUAL_SD
        moved = (mode - prior_mean) / np.sqrt(prior_variance)
        z = (self.bounds - self.censored @ mode) / RESIDUAL_SD
        return float(
            -0.5 * (residual**2).sum()
            + log_survival(z).sum()
            - 0.5 * (moved**2).sum()
            - 0.5 * information.log_det()
        )
