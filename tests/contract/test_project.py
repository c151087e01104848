"""The models of infrarsi.yaml: what a knob does, and what the contract's hash covers."""

from typing import Any

import pytest
from pydantic import ValidationError

from infrarsi.contract import CONTRACT_KEYS, Knob, Place, PlaceKind, Project
from infrarsi.errors import UserError

BASE: dict[str, Any] = {
    "schema": "infrarsi-project-v1",
    "name": "job",
    "launch": {"command": "bash train.sh"},
}


def test_a_listed_value_sets_its_place() -> None:
    knob = Knob(name="b", family="micro_batch", at="flag:--b", values=[1, 2], reference=1)
    assert knob.change(2).set == ((Place(PlaceKind.FLAG, "--b"), 2),)


def test_the_reference_value_leaves_the_job_alone() -> None:
    knob = Knob(name="b", family="micro_batch", at="flag:--b", values=[1, 2], reference=1)
    assert knob.change(1).is_empty


def test_a_mapped_value_sets_and_removes_several_places() -> None:
    knob = Knob.model_validate(
        {
            "name": "r",
            "family": "activation_recompute",
            "reference": "none",
            "values": {
                "none": {"remove": ["flag:--r"]},
                "full": {"set": {"flag:--r": "full", "env:N": 1}, "remove": ["flag:--x"]},
            },
        }
    )
    change = knob.change("full")
    assert [str(place) for place, _ in change.set] == ["flag:--r", "env:N"]
    assert [str(place) for place in change.remove] == ["flag:--x"]


def test_true_is_not_taken_for_one() -> None:
    knob = Knob(name="b", family="f", at="flag:--b", values=[1, True], reference=1)
    assert knob.change(1).is_empty
    assert knob.change(True).set == ((Place(PlaceKind.FLAG, "--b"), True),)


@pytest.mark.parametrize(
    ("knob", "words"),
    [
        ({"values": [1, 2], "reference": 3, "at": "env:A"}, "`reference` must be one of"),
        (
            {"values": list(range(10_000)), "reference": 3, "at": "env:A"},
            "`values` has 10000 entries, but a search can use 64 at most",
        ),
        ({"values": [1, 2], "reference": True, "at": "env:A"}, "`reference` must be one of"),
        ({"values": [1, 2], "reference": 1}, "needs `at`"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(knob: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Knob.model_validate({"name": "a", "family": "f", **knob})


@pytest.mark.parametrize("text", ["", "flag", "flag:", "file:x", "--lr"])
def test_an_unknown_kind_of_place_lists_those_there_are(text: str) -> None:
    with pytest.raises(UserError, match=r"`flag:\.\.\.`, `launcher:\.\.\.`, `env:\.\.\.`, `path:"):
        Place.parse(text)


@pytest.mark.parametrize("text", ["flag:--lr", "env:A", "launcher:--nnodes", "path:out:1"])
def test_places_are_written_as_they_are_read(text: str) -> None:
    assert str(Place.parse(text)) == text


def test_constraints_may_name_families_and_knobs_and_the_derived_names() -> None:
    knobs = [{"name": "mbs", "family": "micro_batch", "at": "env:A", "values": [1], "reference": 1}]
    texts = ["mbs < 3", "micro_batch < 3", "world > 0", "data_parallel > 0"]
    Project.model_validate({**BASE, "knobs": knobs, "constraints": texts})
    with pytest.raises(ValidationError, match=r"names 'compile'; known are \['data_parallel'"):
        Project.model_validate({**BASE, "knobs": knobs, "constraints": ["compile == 'on'"]})


def test_constraints_of_a_short_file_wait_for_its_knobs() -> None:
    Project.model_validate({**BASE, "constraints": ["micro_batch <= 4"]})


CHANGES: dict[str, Any] = {
    "launch": {"command": "bash other.sh"},
    "workload": {"planned_steps": 5},
    "knobs": [{"name": "a", "family": "f", "at": "env:A", "values": [1], "reference": 1}],
    "constraints": ["world > 1"],
    "sinks": {"flag:--out": "fresh"},
    "allow": ["tf32"],
    "editable": ["a.py"],
    "frozen": {"a.py": "sha256:" + "0" * 64},
    "invariants": {"loss_tolerance": 0.5},
    "requirements": {"text": ["x"]},
    "verify": {"confidence": 0.9},
}
PREFERENCES: dict[str, Any] = {
    "name": "other",
    "llm": {"backend": "vllm"},
    "search": {"seed": 5},
    "experience": "off",
    "debate": {"enabled": True},
    "cluster": {"address": "local"},
    "policy": {"apply": "never"},
}


def test_the_example_changes_cover_every_part_of_the_contract() -> None:
    assert set(CHANGES) == set(CONTRACT_KEYS)


@pytest.mark.parametrize("key", CONTRACT_KEYS)
def test_a_change_of_the_contract_changes_its_hash(key: str) -> None:
    changed = Project.model_validate({**BASE, key: CHANGES[key]})
    assert changed.contract_hash() != Project.model_validate(BASE).contract_hash()


@pytest.mark.parametrize("key", PREFERENCES)
def test_a_change_of_a_preference_does_not(key: str) -> None:
    changed = Project.model_validate({**BASE, key: PREFERENCES[key]})
    assert changed.contract_hash() == Project.model_validate(BASE).contract_hash()
