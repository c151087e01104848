"""Step time of every point of a space: a Bayesian linear model on its logarithm.

Notation: y = log(step time / reference step time) of n trials; X their features, shape (n, P);
b the effects with independent normal priors; r the residuals; s the noise deviation of one trial;
w the weights. Given w everything is closed form (conjugate normal model); the weights are those of
a Student t with `TAIL` degrees of freedom (expectation step of its scale mixture, at most
`MAX_PASSES` passes), so that a trial on a disturbed node does not bend the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from searchers.features import TIME, Codes, Coding, Floats, Terms
from searchers.information import Information, weighted_gram

TAIL = 4.0
MAX_PASSES = 3
FEW, SHARED_PASSES = 64, 1  # trials up to which each scale has its own passes; passes beyond them
LACK_OF_FIT_SD = 0.01  # what interactions of three and more settings leave; chosen by judgement
PRIOR_SCALES = (1.0, 2.0, 4.0, 8.0)
SCALE_PENALTY = 1.5  # log prior odds against each doubling of the prior deviations
BASE_SD = 0.5  # the level of the reference: wide, its runs are observations like any other
NODE_SD = 0.03  # nodes differ by 8 % on average in 2208.11035; calibrated ones by less


@dataclass(frozen=True)
class TimedTrials:
    """What the model learns from: `codes` (n, d), `log_ratio` (n,), and each trial's nodes."""

    codes: Codes
    log_ratio: Floats
    nodes: Sequence[tuple[str, ...]] = ()


class StepTimePosterior:
    """Belief on log step time over the reference, after some trials.

    `mean` (T,) belongs to the T terms; `prior_scale` is what the prior deviations were multiplied
    by: above 1 the trials came out otherwise than the priors said. `log_evidence` is comparable
    between models of the same trials.
    """

    def __init__(self, terms: Terms, fit: "_Fit") -> None:
        self._terms = terms
        self._fit = fit
        self.prior_scale = fit.scale
        self.log_evidence = fit.score
        self.mean: Floats = fit.mean[: len(terms.prior_mean)]

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the true log step time over the reference, (n,) each."""
        reference = self._terms.coding.reference
        mean, sd = self.difference(codes, reference)
        moved = np.any(codes != reference, axis=1)
        return mean, np.sqrt(sd**2 + np.where(moved, LACK_OF_FIT_SD**2, 0.0))

    def difference(self, codes: Codes, base: Codes) -> tuple[Floats, Floats]:
        """Mean and deviation of each point's log step time less that of `base` (d,), (n,) each.

        What both have in common cancels, so a point that differs by an inert setting is known as
        well as that setting is. Lack of fit is left out.
        """
        features, start = self._terms.features(codes), self._terms.features(base[None, :])
        variance = self._fit.information.variance(features - start)
        return features @ self.mean - start @ self.mean, np.sqrt(variance)

    def expected(self, codes: Codes) -> Floats:
        """Mean log step time over the reference alone, (n,): much cheaper than `predict`."""
        return self._terms.features(codes) @ self.mean

    def imagining(self, codes: Codes, noise_variance: Floats) -> "StepTimePosterior":
        """The belief after trials at these points that end as expected: as sure as it would be."""
        features = self._terms.features(codes)
        base = np.zeros((len(features), len(self._fit.mean) - features.shape[1]))
        base[:, 0] = 1.0  # and no known node
        rows = np.hstack([features, base])
        data = self._fit.data
        data = _Data(
            np.vstack([data.features, rows]),
            np.concatenate([data.targets, rows @ self._fit.mean]),
            np.concatenate([data.noise, noise_variance]),
        )
        weights = np.concatenate([self._fit.weights, np.ones(len(rows))])
        return StepTimePosterior(
            self._terms, replace(self._fit, data=data, weights=weights, gram=None)
        )


@dataclass(frozen=True)
class _Data:
    """Rows of a linear model: features (n, P), targets (n,), noise variances (n,)."""

    features: Floats
    targets: Floats
    noise: Floats


@dataclass(frozen=True)
class _Prior:
    """Independent normal priors of P coefficients."""

    mean: Floats
    variance: Floats


@dataclass(frozen=True)
class _Fit:
    """The posterior under fixed weights and one scale of the priors."""

    data: _Data
    prior: _Prior
    weights: Floats
    scale: float
    gram: Floats | None = None  # that of these weights, where several priors share it
    judged: Floats | None = None  # weights that the score is taken under, if not these

    @cached_property
    def information(self) -> Information:
        return Information(self.data.features, self._precision, self.prior.variance, self.gram)

    @cached_property
    def mean(self) -> Floats:
        """The coefficients' posterior mean, (P,) (Bishop, equation 3.50)."""
        features = self.data.features
        missed = self.data.targets - features @ self.prior.mean
        return self.prior.mean + self.information.solve(features.T @ (self._precision * missed))

    @cached_property
    def score(self) -> float:
        """log p(targets, weights, scale) up to a constant (Bishop, equation 3.86)."""
        weights = self.weights if self.judged is None else self.judged
        precision = weights / self.data.noise
        residual = self.data.targets - self.data.features @ self.mean
        evidence = (
            0.5 * np.log(precision).sum()
            - 0.5 * (precision * residual**2).sum()
            - 0.5 * ((self.mean - self.prior.mean) ** 2 / self.prior.variance).sum()
            - 0.5 * self.information.log_det()
        )
        # The t likelihood as a normal one: each weight costs its own gamma prior (mean 1).
        evidence += TAIL / 2 * (np.log(weights) - weights + 1.0).sum()
        return float(evidence - SCALE_PENALTY * np.log2(self.scale))

    def reweighted(self) -> "_Fit":
        """The same with the weights that its residuals ask for."""
        data = self.data
        spread = (data.targets - data.features @ self.mean) ** 2
        spread = spread + self.information.variance(data.features)
        return replace(self, weights=(TAIL + 1.0) / (TAIL + spread / data.noise), gram=None)

    @property
    def _precision(self) -> Floats:
        return np.asarray(self.weights / self.data.noise, dtype=np.float64)


class StepTimeModel:
    """The model of one space; `noise_log_sd` is the noise of one trial's log step time."""

    def __init__(self, coding: Coding, *, noise_log_sd: float) -> None:
        self.terms = Terms(coding, TIME)
        self.noise_log_sd = max(noise_log_sd, 1e-3)
        self._coding = coding

    def fit(self, trials: TimedTrials) -> StepTimePosterior:
        """The posterior after these trials; costs O(n min(n, P) P).

        The prior deviations are those of the space times the one of `PRIOR_SCALES` that explains
        the trials best, so that priors which were too sure of themselves do not end a search. Of
        few trials each scale finds its own weights; many share those of the best scale so far.
        """
        extra = self._nuisance(trials)
        data = _Data(
            np.hstack([self.terms.features(trials.codes), extra]),
            trials.log_ratio,
            self.noise_variance(trials.codes),
        )
        fits = [
            _Fit(data, self._prior(scale, extra.shape[1]), np.ones(len(data.targets)), scale)
            for scale in PRIOR_SCALES
        ]
        if len(data.targets) <= FEW:
            return StepTimePosterior(self.terms, max(map(_settled, fits), key=_score))
        weights = np.ones(len(data.targets))
        for left in reversed(range(SHARED_PASSES + 1)):
            gram = weighted_gram(data.features, weights / data.noise)
            best = max((replace(fit, weights=weights, gram=gram) for fit in fits), key=_score)
            weights = best.reweighted().weights if left else weights
        return StepTimePosterior(self.terms, best)

    def noise_variance(self, codes: Codes) -> Floats:
        """How far single trials at these points are from the model: noise and lack of fit."""
        moved = np.any(codes != self._coding.reference, axis=1)
        return np.asarray(self.noise_log_sd**2 + np.where(moved, LACK_OF_FIT_SD**2, 0.0))

    def _prior(self, scale: float, num_extra: int) -> _Prior:
        """The terms', then those of the base level and of the nodes."""
        nuisance = [BASE_SD**2, *[NODE_SD**2] * (num_extra - 1)]
        return _Prior(
            np.concatenate([self.terms.prior_mean, np.zeros(num_extra)]),
            np.concatenate([self.terms.prior_variance * scale**2, nuisance]),
        )

    def _nuisance(self, trials: TimedTrials) -> Floats:
        """The base level, and one column for each group of nodes where there are several."""
        columns = [np.ones(len(trials.codes))]
        groups = sorted(set(trials.nodes))
        if len(groups) > 1:
            place = {group: i for i, group in enumerate(groups)}
            of_trial = np.array([place[nodes] for nodes in trials.nodes])
            columns += list((of_trial == np.arange(len(groups))[:, None]).astype(np.float64))
        return np.array(columns).T


def _score(fit: _Fit) -> float:
    return fit.score


def _settled(fit: _Fit) -> _Fit:
    """The fit after at most `MAX_PASSES` passes over its weights, scored under the next ones.

    The last weights belong to the score: fits that have not settled, those of too narrow priors,
    would be scored too low else, and the priors be given up too soon.
    """
    for _ in range(MAX_PASSES):
        updated = fit.reweighted().weights
        if np.allclose(updated, fit.weights, atol=0.02):
            return fit
        fit = replace(fit, weights=updated)
    return replace(fit, judged=fit.reweighted().weights)
