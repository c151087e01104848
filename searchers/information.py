"""The information matrix of a linear model with independent normal priors, as cheap as it can be.

Notation: F features (n, P); W the diagonal of the rows' precisions; D that of the prior variances;
A = D^-1 + F' W F the information, whose inverse is the covariance of the P coefficients. With
V = W^1/2 F D^1/2 (n, P): where there are fewer rows than coefficients everything goes through
I + V V', else through I + V' V, whose eigenvalues are at least 1 (Rasmussen and Williams, Gaussian
Processes for Machine Learning, section 3.4.3 and appendix A.3).
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchers.features import Floats


class Information:
    """A, of `features` (n, P), `precision` (n,) >= 0 and `prior_variance` (P,) > 0.

    `gram`, F' W F, saves making it again for other priors; it is used only if n >= P.
    """

    def __init__(
        self,
        features: Floats,
        precision: Floats,
        prior_variance: Floats,
        gram: Floats | None = None,
    ) -> None:
        self._deviation: Floats = np.sqrt(prior_variance)
        self._few = len(features) < len(prior_variance)
        if self._few:
            self._rows: Floats = features * np.sqrt(precision)[:, None] * self._deviation
            gram = self._rows @ self._rows.T
        else:
            gram = weighted_gram(features, precision) if gram is None else gram
            gram = gram * self._deviation * self._deviation[:, None]
        gram.flat[:: len(gram) + 1] += 1.0
        self._root: Floats = np.asarray(np.linalg.cholesky(gram), dtype=np.float64)

    @classmethod
    def of_gram(cls, gram: Floats, prior_variance: Floats) -> "Information":
        """A where F' W F (P, P) is all that is left of the rows."""
        # More rows of zeros than there are coefficients change nothing.
        width = len(prior_variance)
        return cls(np.empty((width, 0)), np.zeros(width), prior_variance, gram)

    def solve(self, right: Floats) -> Floats:
        """A^-1 `right`, both (P,)."""
        from scipy.linalg import cho_solve

        scaled = right * self._deviation
        if not self._few:
            inner = cho_solve((self._root, True), scaled, check_finite=False)
            return np.asarray(inner * self._deviation, dtype=np.float64)
        inner = cho_solve((self._root, True), self._rows @ scaled, check_finite=False)
        return np.asarray((scaled - self._rows.T @ inner) * self._deviation, dtype=np.float64)

    def log_det(self) -> float:
        """log |A| + log |D|: 0 without any row."""
        return float(2.0 * np.log(np.diagonal(self._root)).sum())

    def variance(self, rows: Floats, rest: float = 0.0) -> Floats:
        """f' A^-1 f of each of the `rows` f, (k, P): shape (k,).

        Columns that the rows lack are `rest` in the first of them and 0 in the others.
        """
        given = rows.shape[1]
        half: NDArray[Any] = self._half if self._few else self._single_half
        explained = (rows.astype(half.dtype) @ half[:given]).astype(np.float64)
        if rest:
            explained += rest * half[given]
        found = np.einsum("ij,ij->i", explained, explained)
        if self._few:  # what the rows know is taken from the prior's
            prior = self._deviation**2
            whole = rows**2 @ prior[:given] + (rest**2 * prior[given] if rest else 0.0)
            found = np.maximum(whole - found, 0.0)
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def covariance(self) -> Floats:
        """A^-1, (P, P)."""
        product = self._half @ self._half.T
        return np.diag(self._deviation**2) - product if self._few else product

    @cached_property
    def _half(self) -> Floats:
        """H (P, n or P) with D - H H' = A^-1 where the rows are few, else H H' = A^-1."""
        from scipy.linalg import solve_triangular
        from scipy.linalg.lapack import dtrtri

        if self._few:
            half = solve_triangular(self._root, self._rows, lower=True, check_finite=False)
        else:
            half = dtrtri(self._root, lower=1)[0]
        return np.asarray((half * self._deviation).T, dtype=np.float64)

    @cached_property
    def _single_half(self) -> NDArray[np.float32]:
        """Nothing is subtracted where the rows are many, so this is enough, and twice as fast."""
        return self._half.astype(np.float32)


FEW = 64  # rows up to which nothing is settled


def settled_count(count: int) -> int:
    """How many of `count` rows are settled: what they are taken to weigh is not looked at again.

    Grows by a fourth at a time, so that settling costs each row a constant number of looks however
    long the history becomes; a function of the count, so that a history read at once and one that
    grew give the same.
    """
    settled = 0 if count < FEW else FEW
    while settled and settled + max(16, settled // 4) <= count:
        settled += max(16, settled // 4)
    return settled


def weighted_gram(features: Floats, precision: Floats) -> Floats:
    """F' W F, (P, P)."""
    rows = features * np.sqrt(precision)[:, None]
    return rows.T @ rows
