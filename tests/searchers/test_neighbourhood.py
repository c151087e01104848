"""Neighbours are valued as the points that they are; what is kept changes no proposal."""

from types import ModuleType

import numpy as np
import pytest
from benchmark_module import load

from infrarsi.contract import ActiveTrial, Outcome, Trial
from searchers import HypothesisProposer
from searchers.beliefs import Beliefs, Models
from searchers.features import Coding
from searchers.neighbourhood import Near


@pytest.fixture(scope="module")
def made_up() -> ModuleType:
    return load("suggest_time")


def a_search(benchmark: ModuleType, seed: int, trials: int) -> tuple[object, list[Trial]]:
    job = benchmark.MadeUp(14, np.random.default_rng(seed))
    history = [job.trial(0, job.space.reference)]
    return job, [*history, *(job.trial(i, job.point()) for i in range(1, trials))]


def beliefs_of(benchmark: ModuleType, trials: int) -> tuple[Coding, Beliefs]:
    job, history = a_search(benchmark, 1, trials)
    coding = Coding(job.space)
    active = [ActiveTrial(trials + i, job.point()) for i in range(3)]
    return coding, Models(coding, noise_log_sd=0.01).learn(history, active)


@pytest.mark.parametrize("trials", [1, 30, 300])
def test_neighbours_are_worth_what_their_points_are_worth(made_up: ModuleType, trials: int) -> None:
    coding, beliefs = beliefs_of(made_up, trials)
    rng = np.random.default_rng(trials)
    rows = [[rng.integers(len(d.values)) for d in coding.dimensions] for _ in range(3)]
    near = Near(coding, np.array([coding.reference, *rows]))
    base = beliefs.incumbent()
    for found, expected in zip(
        beliefs.gain(near, base), beliefs.gain(near.codes, base), strict=True
    ):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert beliefs.fits(near) == pytest.approx(beliefs.fits(near.codes), abs=1e-4)
    assert beliefs.runs(near) == pytest.approx(beliefs.runs(near.codes), abs=1e-4)
    assert beliefs.cost(near) == pytest.approx(beliefs.cost(near.codes), abs=1e-6)


def test_each_neighbour_differs_in_one_dimension_and_all_are_there(made_up: ModuleType) -> None:
    coding, _ = beliefs_of(made_up, 1)
    row = np.array([len(d.values) - 1 for d in coding.dimensions])
    near = Near(coding, row[None, :])
    differs = near.codes != row
    assert np.all(differs.sum(axis=1) == 1)
    assert np.array_equal(np.argmax(differs, axis=1), near.dimension)
    assert len({codes.tobytes() for codes in near.codes}) == len(coding.settings)


def test_a_long_search_that_was_interrupted_goes_on_as_if_it_had_not_been(
    made_up: ModuleType,
) -> None:
    job, history = a_search(made_up, 2, 90)

    def fresh() -> HypothesisProposer:
        return HypothesisProposer(job.space, 0, noise_log_sd=0.01, max_trials=500)

    going_on = fresh()
    cuts = [5, 63, 64, 65, 80, 81, 90]
    answers = [going_on.propose(history[:cut], ()) for cut in cuts]
    assert answers == [fresh().propose(history[:cut], ()) for cut in cuts]
    # A history that is not the one before going on, first a shorter one, then a changed one.
    assert going_on.propose(history[:70], ()) == fresh().propose(history[:70], ())
    changed = [history[0], *history[3:], history[2], history[1]]
    assert going_on.propose(changed, ()) == fresh().propose(changed, ())


def test_a_reference_that_failed_is_survived(made_up: ModuleType) -> None:
    job, _ = a_search(made_up, 3, 1)
    failed = Trial(0, job.space.reference, Outcome.USER_ERROR, reason="exit code 1")
    searcher = HypothesisProposer(job.space, 0, noise_log_sd=0.01, max_trials=8)
    assert searcher.propose([failed], ()) is not None
