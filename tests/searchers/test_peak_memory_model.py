"""The memory model: learns from trials that did not fit, and knows what it does not know."""

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated_jobs import GIB, simple_space

from infrarsi.contract import Dimension, DimensionKind, Effect, Space
from searchers.features import MEMORY, Coding, Terms
from searchers.peak_memory import RESIDUAL_SD, MemoryTrials, PeakMemoryModel

STATIC = 3.0 * GIB
ACTIVATIONS = 2.0 * GIB
LIMIT = 12 * GIB


def memory_space(*, limit: int | None = LIMIT, static: int | None = int(STATIC)) -> Space:
    zero = Effect(0.0, 0.0, 0.0, 0.0)
    doubling = tuple(
        Effect(0.0, 0.1, 0.69 * k, 0.2 * max(k, 0.01)) for k in range(4)
    )  # fmt: skip
    return replace(
        simple_space(
            [
                [Effect(0.0, 0.1, 1.0, 0.5)],
                [Effect(0.0, 0.1, -0.3, 0.3)],
                [Effect(0.0, 0.1, 0.0, 0.05)],
            ]
        ),
        dimensions=(
            Dimension(
                "m", "micro_batch", DimensionKind.KNOB, (1, 2, 4, 8), 1, (zero, *doubling[1:])
            ),
            *simple_space(
                [
                    [Effect(0.0, 0.1, 1.0, 0.5)],
                    [Effect(0.0, 0.1, -0.3, 0.3)],
                    [Effect(0.0, 0.1, 0.0, 0.05)],
                ]
            ).dimensions,
        ),
        memory_limit_bytes=limit,
        static_memory_bytes=static,
    )


def all_codes(space: Space) -> np.ndarray:
    return np.array(list(np.ndindex(*(len(d.values) for d in space.dimensions))))


def true_peak(codes: np.ndarray) -> np.ndarray:
    log = 0.72 * np.log2([1, 2, 4, 8])[codes[:, 0]] + 1.3 * codes[:, 1] - 0.5 * codes[:, 2]
    return STATIC + ACTIVATIONS * np.exp(log)


def observe(codes: np.ndarray, limit: float) -> MemoryTrials:
    peaks = true_peak(codes)
    fits = peaks <= limit
    return MemoryTrials(
        codes[fits],
        peaks[fits],
        codes[~fits],
        np.full((~fits).sum(), float(limit)),
        float(STATIC + ACTIVATIONS),
    )


def test_it_finds_the_truth_behind_censored_trials() -> None:
    space = memory_space()
    codes = all_codes(space)
    rng = np.random.default_rng(0)
    seen = np.vstack([[[0, 0, 0, 0]], rng.permutation(codes)[:12]])
    trials = observe(seen, LIMIT)
    assert len(trials.censored_codes) >= 3
    posterior = PeakMemoryModel(Coding(space)).fit(trials)
    assert posterior is not None
    mean, _ = posterior.predict(codes)
    below = true_peak(codes) < LIMIT
    error = np.abs(np.log((mean[below] - STATIC) / (true_peak(codes)[below] - STATIC)))
    assert np.median(error) < 0.1
    assert ((posterior.fits(codes) > 0.5) == below).mean() > 0.9


@pytest.mark.parametrize("static", [int(STATIC), None], ids=["static known", "static unknown"])
def test_the_probability_of_fitting_is_calibrated(static: int | None) -> None:
    space = memory_space(static=static)
    coding, codes = Coding(space), all_codes(space)
    terms = Terms(coding, MEMORY)
    stated, happened = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = rng.normal(terms.prior_mean, np.sqrt(terms.prior_variance))
        logs = terms.features(codes) @ truth + rng.normal(0, RESIDUAL_SD, len(codes))
        peaks = STATIC + ACTIVATIONS * np.exp(logs)
        peaks[0] = STATIC + ACTIVATIONS
        chosen = np.concatenate([[0], rng.permutation(np.arange(1, len(codes)))[:5]])
        fit = peaks[chosen] <= LIMIT
        trials = MemoryTrials(
            codes[chosen[fit]],
            peaks[chosen[fit]],
            codes[chosen[~fit]],
            np.full((~fit).sum(), float(LIMIT)),
            float(peaks[0]),
        )
        posterior = PeakMemoryModel(coding).fit(trials)
        assert posterior is not None
        rest = np.setdiff1d(np.arange(len(codes)), chosen)
        stated.append(posterior.fits(codes[rest]))
        happened.append(peaks[rest] <= LIMIT)
    p, y = np.concatenate(stated), np.concatenate(happened)
    # 40 truths: a bin of a fifth of the points has a standard error of about 0.05.
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        inside = (p >= low) & (p <= low + 0.2)
        assert y[inside].mean() == pytest.approx(p[inside].mean(), abs=0.15)
    assert np.mean((p - y) ** 2) < 0.12


def test_an_out_of_memory_trial_lowers_the_chance_of_its_neighbours_only_upwards() -> None:
    space = memory_space()
    coding = Coding(space)
    before = PeakMemoryModel(coding).fit(observe(np.array([[0, 0, 0, 0]]), LIMIT))
    after = PeakMemoryModel(coding).fit(observe(np.array([[0, 0, 0, 0], [2, 1, 0, 0]]), LIMIT))
    assert before is not None
    assert after is not None
    larger, smaller = np.array([[3, 1, 0, 0]]), np.array([[0, 0, 1, 0]])
    assert after.fits(larger)[0] < before.fits(larger)[0]
    assert after.fits(smaller)[0] == pytest.approx(before.fits(smaller)[0], abs=0.05)


def test_without_a_limit_everything_fits_until_something_does_not() -> None:
    space = memory_space(limit=None)
    coding, codes = Coding(space), all_codes(space)
    calm = PeakMemoryModel(coding).fit(observe(np.array([[0, 0, 0, 0], [1, 0, 0, 0]]), np.inf))
    assert calm is not None
    assert np.all(calm.fits(codes) == 1.0)
    assert np.all(calm.shortfall(codes) == 0.0)
    seen = PeakMemoryModel(coding).fit(observe(np.array([[0, 0, 0, 0], [3, 1, 0, 0]]), LIMIT))
    assert seen is not None
    assert seen.limit_bytes == LIMIT
    assert seen.fits(np.array([[3, 1, 0, 1]]))[0] < 0.4


def test_nothing_known_of_memory_gives_no_model() -> None:
    space = memory_space(limit=None, static=None)
    nothing = np.zeros((0, 4), dtype=np.int64)
    trials = MemoryTrials(nothing, np.zeros(0), nothing, np.zeros(0), None)
    assert PeakMemoryModel(Coding(space)).fit(trials) is None


def test_the_shortfall_is_the_mean_of_what_lies_above_the_limit() -> None:
    space = memory_space()
    posterior = PeakMemoryModel(Coding(space)).fit(observe(np.array([[0, 0, 0, 0]]), LIMIT))
    assert posterior is not None
    codes = np.array([[2, 1, 0, 0]])
    (part,) = posterior._parts
    features = posterior._terms.features(codes)
    mean, sd = part.log_activations(features)
    draws = np.random.default_rng(0).normal(mean[0], sd[0], 200_000)
    above = np.maximum(STATIC + part.scale * np.exp(draws) - LIMIT, 0.0)
    # The draws are heavy-tailed: their own standard error is near one hundredth.
    error = above.std() / math.sqrt(len(above))
    assert posterior.shortfall(codes)[0] == pytest.approx(above.mean(), abs=5 * error)
