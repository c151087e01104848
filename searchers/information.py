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
        explained = (rows.astype(self._half.dtype) @ self._half[:given]).astype(np.float64)
        if rest:
            explained += rest * self._half[given]
        found = np.einsum("ij,ij->i", explained, explained)
        if self._few:  # what the rows know is taken from the prior's
            prior = self._deviation**2
            whole = rows**2 @ prior[:given] + (rest**2 * prior[given] if rest else 0.0)
            found = np.maximum(whole - found, 0.0)
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def _half(self) -> NDArray[np.floating[Any]]:
        """H (P, n or P) with D - H H' = A^-1 where the rows are few, else H H' = A^-1.

        Nothing is subtracted in the second case, so single precision is enough, and twice as fast.
        """
        from scipy.linalg import solve_triangular

        right = self._rows if self._few else np.eye(len(self._deviation))
        half = solve_triangular(self._root, right, lower=True, check_finite=False)
        dtype = np.float64 if self._few else np.float32
        return np.asarray((half * self._deviation).T, dtype=dtype)


def weighted_gram(features: Floats, precision: Floats) -> Floats:
    """F' W F, (P, P)."""
    rows = features * np.sqrt(precision)[:, None]
    return rows.T @ rows
