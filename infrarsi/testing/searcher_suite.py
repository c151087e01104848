"""What every `Proposer` must do: subclass `SearcherSuite` and give it `make`."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from infrarsi.contract import (
    ActiveTrial,
    Constraint,
    Dimension,
    DimensionKind,
    Effect,
    Exhausted,
    NotYet,
    Outcome,
    Point,
    Proposal,
    Space,
    Trial,
    point_key,
)
from infrarsi.ports import Proposer

Measure = Callable[[int, Point], Trial]


def small_space() -> Space:
    """24 points, of which a constraint leaves 18 and the reference takes one."""
    zero, faster = Effect(0.0, 0.0, 0.0, 0.0), Effect(-0.1, 0.1, 0.2, 0.2)
    knob, recipe = DimensionKind.KNOB, DimensionKind.RECIPE
    return Space(
        (
            Dimension("micro_batch", "micro_batch", knob, (1, 2, 4), 1, (zero, faster, faster)),
            Dimension("attention", "attention_backend", recipe, (False, True), False,
                      (zero, Effect(-0.2, 0.1, -0.3, 0.2))),
            Dimension("threads", "threads", knob, ("one", "two"), "one", (zero, faster)),
            Dimension("compile", "compile", recipe, (False, True), False,
                      (zero, Effect(-0.1, 0.1, 0.0, 0.1, one_off_s=30.0))),
        ),
        constraints=(Constraint.parse("not attention or micro_batch <= 2 or not compile"),
                     Constraint.parse("micro_batch <= 2 or compile")),
        planned_steps=1_000_000,
        memory_limit_bytes=10 * 2**30,
    )  # fmt: skip


def ok(number: int, point: Point, step_time_s: float = 1.0) -> Trial:
    """A trial that ran."""
    return Trial(number, dict(point), Outcome.OK, same_job=True, step_time_s=step_time_s,
                 one_off_s=5.0, peak_bytes=4 * 2**30, node_ids=("n0",), wall_s=30.0,
                 device_s=30.0)  # fmt: skip


def failed(number: int, point: Point, outcome: Outcome) -> Trial:
    """A trial that ended in `outcome` with nothing measured."""
    return Trial(number, dict(point), outcome, reason="as told", wall_s=3.0, device_s=3.0)


def measured(number: int, point: Point) -> Trial:
    """A made-up but fixed truth over `small_space`."""
    time = 1.0 - 0.1 * bool(point["attention"]) - 0.02 * bool(point["compile"])
    return ok(number, point, time - 0.05 * (point["threads"] == "two"))


def valid_points(space: Space) -> list[Point]:
    """Every valid point but the reference."""
    names = [d.name for d in space.dimensions]
    points = [
        dict(zip(names, v, strict=True)) for v in product(*(d.values for d in space.dimensions))
    ]
    return [p for p in points if space.is_valid(p) and p != space.reference]


STRANGE = (
    "empty",
    "no_reference",
    "reference_fails",
    "other_space",
    "not_finite",
    "zero_time",
    "huge_memory",
    "repeated_points",
)


class SearcherSuite:
    """The port's obligations as tests; `make` builds the proposer under test."""

    def make(self, space: Space, seed: int) -> Proposer:
        """A fresh proposer."""
        raise NotImplementedError

    def _run(
        self, space: Space, seed: int, num_trials: int, measure: Measure = measured
    ) -> tuple[list[Trial], Exhausted | None]:
        proposer = self.make(space, seed)
        history = [ok(0, space.reference)]
        for number in range(1, num_trials + 1):
            answer = proposer.propose(history, ())
            if isinstance(answer, Exhausted):
                return history, answer
            assert isinstance(answer, Proposal), "NotYet although nothing is active"
            history.append(measure(number, answer.point))
        return history, None

    def test_same_arguments_give_the_same_proposals(self) -> None:
        """Determinism of whole searches."""
        first, _ = self._run(small_space(), 3, 8)
        second, _ = self._run(small_space(), 3, 8)
        assert [t.point for t in first] == [t.point for t in second]

    def test_a_rebuilt_proposer_goes_on_as_the_interrupted_one(self) -> None:
        """State lives in the history alone, and asking twice changes nothing."""
        history, _ = self._run(small_space(), 5, 8)
        for cut in range(1, len(history)):
            rebuilt = self.make(small_space(), 5)
            answer = rebuilt.propose(history[:cut], ())
            assert isinstance(answer, Proposal)
            assert answer.point == history[cut].point
            assert rebuilt.propose(history[:cut], ()) == answer

    def test_a_small_space_is_exhausted_without_repetition(self) -> None:
        """Only valid new points, then an end with a reason."""
        space = small_space()
        allowed = {point_key(p) for p in valid_points(space)}
        history, end = self._run(space, 0, len(allowed) + 1)
        keys = [point_key(t.point) for t in history[1:]]
        assert len(set(keys)) == len(keys)
        assert set(keys) <= allowed
        assert end is not None
        if len(keys) < len(allowed):
            assert end.stopped_by == "no_gain_expected"
        else:
            assert end.stopped_by == "space_exhausted"

    @pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.INFRA])
    def test_a_search_in_which_every_trial_fails_ends(self, outcome: Outcome) -> None:
        """Whatever the outcome, there is an end, and no point is proposed twice."""
        space = small_space()
        history, end = self._run(space, 1, 40, lambda n, p: failed(n, p, outcome))
        keys = [point_key(t.point) for t in history[1:]]
        assert end is not None
        assert len(set(keys)) == len(keys) >= 1

    def test_not_the_same_job_is_survived(self) -> None:
        """A trial that ran but failed a check is one more point done."""

        def cheats(number: int, point: Point) -> Trial:
            trial = measured(number, point)
            return Trial(**{**trial.__dict__, "same_job": not point["attention"]})

        history, _ = self._run(small_space(), 2, 10, cheats)
        assert len({point_key(t.point) for t in history}) == len(history)

    def test_active_trials_are_never_proposed_again(self) -> None:
        """With k active, k different points; NotYet, not Exhausted, when the active have all."""
        space = small_space()
        proposer = self.make(space, 0)
        history = [ok(0, space.reference)]
        active: list[ActiveTrial] = []
        while isinstance(answer := proposer.propose(history, active), Proposal):
            assert answer.point not in [a.point for a in active]
            assert answer.point != space.reference
            active.append(ActiveTrial(len(active) + 1, answer.point))
        assert isinstance(answer, NotYet)
        assert len(active) >= 3

    def test_infrastructure_failures_do_not_use_a_point_up_at_once(self) -> None:
        """After one lost trial the search still has somewhere to go."""
        space = small_space()
        only = valid_points(space)
        history = [ok(0, space.reference), *(measured(i + 1, p) for i, p in enumerate(only[:-1]))]
        history.append(failed(99, only[-1], Outcome.INFRA))
        answer = self.make(space, 0).propose(history, ())
        assert isinstance(answer, Proposal | Exhausted)
        if isinstance(answer, Proposal):
            assert answer.point == only[-1]

    @pytest.mark.parametrize("name", STRANGE)
    def test_strange_histories_do_not_raise(self, name: str) -> None:
        """Histories that should not be there still get an answer."""
        space = small_space()
        answer = self.make(space, 0).propose(strange_histories(space)[name], ())
        assert isinstance(answer, Proposal | Exhausted)
        if isinstance(answer, Proposal):
            assert space.is_valid(answer.point)

    def test_a_space_of_one_point_is_exhausted_at_once(self) -> None:
        """Nothing to search is an answer."""
        space = Space(())
        answer = self.make(space, 0).propose([ok(0, {})], ())
        assert answer == Exhausted("space_exhausted")

    def test_constraints_that_exclude_everything_exhaust_the_space(self) -> None:
        """Contradicting constraints are no endless loop."""
        space = small_space()
        nothing = Space(space.dimensions, (Constraint.parse("micro_batch > 4"),))
        answer = self.make(nothing, 0).propose([ok(0, space.reference)], ())
        assert answer == Exhausted("space_exhausted")

    def test_a_space_too_large_to_enumerate_gets_valid_new_points(self) -> None:
        """4 ** 20 points."""
        values = (1, 2, 4, 8)
        effects = (Effect(0.0, 0.0), Effect(-0.01, 0.02), Effect(-0.02, 0.04), Effect(0.02, 0.05))
        space = Space(
            tuple(
                Dimension(f"k{i}", f"f{i}", DimensionKind.KNOB, values, 1, effects)
                for i in range(20)
            ),
            constraints=(Constraint.parse("k0 * k1 <= 8"),),
        )
        history, _ = self._run(space, 0, 5, lambda n, p: ok(n, p, 1.0 - 0.01 * n))
        assert len(history) == 6
        assert all(space.is_valid(t.point) for t in history)
        assert len({point_key(t.point) for t in history}) == len(history)

    def test_settings_of_as_many_values_as_a_contract_takes_are_searched(self) -> None:
        """Two of 64 values each."""
        values = tuple(range(1, 65))
        effects = tuple(Effect(-0.001 * (v - 1), 0.05 * (v > 1)) for v in values)
        space = Space(
            tuple(Dimension(n, n, DimensionKind.KNOB, values, 1, effects) for n in ("a", "b"))
        )
        history, _ = self._run(space, 0, 3, lambda n, p: ok(n, p, 1.0 - 0.01 * n))
        assert len(history) == 4
        assert all(space.is_valid(t.point) for t in history)


def strange_histories(space: Space) -> dict[str, Sequence[Trial]]:
    """Histories that no campaign should make."""
    points = valid_points(space)
    fields: dict[str, Any] = {**ok(1, points[0]).__dict__}
    return {
        "empty": (),
        "no_reference": (ok(1, points[0]), ok(2, points[1])),
        "reference_fails": (failed(0, space.reference, Outcome.OOM_GPU),),
        "other_space": (ok(0, space.reference), ok(1, {"nothing": 1}), ok(2, {})),
        "not_finite": (
            ok(0, space.reference),
            ok(1, points[0], float("nan")),
            ok(2, points[1], float("inf")),
        ),
        "zero_time": (ok(0, space.reference, 0.0), ok(1, points[0], 0.0), ok(2, points[1], -1.0)),
        "huge_memory": (
            ok(0, space.reference),
            Trial(**{**fields, "peak_bytes": 2**62}),
            Trial(2, points[1], Outcome.OOM_GPU, peak_at_least_bytes=1),
            Trial(3, points[2], Outcome.OOM_HOST, peak_at_least_bytes=2**62),
        ),
        "repeated_points": tuple(
            ok(i, points[0] if i else space.reference, 1.0 + i % 3) for i in range(20)
        ),
    }
