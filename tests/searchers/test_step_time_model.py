"""The step-time model: calibrated, robust, and never stuck with priors that the trials refute."""

import numpy as np
import pytest
from simulated_jobs import cpu_space, interval_truth, simple_space

from infrarsi.contract import Dimension, DimensionKind, Effect, Space
from searchers.features import TIME, Coding, Terms, ordered_lengths
from searchers.step_time import LACK_OF_FIT_SD, StepTimeModel, TimedTrials

NOISE = 0.015


def some_points(coding: Coding, rng: np.random.Generator, count: int) -> np.ndarray:
    columns = [rng.integers(0, len(d.values), count) for d in coding.dimensions]
    codes = np.stack(columns, axis=1)
    return codes[np.any(codes != coding.reference, axis=1)]


def timed(coding: Coding, codes: np.ndarray, log_ratio: np.ndarray) -> TimedTrials:
    reference = np.tile(coding.reference, (3, 1))
    return TimedTrials(np.vstack([reference, codes]), np.concatenate([np.zeros(3), log_ratio]))


@pytest.mark.parametrize("num_trials", [2, 8, 24])
def test_intervals_cover_the_truth_as_often_as_they_say(num_trials: int) -> None:
    inside80, inside95 = [], []
    for seed in range(60):
        rng = np.random.default_rng([seed, num_trials])
        coding, terms, truth = interval_truth(cpu_space(), rng)
        codes = some_points(coding, rng, num_trials)
        values = terms.features(codes) @ truth + rng.normal(0, LACK_OF_FIT_SD, len(codes))
        model = StepTimeModel(coding, noise_log_sd=NOISE)
        posterior = model.fit(timed(coding, codes, values + rng.normal(0, NOISE, len(codes))))
        held_out = some_points(coding, rng, 40)
        true = terms.features(held_out) @ truth + rng.normal(0, LACK_OF_FIT_SD, len(held_out))
        mean, sd = posterior.predict(held_out)
        z = np.abs(true - mean) / sd
        inside80.append((z < 1.2816).mean())
        inside95.append((z < 1.96).mean())
    # 60 spaces whose points share errors: the spread of the mean over them is about 0.02 to 0.03.
    assert np.mean(inside80) == pytest.approx(0.80, abs=0.08)
    assert np.mean(inside95) == pytest.approx(0.95, abs=0.05)


def test_what_two_points_share_cancels_in_their_difference() -> None:
    space = simple_space([[Effect(-0.2, 0.2)], [Effect(0.0, 0.01)]])
    coding = Coding(space)
    posterior = StepTimeModel(coding, noise_log_sd=NOISE).fit(
        timed(coding, np.zeros((0, 2), dtype=np.int64), np.zeros(0))
    )
    base, both = np.array([1, 0]), np.array([[1, 1]])
    _, apart = posterior.difference(both, base)
    _, alone = posterior.predict(both)
    assert apart[0] < 0.02 < 0.1 < alone[0]


def test_one_disturbed_trial_hardly_moves_a_setting_seen_often() -> None:
    space = simple_space([[Effect(0.0, 0.05)], [Effect(0.0, 0.05)], [Effect(0.0, 0.05)]])
    coding = Coding(space)
    codes = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 1, 1], [0, 1, 0]])
    values = -0.10 * codes[:, 0]
    disturbed = values.copy()
    disturbed[2] += 0.4
    model = StepTimeModel(coding, noise_log_sd=NOISE)
    clean = model.fit(timed(coding, codes, values)).expected(np.array([[1, 0, 0]]))[0]
    bent = model.fit(timed(coding, codes, disturbed)).expected(np.array([[1, 0, 0]]))[0]
    # Least squares without reweighting would move it by several hundredths.
    assert abs(bent - clean) < 0.02


def test_a_slow_node_is_not_taken_for_a_slow_setting() -> None:
    space = simple_space([[Effect(0.0, 0.05)], [Effect(0.0, 0.05)], [Effect(0.0, 0.05)]])
    coding = Coding(space)
    codes = np.array([[0, 0, 0]] * 4 + [[0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    nodes = [("a",), ("b",), ("a",), ("b",), ("a",), ("b",), ("a",), ("b",), ("b",)]
    values = np.array([0.06 * (n == ("b",)) for n in nodes])
    model = StepTimeModel(coding, noise_log_sd=0.005)
    known = model.fit(TimedTrials(codes, values, nodes)).expected(np.array([[1, 0, 0]]))[0]
    blind = model.fit(TimedTrials(codes, values)).expected(np.array([[1, 0, 0]]))[0]
    assert abs(known) < 0.6 * abs(blind)


def test_an_ordered_dimension_learns_its_far_value_from_its_near_one() -> None:
    def posterior(values: tuple[object, ...]) -> tuple[float, float]:
        effects = (Effect(0, 0), Effect(0.0, 0.1), Effect(0.0, 0.2))
        dimension = Dimension("m", "m", DimensionKind.KNOB, values, values[0], effects)
        coding = Coding(Space((dimension,)))
        model = StepTimeModel(coding, noise_log_sd=NOISE)
        fit = model.fit(timed(coding, np.array([[1]]), np.array([-0.15])))
        mean, sd = fit.predict(np.array([[2]]))
        return float(mean[0]), float(sd[0])

    ordered, _ = posterior((1, 2, 4))
    named, _ = posterior(("a", "b", "c"))
    assert ordered < -0.15
    assert abs(named) < 0.01


@pytest.mark.parametrize(
    ("values", "is_ordered"),
    [((1, 2, 4), True), ((0, 1, 2), True), ((False, True), False), (("1", "2", "4"), False),
     ((1, 2), False), ((-1, 1, 2), False)],
)  # fmt: skip
def test_order_is_seen_in_three_numbers_or_more(
    values: tuple[object, ...], is_ordered: bool
) -> None:
    dimension = Dimension("m", "m", DimensionKind.KNOB, values, values[0], ())
    assert (ordered_lengths(dimension) is not None) is is_ordered


def test_the_slope_leaves_each_value_its_own_prior_deviation() -> None:
    coding = Coding(cpu_space())
    terms = Terms(coding, TIME)
    for i, dimension in enumerate(coding.dimensions):
        for code, effect in enumerate(dimension.effects):
            if code == coding.reference[i]:
                continue
            point = coding.reference.copy()
            point[i] = code
            row = terms.features(point[None, :])[0]
            assert row @ terms.prior_mean == pytest.approx(effect.log_time)
            assert row**2 @ terms.prior_variance == pytest.approx(effect.log_time_sd**2)


def test_priors_that_are_far_too_sure_are_widened_by_the_trials() -> None:
    sure = [[Effect(0.0, 0.02)] for _ in range(6)]
    coding = Coding(simple_space(sure))
    model = StepTimeModel(coding, noise_log_sd=0.01)
    codes = np.eye(6, dtype=np.int64)[:3]
    unseen = np.array([[0, 0, 0, 1, 0, 0]])
    _, calm = model.fit(timed(coding, codes, np.array([0.02, -0.01, 0.01]))).predict(unseen)
    _, alarmed = model.fit(timed(coding, codes, np.array([-0.4, 0.3, -0.5]))).predict(unseen)
    assert calm[0] < 0.03
    assert alarmed[0] > 0.08
