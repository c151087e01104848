"""The interval of a mean log ratio."""

import math

import numpy as np
import pytest

from infrarsi.stats import log_ratio, paired_interval
from infrarsi.stats.paired import t_quantile


@pytest.mark.parametrize("pairs", [2, 3, 5, 12])
def test_interval_covers_at_its_confidence(pairs):
    rng = np.random.default_rng(pairs)
    hits = 0
    for _ in range(4000):
        interval = paired_interval(0.03 + 0.02 * rng.standard_normal(pairs), 0.9)
        hits += interval.low <= 0.03 <= interval.high
    # Binomial sd of 4000 draws at 0.9: 0.0047; four of them.
    assert hits / 4000 == pytest.approx(0.9, abs=0.019)


def test_one_pair_has_an_estimate_and_no_bounds():
    interval = paired_interval([log_ratio(0.2, 0.1)])
    assert interval.speedup == pytest.approx(2.0)
    assert interval.speedup_low == 0.0
    assert interval.speedup_high == math.inf


def test_no_pair_is_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        paired_interval([])


def test_quantile_is_that_of_the_tables():
    assert t_quantile(0.975, 3) == pytest.approx(3.182, abs=1e-3)
    assert t_quantile(0.99, 10) == pytest.approx(2.764, abs=1e-3)


def test_log_ratio_is_positive_where_the_candidate_is_faster():
    assert log_ratio(0.2, 0.1) > 0 > log_ratio(0.1, 0.2)
