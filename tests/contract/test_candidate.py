"""Candidates are identified by their content."""

import json
import pickle
import random

import pytest

from infrarsi.contract import Candidate, Patch, PatchOrigin

PATCH = Patch(("sdpa_attention", "zero_grad"), "--- a/model.py\n+++ b/model.py\n")


def test_the_untouched_job_is_the_reference() -> None:
    assert Candidate.of().id == "reference"
    assert Candidate.of().is_reference
    assert Candidate.of().describe() == "the job as it is"


def test_the_id_does_not_depend_on_the_order_of_settings() -> None:
    items = [("micro_batch", 8), ("compile", "on"), ("workers", 2), ("pin", True)]
    rng = random.Random(0)
    ids = set()
    for _ in range(20):
        rng.shuffle(items)
        ids.add(Candidate.of(dict(items)).id)
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Candidate.of({"a": 1}), Candidate.of({"a": 2})),
        (Candidate.of({"a": 1}), Candidate.of({"b": 1})),
        (Candidate.of({"a": 1}), Candidate.of({"a": "1"})),
        (Candidate.of({"a": 1}), Candidate.of({"a": True})),
        (Candidate.of({"a": 1}), Candidate.of({"a": 1}, PATCH)),
        (Candidate.of(patch=PATCH), Candidate.of(patch=Patch(PATCH.names, "another diff"))),
    ],
)
def test_another_content_is_another_candidate(one: Candidate, other: Candidate) -> None:
    assert one.id != other.id


def test_the_same_diff_is_the_same_candidate_whoever_made_it() -> None:
    by_llm = Patch(("idea",), PATCH.diff, PatchOrigin.LLM)
    assert Candidate.of(patch=by_llm).id == Candidate.of(patch=PATCH).id


def test_ids_have_twelve_hexadecimal_digits() -> None:
    identity = Candidate.of({"a": 1.5}).id
    assert len(identity) == 12
    int(identity, 16)


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate.of(),
        Candidate.of({"b": False, "a": 1, "c": "x", "d": 0.5}),
        Candidate.of({"a": 1}, PATCH),
        Candidate.of(patch=Patch((), "d", PatchOrigin.PACK)),
    ],
    ids=["reference", "settings", "both", "patch"],
)
def test_candidates_survive_json_and_pickle(candidate: Candidate) -> None:
    assert Candidate.from_dict(json.loads(json.dumps(candidate.to_dict()))) == candidate
    again = pickle.loads(pickle.dumps(candidate))
    assert again == candidate
    assert again.id == candidate.id
    assert hash(again) == hash(candidate)


def test_a_candidate_is_described_in_one_line() -> None:
    text = Candidate.of({"micro_batch": 8}, PATCH).describe()
    assert text == "micro_batch=8 + sdpa_attention + zero_grad"
