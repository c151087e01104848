"""When a running trial is given up."""

import math

import pytest

from infrarsi.stats import hopeless_margin, noise_of_runs
from infrarsi.stats.hopeless import LEAST, RATE
from tests.benchmark_module import load

QUIET = noise_of_runs([1.0, 1.0001, 0.9999, 1.0], [0.001] * 4)
NOISY = noise_of_runs([1.0, 1.05, 0.95, 1.02], [0.05] * 4)


def test_without_a_measured_noise_nothing_is_stopped():
    assert hopeless_margin(None, rivals=1, steps=8) == math.inf


def test_quiet_machine_still_allows_for_slow_first_steps():
    assert hopeless_margin(QUIET, rivals=16, steps=8) == LEAST


def test_margin_grows_with_noise_and_rivals_and_shrinks_with_steps():
    margin = hopeless_margin(NOISY, rivals=4, steps=20)
    assert margin > 5 * NOISY.run_log_sd
    assert hopeless_margin(NOISY, rivals=16, steps=20) > margin
    assert hopeless_margin(NOISY, rivals=4, steps=8) > margin


@pytest.mark.parametrize(("shape", "least_stopped"), [("normal", 0.9), ("heavy-tailed", 0.9)])
def test_best_trial_is_hardly_ever_stopped_and_slow_ones_are(shape, least_stopped):
    found = load("early_stop").figures(0.01, shape, campaigns=150)
    assert found.killed_share <= 2 * RATE  # of 150: at most three
    assert found.stopped_share >= least_stopped
