"""Noise between launches, from runs of the reference alone."""

import math

import numpy as np
import pytest

from infrarsi.stats import Noise, aa_log_ratios, noise_of_runs


def test_pair_noise_is_root_two_of_run_noise_and_unbiased_in_variance():
    rng = np.random.default_rng(0)
    variances = []
    for _ in range(2000):
        runs = 0.2 * np.exp(0.02 * rng.standard_normal(4))
        variances.append(noise_of_runs(runs).pair_log_sd ** 2)
    # A variance with 3 degrees of freedom has relative sd sqrt(2/3); its mean over 2000: 1.8 %.
    assert np.mean(variances) == pytest.approx(2 * 0.02**2, rel=0.06)


def test_identical_runs_have_no_noise():
    noise = noise_of_runs([0.1, 0.1, 0.1])
    assert (noise.run_log_sd, noise.pair_log_sd, noise.bias_bound) == (0.0, 0.0, 0.0)


def test_aa_pairs_use_each_run_once_in_alternating_order():
    assert aa_log_ratios([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(
        (math.log(1 / 2), math.log(4 / 3))
    )


def test_linear_drift_cancels_over_aa_pairs():
    ratios = aa_log_ratios([math.exp(0.01 * i) for i in range(8)])
    assert sum(ratios) == pytest.approx(0.0, abs=1e-12)


def test_one_run_is_refused():
    with pytest.raises(ValueError, match="at least two runs, but got 1"):
        noise_of_runs([0.1])


def test_within_noise_is_the_median_over_runs():
    assert noise_of_runs([1.0, 1.0], [0.01, 0.5, 0.02]).within_log_sd == 0.02


def test_bias_that_exceeds_its_noise_is_bounded_away_from_zero():
    biased = Noise(0, 0.01, 0.014, 9, 8, aa=(0.05, 0.051, 0.049, 0.05))
    assert 0.045 < biased.bias_bound < 0.05


def test_two_aa_pairs_prove_no_bias():
    assert Noise(0, 0.01, 0.014, 4, 3, aa=(0.05, 0.05)).bias_bound == 0.0
