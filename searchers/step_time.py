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

from searchers.features import TIME, Codes, Coding, Floats, Last, Rows, Terms
from searchers.information import Information, settled_count, weighted_gram
from searchers.neighbourhood import Near, Points, Quadratic, level

TAIL = 4.0
MAX_PASSES = 3
SHARED_PASSES = 1  # beyond FEW trials, where the scales share the weights of the best
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

    def __init__(self, terms: Terms, rows: Rows, fit: "_Fit | _LongFit") -> None:
        self._terms = terms
        self._rows = rows
        self._fit = fit
        self.prior_scale = fit.scale
        self.log_evidence = fit.score
        self.mean: Floats = fit.mean[: len(terms.prior_mean)]
        self._last = Last()

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the true log step time over the reference, (n,) each."""
        reference = self._terms.coding.reference
        mean, sd = self.difference(codes, reference)
        moved = np.any(codes != reference, axis=1)
        return mean, np.sqrt(sd**2 + np.where(moved, LACK_OF_FIT_SD**2, 0.0))

    def difference(self, points: Points, base: Codes) -> tuple[Floats, Floats]:
        """Mean and deviation of each point's log step time less that of `base` (d,), (n,) each.

        What both have in common cancels, so a point that differs by an inert setting is known as
        well as that setting is. Lack of fit is left out.
        """
        start = self._terms.features(base[None, :])
        if isinstance(points, Near):
            variance = self._spread.around(points, start[0])
        else:
            variance = self._fit.information.variance(self._terms.features(points) - start)
        return self.expected(points) - start @ self.mean, np.sqrt(variance)

    def expected(self, points: Points) -> Floats:
        """Mean log step time over the reference alone, (n,): much cheaper than `predict`."""
        if isinstance(points, Near):
            return self._last.of(points, lambda near: level(self._terms.products, self.mean, near))
        return self._terms.features(points) @ self.mean

    @cached_property
    def _spread(self) -> Quadratic:
        num_terms = len(self.mean)
        covariance = self._fit.information.covariance[:num_terms, :num_terms]
        return Quadratic(self._terms.products, covariance)

    def expected_of(self, trials: TimedTrials, *, imagined: int) -> Floats:
        """The same of the trials that this was learned from, the last ones `imagined`."""
        measured = len(trials.codes) - imagined
        of_measured = self._rows.of(trials.codes[:measured]) @ self.mean
        return np.concatenate([of_measured, self.expected(trials.codes[measured:])])

    def imagining(self, codes: Codes, noise_variance: Floats) -> "StepTimePosterior":
        """The belief after trials at these points that end as expected: as sure as it would be."""
        features = self._terms.features(codes)
        base = np.zeros((len(features), len(self._fit.mean) - features.shape[1]))
        base[:, 0] = 1.0  # and no known node
        more = self._fit.imagining(np.hstack([features, base]), noise_variance)
        return StepTimePosterior(self._terms, self._rows, more)


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

    def imagining(self, features: Floats, noise_variance: Floats) -> "_Fit":
        """The same with more rows (n, P) that are as expected."""
        data = _Data(
            np.vstack([self.data.features, features]),
            np.concatenate([self.data.targets, features @ self.mean]),
            np.concatenate([self.data.noise, noise_variance]),
        )
        weights = np.concatenate([self.weights, np.ones(len(features))])
        return replace(self, data=data, weights=weights, gram=None)

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
        return replace(self, weights=_weights(spread / data.noise), gram=None)

    @property
    def _precision(self) -> Floats:
        return np.asarray(self.weights / self.data.noise, dtype=np.float64)


@dataclass(frozen=True)
class _LongFit:
    """The posterior of which only the sums over the trials are left.

    `gram` (P, P) is F' W F, `moment` (P,) F' W (y - F m) with m the prior mean. `score` is that of
    the settled trials alone.
    """

    prior: _Prior
    gram: Floats
    moment: Floats
    scale: float
    score: float

    @cached_property
    def information(self) -> Information:
        return Information.of_gram(self.gram, self.prior.variance)

    @cached_property
    def mean(self) -> Floats:
        """The coefficients' posterior mean, (P,)."""
        return self.prior.mean + self.information.solve(self.moment)

    def after(self, data: _Data, weights: Floats) -> "_LongFit":
        """The posterior after these rows as well."""
        precision = weights / data.noise
        missed = data.targets - data.features @ self.prior.mean
        return replace(
            self,
            gram=self.gram + weighted_gram(data.features, precision),
            moment=self.moment + data.features.T @ (precision * missed),
        )

    def imagining(self, features: Floats, noise_variance: Floats) -> "_LongFit":
        """The posterior after rows (n, P) that are as expected."""
        targets = features @ self.mean
        return self.after(_Data(features, targets, noise_variance), np.ones(len(features)))


@dataclass(frozen=True)
class _Settled:
    """The first trials of a history, where there are several `groups` of nodes, and their fit."""

    trials: TimedTrials
    groups: Sequence[tuple[str, ...]]
    fit: _LongFit

    def is_of(self, trials: TimedTrials, groups: Sequence[tuple[str, ...]]) -> bool:
        """Whether these trials are the same."""
        return (
            np.array_equal(self.trials.codes, trials.codes)
            and np.array_equal(self.trials.log_ratio, trials.log_ratio)
            and self.trials.nodes == trials.nodes
            and self.groups == groups
        )


class StepTimeModel:
    """The model of one space; `noise_log_sd` is the noise of one trial's log step time."""

    def __init__(self, coding: Coding, *, noise_log_sd: float) -> None:
        self.terms = Terms(coding, TIME)
        self.noise_log_sd = max(noise_log_sd, 1e-3)
        self._coding = coding
        self._rows = Rows(self.terms, base=False)
        self._known: _Settled | None = None

    def fit(self, trials: TimedTrials) -> StepTimePosterior:
        """The posterior after these trials.

        The prior deviations are those of the space times the one of `PRIOR_SCALES` that explains
        the trials best, so that priors which were too sure of themselves do not end a search. Of
        few trials each scale finds its own weights. Of many the first ones are settled, their
        weights and the scale: those of the scale that explained them best. So a trial more costs
        O(P^3) and a look at those since; the sums over the settled trials are kept.
        """
        groups = sorted(set(trials.nodes))
        count = settled_count(len(trials.codes))
        if not count:
            fits = self._fits(self._data(trials, groups))
            return StepTimePosterior(self.terms, self._rows, max(map(_settled, fits), key=_score))
        first = TimedTrials(
            trials.codes[:count], trials.log_ratio[:count], tuple(trials.nodes[:count])
        )
        self._rows.of(trials.codes)
        if self._known is None or not self._known.is_of(first, groups):
            self._known = _Settled(first, groups, self._settle(self._data(first, groups)))
        known = self._known.fit
        since = TimedTrials(
            trials.codes[count:], trials.log_ratio[count:], tuple(trials.nodes[count:])
        )
        data = self._data(since, groups)
        fit = known.after(data, np.ones(len(data.targets)))
        spread = (data.targets - data.features @ fit.mean) ** 2
        spread = spread + fit.information.variance(data.features)
        fit = known.after(data, _weights(spread / data.noise))
        return StepTimePosterior(self.terms, self._rows, fit)

    def _settle(self, data: _Data) -> _LongFit:
        """The fit of the best scale, with weights that all scales share."""
        fits = self._fits(data)
        weights = np.ones(len(data.targets))
        for left in reversed(range(SHARED_PASSES + 1)):
            gram = weighted_gram(data.features, weights / data.noise)
            best = max((replace(fit, weights=weights, gram=gram) for fit in fits), key=_score)
            weights = best.reweighted().weights if left else weights
        nothing = _LongFit(
            best.prior, np.zeros_like(gram), np.zeros(len(gram)), best.scale, best.score
        )
        return nothing.after(data, best.weights)

    def _fits(self, data: _Data) -> list[_Fit]:
        extra = data.features.shape[1] - len(self.terms.prior_mean)
        ones = np.ones(len(data.targets))
        return [_Fit(data, self._prior(scale, extra), ones, scale) for scale in PRIOR_SCALES]

    def _data(self, trials: TimedTrials, groups: Sequence[tuple[str, ...]]) -> _Data:
        return _Data(
            np.hstack([self.terms.features(trials.codes), _nuisance(trials, groups)]),
            trials.log_ratio,
            self.noise_variance(trials.codes),
        )

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


def _nuisance(trials: TimedTrials, groups: Sequence[tuple[str, ...]]) -> Floats:
    """The base level, and one column for each group of nodes where there are several."""
    columns = [np.ones(len(trials.codes))]
    if len(groups) > 1:
        place = {group: i for i, group in enumerate(groups)}
        of_trial = np.array([place[nodes] for nodes in trials.nodes], dtype=np.int64)
        columns += list((of_trial == np.arange(len(groups))[:, None]).astype(np.float64))
    return np.array(columns).T


def _weights(spread: Floats) -> Floats:
    """Those of rows whose squared residual, over its noise variance, is expected so (n,)."""
    return np.asarray((TAIL + 1.0) / (TAIL + spread), dtype=np.float64)


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
