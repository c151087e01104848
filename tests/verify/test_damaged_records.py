"""Whatever is taken out of a record or put into it: judging does not raise, and no cheat gets in.

The cheats are real trainings, so that what they did shows in more than one place, as it would.
"""

from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import PROJECT, Job, reference_runs, run
from tiny_training import Variant, train

from infrarsi.contract import ExecutionResult, RankRecord, RunKind, StepRecord
from infrarsi.verify import Evidence, judge, reference_evidence

STEPS = 10
SHORT = PROJECT.model_copy(
    update={"workload": PROJECT.workload.model_copy(update={"optimizer_steps": STEPS})}
)
CHEATS = {
    "half of the batch": {"half_batch": True},
    "a repeated batch": {"repeat_at": 4},
    "a skipped step": {"skip_at": 6},
    "a higher rate": {"rate": 3.1e-3},
    "a detached head": {"detach_head": True},
    "a frozen block": {"freeze": True},
    "smoothed labels": {"smoothing": 0.02},
    "bf16": {"autocast": True},
    "no average": {"average": "never"},
}
RANK_FIELDS = tuple(f.name for f in fields(RankRecord))
STEP_FIELDS = tuple(f.name for f in fields(StepRecord))
ODD = st.one_of(
    st.none(),
    st.sampled_from([0, -1, 1e308, float("nan"), float("inf"), "", "x", (), {}, [None], {"": []}]),
)


@cache
def evidence() -> Evidence:
    """The reference of the tiny training."""
    runs = [
        train(Variant(), STEPS, RunKind.TIMED),
        train(Variant(), STEPS, RunKind.AUDIT),
        train(Variant(perturb=True), STEPS, RunKind.PERTURBED),
    ]
    return reference_evidence(runs, optimizer_steps=STEPS)


@cache
def cheat(name: str) -> ExecutionResult:
    """The audit of a cheat."""
    return train(Variant(**CHEATS[name]), STEPS, RunKind.AUDIT)


@st.composite
def damaged(draw: Any, result: ExecutionResult, odd: st.SearchStrategy[Any]) -> ExecutionResult:
    """The result with up to three fields of its rank or its steps taken out or replaced."""
    rank = result.ranks[0]
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from(["rank", "step", "part", "drop"]))
        if where == "rank":
            rank = replace(rank, **{draw(st.sampled_from(RANK_FIELDS)): draw(odd)})
            continue
        steps = rank.steps if isinstance(rank.steps, tuple) else ()
        if where == "drop" and steps:
            at = draw(st.integers(0, len(steps) - 1))
            rank = replace(rank, steps=steps[:at] + steps[at + 1 :])
        elif where == "step" and steps:
            at = draw(st.integers(0, len(steps) - 1))
            if isinstance(steps[at], StepRecord):
                changed = replace(steps[at], **{draw(st.sampled_from(STEP_FIELDS)): draw(odd)})
                rank = replace(rank, steps=(*steps[:at], changed, *steps[at + 1 :]))
        else:
            rank = _inner(draw, rank, odd)
    return replace(result, ranks=(rank,))


def _inner(draw: Any, rank: RankRecord, odd: st.SearchStrategy[Any]) -> RankRecord:
    """One key of one line is taken out or replaced."""
    names = ("models", "optimizers", "settings", "weights", "companions", "states", "precision")
    name = draw(st.sampled_from(names))
    lines = getattr(rank, name)
    if not isinstance(lines, tuple) or not lines:
        return rank
    at = draw(st.integers(0, len(lines) - 1))
    if not isinstance(lines[at], dict) or not lines[at]:
        return rank
    key = draw(st.sampled_from(sorted(lines[at])))
    line = {k: v for k, v in lines[at].items() if k != key}
    if draw(st.booleans()):
        line[key] = draw(odd)
    return replace(rank, **{name: (*lines[:at], line, *lines[at + 1 :])})


@pytest.mark.parametrize("name", CHEATS)
def test_every_cheat_is_rejected_as_it_is(name):
    assert not judge(evidence(), cheat(name), SHORT).same_job


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_damage_never_turns_a_rejected_run_into_an_accepted_one(data):
    result = cheat(data.draw(st.sampled_from(sorted(CHEATS))))
    assert not judge(evidence(), data.draw(damaged(result, ODD)), SHORT).same_job


MADE = reference_evidence(reference_runs())


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_judging_odd_records_never_raises(data):
    kind = data.draw(st.sampled_from([RunKind.TIMED, RunKind.AUDIT]))
    result = data.draw(damaged(run(Job(seed=9, kind=kind, ranks=1)), ODD))
    assert len(judge(MADE, result, PROJECT).results) == 16
