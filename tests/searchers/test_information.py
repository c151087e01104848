"""The information matrix, whichever of its two forms is the cheaper one."""

import numpy as np
import pytest

from searchers.information import FEW, Information, settled_count, weighted_gram


@pytest.mark.parametrize("rows", [0, 3, 12, 40])
def test_both_forms_are_the_plain_inverse(rows: int) -> None:
    rng = np.random.default_rng(rows)
    features, precision = rng.normal(size=(rows, 12)), rng.uniform(0.5, 50.0, rows)
    variance = rng.uniform(1e-4, 1.0, 12)
    plain = np.diag(1.0 / variance) + features.T @ (precision[:, None] * features)
    inverse = np.linalg.inv(plain)
    right, asked = rng.normal(size=12), rng.normal(size=(5, 12))
    found = Information(features, precision, variance)
    assert found.solve(right) == pytest.approx(inverse @ right, rel=1e-9, abs=1e-12)
    log_det = np.linalg.slogdet(plain)[1] + np.log(variance).sum()
    assert found.log_det() == pytest.approx(log_det, abs=1e-9)
    expected = np.einsum("ij,jk,ik->i", asked, inverse, asked)
    assert found.variance(asked) == pytest.approx(expected, rel=1e-5)
    assert found.covariance == pytest.approx(inverse, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rows", [3, 40])
def test_columns_that_rows_lack_are_a_constant_and_zeros(rows: int) -> None:
    rng = np.random.default_rng(1)
    found = Information(rng.normal(size=(rows, 8)), np.full(rows, 4.0), np.full(8, 0.3))
    short = rng.normal(size=(6, 5))
    whole = np.hstack([short, np.full((6, 1), 2.0), np.zeros((6, 2))])
    assert found.variance(short, rest=2.0) == pytest.approx(found.variance(whole), rel=1e-4)


def test_a_gram_matrix_serves_other_priors() -> None:
    rng = np.random.default_rng(2)
    features, precision = rng.normal(size=(30, 6)), rng.uniform(1.0, 5.0, 30)
    gram = weighted_gram(features, precision)
    kept = gram.copy()
    for scale in (1.0, 9.0):
        own = Information(features, precision, np.full(6, scale))
        shared = Information(features, precision, np.full(6, scale), gram)
        assert shared.log_det() == pytest.approx(own.log_det())
    assert np.array_equal(gram, kept)


def test_most_trials_are_settled_and_stay_so() -> None:
    counts = [settled_count(n) for n in range(3000)]
    assert counts == sorted(counts)
    assert set(counts[:FEW]) == {0}
    assert all(settled > 0.79 * n - 1 for n, settled in enumerate(counts) if n >= FEW)
    # Each of them is a look at all settled trials; together they are a few looks at each.
    assert sum(sorted(set(counts))) < 6 * 3000


def test_sums_alone_are_as_good_as_their_rows() -> None:
    rng = np.random.default_rng(3)
    features, precision = rng.normal(size=(30, 6)), rng.uniform(1.0, 5.0, 30)
    own = Information(features, precision, np.full(6, 0.5))
    of_sums = Information.of_gram(weighted_gram(features, precision), np.full(6, 0.5))
    assert of_sums.covariance == pytest.approx(own.covariance)
