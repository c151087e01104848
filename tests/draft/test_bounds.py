"""Rules become constraints over the knobs that there are, and keep the global batch."""

import itertools
from typing import Any

import pytest

from infrarsi.contract import Constraint, Knob, Place, PlaceKind
from infrarsi.draft.bounds import bind, with_rules
from infrarsi.draft.knobs import Found
from infrarsi.draft.layout import Layout
from infrarsi.draft.settings import Setting
from infrarsi.draft.speech import Meaning
from infrarsi.families import dialects


def knob(family: str, values: list[Any], reference: Any) -> Knob:
    return Knob(name=family, family=family, at="flag:--x", values=values, reference=reference)


PARAM = knob("overlap_param_gather", [False, True], False)
GRAD = knob("overlap_grad_reduce", [False, True], False)
RULE = "overlap_param_gather == false or (zero_stage != 0 and overlap_grad_reduce == true)"


def test_what_is_no_knob_is_put_in_as_it_is() -> None:
    (text,) = bind(RULE, [PARAM, GRAD], {"zero_stage": 1}) or []
    assert text == RULE.replace("zero_stage", "1")
    constraint = Constraint.parse(text)
    assert constraint.holds({"overlap_param_gather": True, "overlap_grad_reduce": True})
    assert not constraint.holds({"overlap_param_gather": True, "overlap_grad_reduce": False})


def test_a_rule_about_what_nobody_knows_gives_nothing_to_keep() -> None:
    assert bind(RULE, [PARAM, GRAD], {}) is None


def test_a_rule_that_the_job_does_not_keep_is_none_for_it() -> None:
    on = knob("overlap_param_gather", [False, True], True)
    assert bind(RULE, [on], {"zero_stage": 0, "overlap_grad_reduce": False}) == []


def test_a_knob_in_the_jobs_own_words_is_bound_in_them() -> None:
    words = knob("overlap_param_gather", ["false", "true"], "false")
    texts = bind(RULE, [words, GRAD], {"zero_stage": 1}) or []
    for param, grad in itertools.product(["false", "true"], [False, True]):
        values = {"overlap_param_gather": param, "overlap_grad_reduce": grad}
        allowed = all(Constraint.parse(text).holds(values) for text in texts)
        assert allowed is (param == "false" or grad)


def test_a_knob_whose_rule_cannot_be_kept_is_left_out_and_told() -> None:
    notes: list[str] = []
    kept = with_rules([Found(PARAM, "here"), Found(GRAD, "here")], {}, notes)
    assert [item.knob.family for item in kept] == ["overlap_grad_reduce"]
    assert notes == [
        "`overlap_param_gather` is not searched: it depends on 'zero_stage', whose value today is "
        "not known"
    ]


def meaning(family: str, value: Any) -> Meaning:
    spelling = dialects()["megatron"].of_family(family)[0]
    place = Place(PlaceKind.FLAG, spelling.name)
    return Meaning(family, value, Setting(place, value, "x:1", True, True, None), spelling)


def sizes(**values: Any) -> dict[str, Meaning]:
    return {family: meaning(family, value) for family, value in values.items()}


FACTS = {"layers": 24, "heads": 16, "groups": 4, "experts": 8, "sequence": 4096, "update": 96}


def test_constraints_allow_exactly_the_layouts_that_megatron_takes() -> None:
    layout = Layout(
        16,
        sizes(tensor_parallel=2, pipeline_parallel=1, context_parallel=2, expert_parallel=2),
        FACTS,
    )
    micro = Found(knob("micro_batch", [1, 2, 3, 4, 6], 1), "x")
    offered = [micro, *layout.knobs(8)]
    by_family = {item.knob.family: list(item.knob.values) for item in offered}
    assert set(by_family) == {
        *("micro_batch", "tensor_parallel", "pipeline_parallel", "context_parallel"),
        "expert_parallel",
    }
    fixed = {"sequence_parallel": True, "expert_tensor_parallel": 1}
    rules = [Constraint.parse(text) for text in layout.constraints(offered, fixed)]
    for m, t, p, c, e in itertools.product(*by_family.values()):
        values = dict(zip(by_family, (m, t, p, c, e), strict=True))
        fits = 16 % (t * p * c) == 0 and 16 % (p * e) == 0
        fits = fits and 16 % t == 0 and 4 % t == 0 and 24 % p == 0 and 8 % e == 0
        fits = fits and (c == 1 or 4096 % (2 * c) == 0)
        fits = fits and 96 % (m * (16 // (t * p * c) or 1)) == 0
        assert all(rule.holds(values) for rule in rules) is fits, values


@pytest.mark.parametrize(("tensor", "expected"), [(1, 8), (2, 4), (8, 1), (3, None), (None, None)])
def test_the_data_parallel_processes_are_what_is_left(tensor: Any, expected: int | None) -> None:
    unreadable = ("`--tensor-model-parallel-size` (x:1)",) if tensor is None else ()
    layout = Layout(8, sizes(tensor_parallel=tensor), {}, unreadable)
    assert layout.data_parallel == expected


def test_no_size_is_searched_where_what_it_divides_is_not_known() -> None:
    layout = Layout(8, sizes(tensor_parallel=2, pipeline_parallel=1), {"heads": 16})
    assert layout.knobs(8) == []
