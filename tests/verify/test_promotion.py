"""From pairs to a decision, the reported interval, and one-off costs."""

import math

import made_records as made
import numpy as np
import pytest
from made_records import PROJECT, Job

from infrarsi.contract import Status
from infrarsi.stats import Decision, Noise
from infrarsi.verify import Pair, PairedComparison, measure, promotion_rules

QUIET = Noise(0.01, 0.01 / math.sqrt(2), 0.01, 4, 3, aa=(0.008, -0.006))


def comparison(rng, gain, *, noise=QUIET, candidates=1, sd=0.01, cold=None, one_off=4.0):
    """Run pairs until they decide; the final state."""
    rules = promotion_rules(PROJECT, noise, candidates=candidates)
    state = PairedComparison(rules, cold_one_off_s=cold)
    while state.promotion.decision is Decision.CONTINUE:
        ratio = gain + sd * rng.standard_normal()
        state = state.with_pair(Pair(0.1, 0.1 * math.exp(-ratio), 4.0, one_off))
    return state


def test_big_gain_is_promoted_at_four_pairs():
    state = comparison(np.random.default_rng(0), math.log(1.2))
    found = state.promotion
    assert len(state.pairs) == 4
    assert found.decision is Decision.PROMOTE
    assert found.check.status is Status.PASSED
    assert found.interval is not None
    assert found.interval.speedup_low > 1.1
    assert found.net_speedup == pytest.approx(1.2, rel=0.03)
    assert found.break_even_step == 0


def test_nothing_is_dropped_with_a_failed_check():
    found = comparison(np.random.default_rng(1), 0.0).promotion
    assert found.decision is Decision.DROP
    assert found.check.status is Status.FAILED
    assert "the floor of 0.20%" in found.reason


def test_no_pair_is_not_covered():
    found = PairedComparison(promotion_rules(PROJECT, QUIET)).promotion
    assert found.decision is Decision.CONTINUE
    assert found.check.status is Status.NOT_COVERED
    assert found.interval is None


def test_state_is_its_pairs():
    state = comparison(np.random.default_rng(2), 0.05)
    again = PairedComparison(state.rules).with_pairs(state.pairs)
    assert again.promotion == state.promotion


def test_candidate_that_does_not_break_even_is_not_promoted():
    # 2 % of 0.1 s is 2 ms a step: 10000 planned steps save 20 s, compiling costs 60 s.
    found = comparison(np.random.default_rng(3), 0.02, cold=64.0, sd=0.001).promotion
    assert found.decision is Decision.DROP
    assert "breaks even after" in found.reason
    assert found.break_even_step is not None
    assert found.break_even_step > PROJECT.workload.planned_steps


def test_cold_cost_is_charged_where_it_is_the_larger():
    warm = comparison(np.random.default_rng(4), 0.2, one_off=8.0).promotion
    cold = comparison(np.random.default_rng(4), 0.2, one_off=8.0, cold=39.0).promotion
    assert warm.break_even_step is not None
    assert cold.break_even_step is not None
    assert cold.break_even_step > 5 * warm.break_even_step
    assert cold.net_speedup < warm.net_speedup


def test_time_hidden_in_slow_steps_is_paid_back_in_the_net_speedup():
    hidden = Pair(0.10, 0.08, 4.0, 4.0, reference_mean_s=0.10, candidate_mean_s=0.101)
    found = PairedComparison(promotion_rules(PROJECT, QUIET), (hidden,) * 4).promotion
    assert found.decision is Decision.DROP
    assert "breaks even never" in found.reason


def test_pair_of_measurements():
    slow, fast = measure(made.run(Job(noise=0.0))), measure(made.run(Job(noise=0.0, step_s=0.05)))
    assert slow is not None
    assert fast is not None
    pair = Pair.of(slow, fast)
    assert pair.log_ratio == pytest.approx(math.log(2), rel=0.02)
    assert pair.reference_mean_s > pair.reference_step_s


def test_fixed_number_of_pairs_is_kept():
    project = PROJECT.model_copy(
        update={"verify": PROJECT.verify.model_copy(update={"max_pairs": 7})}
    )
    assert promotion_rules(project, QUIET).max_pairs == 6


def test_unknown_noise_allows_the_most_pairs_and_promises_nothing():
    rules = promotion_rules(PROJECT, None)
    assert rules.max_pairs == 24
    assert rules.resolvable_gain == math.inf


def test_proven_bias_raises_the_floor():
    biased = Noise(0.01, 0.01, 0.014, 9, 8, aa=(0.05, 0.051, 0.049, 0.05))
    assert promotion_rules(PROJECT, biased).floor > math.log1p(0.002) + 0.045


@pytest.mark.parametrize("gain", [0.005, 0.012, 0.024, 0.1])
def test_reported_interval_covers_in_spite_of_early_stopping(gain):
    rng = np.random.default_rng(int(1e4 * gain))
    repeats, hits = 800, 0
    for _ in range(repeats):
        interval = comparison(rng, gain, candidates=3).promotion.interval
        hits += interval.low <= gain <= interval.high
    # 95 % at least; binomial sd of 800 draws is 0.8 %, three of them.
    assert hits / repeats >= 0.95 - 0.023


@pytest.mark.slow
def test_campaign_of_three_useless_candidates_promotes_one_in_a_hundred_at_most():
    rng = np.random.default_rng(11)
    campaigns, promoted = 700, 0
    for _ in range(campaigns):
        aa = tuple(0.02 * rng.standard_normal(2))
        noise = Noise(0.01, 0.02 / math.sqrt(2), 0.02, 4, 3, aa=aa)
        promoted += any(
            comparison(rng, 0.0, noise=noise, candidates=3, sd=0.02).promotion.decision
            is Decision.PROMOTE
            for _ in range(3)
        )
    # At most 1 %: 7 of 700, binomial sd 2.6; three of them.
    assert promoted <= 14
