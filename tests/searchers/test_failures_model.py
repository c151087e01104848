"""The failure model: who is suspect, who is cleared."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from simulated_jobs import simple_space

from infrarsi.contract import Effect
from searchers.failures import FailedTrial, FailureModel, FailurePosterior
from searchers.features import Coding

CODING = Coding(simple_space([[Effect()] for _ in range(6)]))


@dataclass(frozen=True)
class Judged:
    codes: np.ndarray
    failed: bool
    named: frozenset[int] = frozenset()


def trial(settings: str, *, failed: bool) -> Judged:
    return Judged(np.array([int(c) for c in settings]), failed)


def fitted(coding: Coding, trials: list[Judged]) -> FailurePosterior:
    ran = [t.codes for t in trials if not t.failed]
    failed = [FailedTrial(t.codes, 0.002, t.named) for t in trials if t.failed]
    width = len(coding.dimensions)
    return FailureModel(coding).fit(np.array(ran, dtype=np.int64).reshape(-1, width), failed)


def runs(trials: list[Judged], settings: str) -> float:
    return float(fitted(CODING, trials).runs(np.array([[int(c) for c in settings]]))[0])


def test_the_reference_always_runs() -> None:
    assert runs([trial("111111", failed=True)], "000000") == pytest.approx(1.0)


def test_a_value_whose_only_appearance_failed_is_suspect() -> None:
    assert runs([trial("100000", failed=True)], "100000") < 0.4
    assert runs([trial("100000", failed=True)], "010000") > 0.9


def test_fewer_suspects_are_the_more_suspect() -> None:
    wide = runs([trial("111111", failed=True)], "100000")
    narrow = runs([trial("110000", failed=True)], "100000")
    assert narrow < wide < 0.95


def test_a_value_that_ran_is_cleared_and_the_blame_moves_on() -> None:
    history = [trial("111000", failed=True), trial("110000", failed=False)]
    assert runs(history, "110000") > 0.95
    assert runs(history, "100000") > 0.95
    assert runs(history, "001000") < 0.5


def test_several_failures_point_at_what_they_share() -> None:
    history = [trial("110001", failed=True), trial("101010", failed=True)]
    blamed = fitted(CODING, history).blamed
    assert blamed[0] > 3 * max(blame for i, blame in blamed.items() if i != 0)


def test_two_values_that_run_alone_but_not_together_are_a_conflict() -> None:
    history = [
        trial("100000", failed=False),
        trial("010000", failed=False),
        trial("110000", failed=True),
    ]
    assert runs(history, "100000") > 0.95
    assert runs(history, "010100") > 0.9
    assert runs(history, "110100") < 0.7


def test_the_order_of_trials_does_not_matter() -> None:
    history = [
        trial("111000", failed=True),
        trial("110000", failed=False),
        trial("011100", failed=True),
    ]
    assert runs(history, "001000") == pytest.approx(runs(history[::-1], "001000"), abs=0.05)


MANY = Coding(simple_space([[Effect()] * 3, [Effect()], [Effect()], [Effect()]]))


def runs_of_many(trials: list[Judged], settings: str) -> float:
    return float(fitted(MANY, trials).runs(np.array([[int(c) for c in settings]]))[0])


def test_the_other_values_of_a_failed_setting_are_suspect_too() -> None:
    failed = [trial("1000", failed=True)]
    assert runs_of_many(failed, "1000") < runs_of_many(failed, "2000") < 0.6
    assert runs_of_many(failed, "0100") > 0.9


def test_a_value_that_ran_clears_the_setting_but_not_its_other_value() -> None:
    history = [trial("1000", failed=True), trial("2000", failed=False)]
    assert runs_of_many(history, "3000") > 0.9
    assert runs_of_many(history, "1000") < 0.4


def test_two_values_of_one_setting_that_failed_beside_others_point_at_it() -> None:
    history = [trial("1100", failed=True), trial("2010", failed=True)]
    assert runs_of_many(history, "3000") < 0.4
    assert runs_of_many(history, "0110") > 0.6


def named(settings: str, *dimensions: int) -> Judged:
    return replace(trial(settings, failed=True), named=frozenset(dimensions))


def test_a_text_that_names_a_setting_draws_the_suspicion_there() -> None:
    silent, says = [trial("111100", failed=True)], [named("111100", 2)]
    assert runs(says, "001000") < 0.4 < 0.6 < runs(silent, "001000")
    assert runs(says, "110100") > 0.7 > 0.5 > runs(silent, "110100")


def test_a_text_is_never_certain() -> None:
    """It names a setting that then runs: the blame goes where it would have gone without it."""
    history = [named("111100", 2), trial("001000", failed=False)]
    assert runs(history, "001000") > 0.95
    assert runs(history, "110100") < 0.7


def test_a_text_that_names_two_settings_leaves_the_choice_between_them() -> None:
    history = [named("111100", 1, 2)]
    assert runs(history, "010000") == pytest.approx(runs(history, "001000"))
    assert 0.3 < runs(history, "010000") < 0.7


def test_failures_make_what_was_never_tried_more_suspect() -> None:
    few = [trial("100000", failed=True)]
    many = [trial(s, failed=True) for s in ("100000", "010000", "001000")]
    assert runs(many, "000100") < runs(few, "000100") < runs([], "000100")
