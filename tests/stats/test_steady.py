"""Warm-up is trimmed where a run settles, and not where it only has slow steps now and then."""

import numpy as np
import pytest

from infrarsi.stats import steady
from infrarsi.stats.steady import robust_sd


def noisy(count: int, level: float = 0.1, sd: float = 0.01, seed: int = 0) -> np.ndarray:
    """Step durations of a settled run with log-normal noise."""
    return level * np.exp(sd * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize("sd", [0.0, 0.002, 0.01, 0.05], ids=lambda sd: f"sd{sd}")
def test_settled_run_is_kept_nearly_whole(sd):
    firsts = [steady(noisy(40, sd=sd, seed=seed)).first for seed in range(200)]
    # A step beyond three robust sd at the start is rare: in 200 runs few lose more than two steps.
    assert np.mean(np.asarray(firsts) <= 2) > 0.97


def test_first_step_of_35_s_is_dropped_alone():
    durations = noisy(40)
    durations[0] = 35.0
    state = steady(durations)
    assert state.first == 1
    assert state.settled
    assert state.median_s == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("slow", [(0,), (0, 1, 2), (0, 2), (0, 1, 2, 3, 4, 5)], ids=str)
def test_warm_up_steps_are_dropped(slow):
    durations = noisy(40)
    durations[list(slow)] *= 3.0
    assert steady(durations).first == max(slow) + 1


@pytest.mark.parametrize("every", [3, 4, 5, 10, 20])
def test_recurring_slow_steps_are_no_warm_up(every):
    durations = noisy(40)
    durations[every - 1 :: every] *= 8.0
    state = steady(durations)
    assert state.first == 0
    assert state.median_s == pytest.approx(0.1, rel=0.02)
    share = 7.0 / every
    assert state.tail_share == pytest.approx(share / (1 + share), abs=0.02)


def test_warm_up_before_recurring_slow_steps_is_dropped():
    durations = noisy(60)
    durations[9::10] *= 10.0
    durations[:3] = (35.0, 2.0, 0.4)
    assert steady(durations).first == 3


def test_mean_includes_slow_steps():
    durations = np.full(20, 0.1)
    durations[9::10] = 0.6
    assert steady(durations).mean_s == pytest.approx(durations.mean())


def test_late_level_shift_is_followed():
    durations = np.concatenate([noisy(12, 0.3), noisy(28, 0.1, seed=1)])
    state = steady(durations)
    assert state.first == 12
    assert state.settled


def test_run_that_settles_too_late_says_so():
    state = steady(np.concatenate([noisy(16, 0.3), noisy(4, 0.1, seed=1)]))
    assert not state.settled
    assert "still settling" in state.reason


def test_drift_over_the_steady_steps_is_said():
    durations = noisy(60, sd=0.005) * np.exp(0.2 * np.arange(60) / 60)
    state = steady(durations)
    assert not state.settled
    assert "drift by +" in state.reason


def test_noise_is_not_taken_for_a_drift():
    doubts = [steady(noisy(40, sd=0.05, seed=seed)).settled for seed in range(300)]
    # Three standard errors of a difference of medians: about 1 % false alarms; 300 runs give 3.
    assert sum(doubts) >= 285


def test_five_steps_are_enough_and_four_are_not():
    five = steady([9.0, 0.1, 0.1, 0.1, 0.1])
    assert five.median_s == pytest.approx(0.1)
    four = steady([9.0, 0.1, 0.1, 0.1])
    assert not four.settled
    assert "4 steps are fewer than the 5" in four.reason


def test_no_duration_is_refused():
    with pytest.raises(ValueError, match="at least one duration"):
        steady([])


def test_duration_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="positive and finite"):
        steady([0.1, 0.0, 0.1])


def test_robust_sd_is_that_of_a_normal_sample():
    sample = np.random.default_rng(3).standard_normal(20000)
    assert robust_sd(sample) == pytest.approx(1.0, abs=0.03)  # sd of the estimate 0.008
