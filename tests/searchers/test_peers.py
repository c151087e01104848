"""The peers: made by name, loaded only when asked, told of failures."""

import subprocess
import sys

import pytest
from simulated_jobs import cpu_space

from infrarsi.contract import Exhausted, Outcome, Proposal, Trial
from infrarsi.errors import UserError
from infrarsi.testing.searcher_suite import measured, ok, small_space
from searchers import SEARCHERS, make


def test_the_names_are_those_of_the_option() -> None:
    assert SEARCHERS == ("hypothesis", "optuna", "hyperopt", "random", "ofat")


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(UserError, match=r"'gp', but must be one of hypothesis, optuna"):
        make("gp", cpu_space(), 0)


def test_importing_the_room_imports_no_heavy_library() -> None:
    code = (
        "import sys, searchers; "
        "print([m for m in ('ray', 'optuna', 'hyperopt', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_factor_at_a_time_changes_one_setting_of_the_best_so_far() -> None:
    space = small_space()
    proposer = make("ofat", space, 0)
    history = [ok(0, space.reference)]
    for number in range(1, 5):
        answer = proposer.propose(history, ())
        assert isinstance(answer, Proposal)
        best = min(history, key=lambda t: t.step_time_s or 9.0).point
        assert sum(best[k] != v for k, v in answer.point.items()) == 1
        history.append(measured(number, answer.point))


@pytest.mark.parametrize("name", ["optuna", "hyperopt"])
def test_a_parzen_estimator_turns_away_from_what_fails(name: str) -> None:
    space = cpu_space()
    proposer = make(name, space, 0)
    history = [ok(0, space.reference)]
    for number in range(1, 31):
        answer = proposer.propose(history, ())
        assert not isinstance(answer, Exhausted)
        assert isinstance(answer, Proposal)
        fails = bool(answer.point["compile"])
        history.append(
            Trial(number, answer.point, Outcome.COMPILE_FAILED)
            if fails
            else ok(number, answer.point)
        )
    late = [t.outcome is Outcome.COMPILE_FAILED for t in history[16:]]
    # A coin would give 7.5 of 15; four or fewer has a chance of 6 %, and the seed is fixed.
    assert sum(late) <= 4
