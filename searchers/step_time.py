"""Step time of every point of a space: a Bayesian linear model on its logarithm.

Notation: y = log(step time / reference step time) of n trials; X their features, shape (n, P);
b the effects with independent normal priors; r the residuals; s the noise deviation of one trial;
w the weights. Given w everything is closed form (conjugate normal model); the weights are those of
a Student t with `TAIL` degrees of freedom (expectation step of its scale mixture, at most
`MAX_PASSES` passes), so that a trial on a disturbed node does not bend the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchers.features import TIME, Codes, Coding, Floats, Terms

TAIL = 4.0
MAX_PASSES = 3
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

    `prior_scale` is what the prior deviations were multiplied by: above 1 the trials came out
    otherwise than the priors said.
    """

    def __init__(
        self, terms: Terms, mean: Floats, covariance: Floats, prior_scale: float = 1.0
    ) -> None:
        self._terms = terms
        self.prior_scale = prior_scale
        self.mean = mean
        self.covariance = covariance
        self._root: Floats = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)

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
        spread = features @ self._root - start @ self._root
        variance = np.einsum("ij,ij->i", spread, spread)
        return features @ self.mean - start @ self.mean, np.sqrt(variance)

    def expected(self, codes: Codes) -> Floats:
        """Mean log step time over the reference alone, (n,): much cheaper than `predict`."""
        return self._terms.features(codes) @ self.mean


@dataclass(frozen=True)
class _Fit:
    score: float
    posterior: StepTimePosterior


class StepTimeModel:
    """The model of one space; `noise_log_sd` is the noise of one trial's log step time."""

    def __init__(self, coding: Coding, *, noise_log_sd: float) -> None:
        self.terms = Terms(coding, TIME)
        self.noise_log_sd = max(noise_log_sd, 1e-3)
        self._coding = coding

    def fit(self, trials: TimedTrials) -> StepTimePosterior:
        """The posterior after these trials; costs O(n P^2 + P^3).

        The prior deviations are those of the space times the one of `PRIOR_SCALES` that explains
        the trials best, so that priors which were too sure of themselves do not end a search.
        """
        return max((self._fit(trials, s) for s in PRIOR_SCALES), key=lambda f: f.score).posterior

    def _fit(self, trials: TimedTrials, scale: float) -> "_Fit":
        num_terms = len(self.terms.prior_mean)
        extra = self._nuisance(trials)
        features = np.hstack([self.terms.features(trials.codes), extra])
        prior_mean = np.concatenate([self.terms.prior_mean, np.zeros(extra.shape[1])])
        node_variance = [NODE_SD**2] * (extra.shape[1] - 1)
        prior_variance = np.concatenate(
            [self.terms.prior_variance * scale**2, [BASE_SD**2], np.array(node_variance)]
        )
        moved = np.any(trials.codes != self._coding.reference, axis=1)
        noise = self.noise_log_sd**2 + np.where(moved, LACK_OF_FIT_SD**2, 0.0)
        weights = np.ones(len(noise))
        for _ in range(MAX_PASSES + 1):
            mean, covariance = normal_posterior(
                features, trials.log_ratio, weights / noise, prior_mean, prior_variance
            )
            residual = trials.log_ratio - features @ mean
            spread = residual**2 + np.einsum("ij,jk,ik->i", features, covariance, features)
            updated = (TAIL + 1.0) / (TAIL + spread / noise)
            if np.allclose(updated, weights, atol=0.02):
                break
            weights = updated
        evidence = _log_evidence(
            features,
            trials.log_ratio,
            weights / noise,
            mean,
            covariance,
            prior_mean,
            prior_variance,
        )
        # The t likelihood as a normal one: each weight costs its own gamma prior (mean 1).
        evidence += float((TAIL / 2 * (np.log(weights) - weights + 1.0)).sum())
        return _Fit(
            evidence - SCALE_PENALTY * float(np.log2(scale)),
            StepTimePosterior(
                self.terms, mean[:num_terms], covariance[:num_terms, :num_terms], scale
            ),
        )

    def _nuisance(self, trials: TimedTrials) -> Floats:
        """The base level, and one column for each group of nodes where there are several."""
        columns = [np.ones(len(trials.codes))]
        groups = sorted(set(trials.nodes))
        if len(groups) > 1:
            columns += [np.array([float(g == n) for n in trials.nodes]) for g in groups]
        return np.array(columns).T


def normal_posterior(
    features: Floats,
    targets: Floats,
    precision: Floats,
    prior_mean: Floats,
    prior_variance: Floats,
) -> tuple[Floats, Floats]:
    """Mean (P,) and covariance (P, P) of a linear model's coefficients.

    `features` (n, P), `targets` and `precision` (n,), the priors (P,). Bishop, Pattern Recognition
    and Machine Learning, equations 3.50 and 3.51, with one precision a row.
    """
    weighted = features * precision[:, None]
    information = weighted.T @ features + np.diag(1.0 / prior_variance)
    covariance = np.linalg.inv(information)
    covariance = (covariance + covariance.T) / 2
    return covariance @ (weighted.T @ targets + prior_mean / prior_variance), covariance


def _log_evidence(
    features: Floats,
    targets: Floats,
    precision: Floats,
    mean: Floats,
    covariance: Floats,
    prior_mean: Floats,
    prior_variance: Floats,
) -> float:
    """log p(targets) of the linear model up to a constant (Bishop, equation 3.86)."""
    residual = targets - features @ mean
    _, log_det = np.linalg.slogdet(covariance)
    return float(
        0.5 * np.log(precision).sum()
        - 0.5 * (precision * residual**2).sum()
        - 0.5 * ((mean - prior_mean) ** 2 / prior_variance).sum()
        + 0.5 * log_det
        - 0.5 * np.log(prior_variance).sum()
    )
