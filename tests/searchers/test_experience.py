"""Experience in the searcher: believed while the trials bear it out, and dropped when not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from infrarsi.contract import (
    Dimension,
    DimensionKind,
    Effect,
    Experience,
    Outcome,
    Point,
    Proposal,
    Space,
    Trial,
)
from searchers import HypothesisProposer

TRUTH = {"a": -0.3, "b": -0.15, "c": 0.0, "d": 0.2, "e": -0.05}
NOISE = 0.01
ZERO = Effect(0.0, 0.0, 0.0, 0.0)


def space(effects: dict[str, Effect]) -> Space:
    """Five settings that are on or off."""
    return Space(
        tuple(
            Dimension(name, name, DimensionKind.KNOB, (0, 1), 0, (ZERO, effects[name]))
            for name in TRUTH
        ),
        planned_steps=10**7,
    )


COLD = space({name: Effect(0.0, 0.15) for name in TRUTH})
TRUE = space({name: Effect(effect, 0.02) for name, effect in TRUTH.items()})
REVERSED = space({name: Effect(-effect, 0.02) for name, effect in TRUTH.items()})


def ran(number: int, point: Point, rng: np.random.Generator) -> Trial:
    step_s = math.exp(sum(TRUTH[n] for n, v in point.items() if v) + rng.normal(0.0, NOISE))
    return Trial(number, point, Outcome.OK, True, step_time_s=step_s, wall_s=30.0, device_s=30.0)


def search(known: Space | None, trials: int) -> tuple[HypothesisProposer, list[Trial], list[str]]:
    """A search of so many trials, and why each was proposed."""
    rng = np.random.default_rng(0)
    proposer = HypothesisProposer(
        COLD, 0, noise_log_sd=NOISE, max_trials=trials, experience=Experience(known), stops=False
    )
    history = [ran(0, COLD.reference, rng) for _ in range(3)]
    why = []
    for number in range(1, trials + 1):
        answer = proposer.propose(history, ())
        assert isinstance(answer, Proposal)
        why.append(answer.why)
        history.append(ran(number, answer.point, rng))
    return proposer, history, why


def test_the_first_trial_is_what_true_experience_says_is_best() -> None:
    _, history, why = search(TRUE, 1)
    assert history[-1].point == {"a": 1, "b": 1, "c": 0, "d": 0, "e": 1}
    assert "by experience" in why[0]


def test_reversed_experience_is_dropped_after_its_first_trial() -> None:
    _, history, why = search(REVERSED, 4)
    assert history[3].point["d"] == 1
    assert ["by experience" in text for text in why] == [True, False, False, False]


def test_what_is_learned_does_not_start_from_experience() -> None:
    trials = search(None, 8)[1]
    learned = [
        HypothesisProposer(
            COLD, 0, noise_log_sd=NOISE, max_trials=8, experience=Experience(known)
        ).learned(trials)
        for known in (None, TRUE, REVERSED)
    ]
    assert learned[0] == learned[1] == learned[2]


def test_what_is_learned_covers_the_truth() -> None:
    """Every effect that the trials measured is within three of its deviations."""
    proposer, history, _ = search(None, 12)
    learned = {each.setting[0]: each.log_time for each in proposer.learned(history).effects}
    assert len(learned) == len(TRUTH)
    for name, normal in learned.items():
        assert normal is not None
        assert normal[1] < 0.1
        assert abs(normal[0] - TRUTH[name]) < 3 * normal[1]


def test_a_setting_that_never_ran_is_not_learned() -> None:
    rng = np.random.default_rng(1)
    points = [COLD.reference, {**COLD.reference, "a": 1}]
    history = [ran(number, point, rng) for number, point in enumerate(points)]
    proposer = HypothesisProposer(COLD, 0, noise_log_sd=NOISE, max_trials=4)
    assert {each.setting for each in proposer.learned(history).effects} == {("a", 1)}


def test_a_setting_that_fails_is_learned_as_a_fault() -> None:
    rng = np.random.default_rng(1)
    point = {**COLD.reference, "a": 1}
    crash = Trial(1, point, Outcome.USER_ERROR, wall_s=3.0, device_s=3.0)
    proposer = HypothesisProposer(COLD, 0, noise_log_sd=NOISE, max_trials=4)
    (fault,) = proposer.learned([ran(0, COLD.reference, rng), crash]).faults
    assert fault.settings == (("a", 1),)
    assert fault.probability > 0.4


def test_a_value_that_failed_elsewhere_is_less_likely_to_run() -> None:
    dimensions = tuple(
        replace(
            d, effects=(ZERO, replace(d.effects[1], failure_odds=5.0 if d.name == "a" else 1.0))
        )
        for d in TRUE.dimensions
    )
    careful = HypothesisProposer(
        COLD, 0, noise_log_sd=NOISE, max_trials=1,
        experience=Experience(replace(TRUE, dimensions=dimensions)),
    )  # fmt: skip
    free = HypothesisProposer(
        COLD, 0, noise_log_sd=NOISE, max_trials=1, experience=Experience(TRUE)
    )
    runs = [
        float(
            str(p.propose([ran(0, COLD.reference, np.random.default_rng(0))], ()))
            .rpartition("runs: ")[2]
            .split("%")[0]
        )
        for p in (careful, free)
    ]
    assert runs[1] - runs[0] == pytest.approx(7.0, abs=2.0)
