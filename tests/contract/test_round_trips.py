"""What is sent between processes and written to the journal comes back as it was."""

import json
from typing import Any

import pytest

from infrarsi.contract import (
    CHECKS,
    LAYERS,
    ActiveTrial,
    CheckResult,
    Constraint,
    Dimension,
    DimensionKind,
    Effect,
    ExecutionRequest,
    ExecutionResult,
    NodeInfo,
    Outcome,
    Overlay,
    Proposal,
    RankRecord,
    RunKind,
    SnapshotRef,
    Space,
    Status,
    StepRecord,
    Trial,
    Verdict,
    point_key,
)
from infrarsi.errors import ExternalError, UserError

STEP = StepRecord(
    3,
    True,
    1.5,
    1.25,
    loss=0.5,
    elements={"x": 8},
    digests={"x": (1, 2)},
    weights=(0.1, 0.2),
    learning_rates=(1e-3,),
    eval_losses=(0.4,),
    gradients={"line.weight": [0.5, -0.25], "unused": None},
    matmul_dtypes=("float32",),
    random={"cpu": 1.0},
    dropout_calls={"0.1": 2},
    eval_digests={"x": (3, 4)},
    eval_outputs=(1.5,),
    sketches={"x": (4.0, 0.5, 1.25)},
    eval_sketches={"x": (2.0, 0.25, -1.5)},
)
RANK = RankRecord(
    rank=1,
    world_size=2,
    pid=77,
    sealed=True,
    optimizers=({"name": "AdamW"},),
    steps=(STEP, StepRecord(4, False, 2.0, 1.9)),
    end={"peak_bytes": 1024},
    problems=("late",),
    outside_writes=("/tmp/x",),
    model={"cls": "Net", "dropout": {"0.1": 2}},
    models=({"cls": "Net", "dropout": {"0.1": 2}}, {"cls": "Critic"}),
    settings=({"i": 3, "optimizer": "0:AdamW", "group": 0, "settings": {"lr": 0.1}},),
    weights=({"when": "start", "model": 0, "tensors": {"line.weight": [1.0, 0.5]}},),
    companions=({"when": "end", "kind": "dict", "norm": 1.0},),
    states=({"optimizer": "0:AdamW", "key": "exp_avg", "dtypes": ["float32"]},),
    precision=({"i": 1, "flags": {"allow_tf32_matmul": False}},),
)
REQUEST = ExecutionRequest(
    execution_id="e1",
    kind=RunKind.AUDIT,
    snapshot=SnapshotRef("d", "/s", "job"),
    overlay=Overlay("bash train.sh", {"a.py": "x"}, ("out",), {"A": "1"}, ("B",)),
    receipt_dir="/r",
    cache_dir="/c",
    optimizer_steps=40,
    ends_by="witness",
    witness_key="00",
    frozen={"data.py": "sha256:0"},
    env_pass=("TOKEN",),
    slower_than_s=0.5,
)
RESULT = ExecutionResult(
    execution_id="e1",
    outcome=Outcome.OOM_GPU,
    reason="ran out",
    kind=RunKind.PERTURBED,
    exit_code=1,
    ranks=(RANK,),
    nodes=(NodeInfo("n", "host", 8, ("GPU-1", "GPU-2"), "H200", 10),),
    command_s=1.0,
    wall_s=2.0,
    frozen_changed=("data.py",),
    leftover=("python",),
    peak_at_least_bytes=5,
    printed={"loss": [[1.0, 3.25, 7.0]]},
    checkpoints={"out/last.pt": {"keys": ["model"], "bytes": 10}},
)
TRIAL = Trial(2, {"a": 1, "b": False}, Outcome.OK, True, 0.5, 3.0, 10, None, ("n1", "n2"), 9.0)
VERDICT = Verdict(tuple(CheckResult(c, Status.PASSED, f"{c} holds") for c in CHECKS))


@pytest.mark.parametrize(
    "value",
    [RANK, REQUEST, RESULT, TRIAL, VERDICT],
    ids=["rank", "request", "result", "trial", "verdict"],
)
def test_it_survives_json(value: Any) -> None:
    again = type(value).from_dict(json.loads(json.dumps(value.to_dict())))
    assert again == value
    assert again.to_dict() == value.to_dict()


def test_a_result_of_an_older_version_says_nothing_of_what_was_printed_or_saved() -> None:
    older = RESULT.to_dict()
    del older["printed"], older["checkpoints"]
    read = ExecutionResult.from_dict(older)
    assert (read.printed, read.checkpoints) == ({}, {})


def test_a_record_of_an_older_version_is_still_read() -> None:
    old = RANK.to_dict()
    for name in ("models", "settings", "weights", "companions", "states", "precision"):
        del old[name]
    newer = ("gradients", "matmul_dtypes", "random", "dropout_calls", "eval_digests")
    for name in (*newer, "sketches", "eval_sketches"):
        for step in old["steps"]:
            del step[name]
    read = RankRecord.from_dict(json.loads(json.dumps(old)))
    assert read.models == (RANK.model,)
    assert read.settings == read.weights == read.companions == read.states == read.precision == ()
    assert read.steps[0].gradients == read.steps[0].eval_digests == {}
    assert read.steps[0].sketches == read.steps[0].eval_sketches == {}


def test_a_proposal_is_plain_data() -> None:
    proposal = Proposal({"a": 1}, "because", -0.1, 0.02, 0.9)
    assert Proposal(**json.loads(json.dumps(proposal.to_dict()))) == proposal
    assert ActiveTrial(1, {"a": 1}) == ActiveTrial(1, {"a": 1})


def test_the_peak_of_a_result_is_that_of_its_largest_rank() -> None:
    small = RankRecord(0, 2, 1, True, end={"peak_bytes": 10})
    silent = RankRecord(2, 2, 1, False)
    result = ExecutionResult("e", Outcome.OK, "", ranks=(small, RANK, silent))
    assert result.peak_bytes == 1024
    assert ExecutionResult("e", Outcome.OK, "", ranks=(silent,)).peak_bytes is None


def test_charged_time_counts_every_gpu_and_a_cpu_node_as_one() -> None:
    assert RESULT.device_s == 4.0
    cpu = ExecutionResult("e", Outcome.OK, "", nodes=(NodeInfo("n", "h", 8),), wall_s=3.0)
    assert cpu.device_s == 3.0


def test_every_outcome_has_a_sentence_and_only_two_are_free() -> None:
    assert all(outcome.sentence for outcome in Outcome)
    free = {outcome for outcome in Outcome if not outcome.counts_as_screen}
    assert free == {Outcome.INFRA, Outcome.PATCH_FAILED}


def test_there_are_sixteen_checks_in_five_layers() -> None:
    assert len(CHECKS) == len(set(CHECKS)) == 16
    assert list(LAYERS) == ["L1", "L2", "L3", "L4", "L5"]


def test_one_failed_check_makes_another_job_and_replacing_it_mends() -> None:
    bad = VERDICT.with_result(CheckResult("same_data", Status.FAILED, "a batch came twice"))
    assert VERDICT.same_job
    assert not bad.same_job
    assert [r.check for r in bad.failed] == ["same_data"]
    assert bad.passed == 15
    assert bad.with_result(VERDICT["same_data"]) == VERDICT


SPACE = Space(
    (
        Dimension("mbs", "micro_batch", DimensionKind.KNOB, (1, 2, 4), 1, (Effect(),) * 3),
        Dimension(
            "sdpa",
            "attention_backend",
            DimensionKind.RECIPE,
            (False, True),
            False,
            (Effect(), Effect(-0.1)),
        ),
    ),
    (Constraint.parse("micro_batch * world <= 8"),),
    (("world", 4), ("data_parallel", 4)),
)


def test_a_space_knows_its_reference_and_its_size() -> None:
    assert SPACE.reference == {"mbs": 1, "sdpa": False}
    assert SPACE.size() == 6
    assert SPACE.dimension("sdpa").effect(True).log_time == -0.1


@pytest.mark.parametrize(
    ("point", "valid"),
    [
        ({"mbs": 1, "sdpa": False}, True),
        ({"mbs": 2, "sdpa": True}, True),
        ({"mbs": 4, "sdpa": True}, False),  # 4 * 4 > 8
        ({"mbs": 3, "sdpa": True}, False),
        ({"mbs": 1}, False),
    ],
)
def test_valid_points_have_known_values_and_keep_the_constraints(
    point: dict[str, Any], valid: bool
) -> None:
    assert SPACE.is_valid(point) is valid


def test_a_points_key_does_not_depend_on_order() -> None:
    assert point_key({"b": 1, "a": 2}) == point_key({"a": 2, "b": 1})


@pytest.mark.parametrize("kind", [UserError, ExternalError])
def test_errors_keep_their_parts_on_the_way_between_processes(kind: type[UserError]) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(kind("what", where="a:1", fix="do")))
    assert (type(again), again.what, again.where, again.fix) == (kind, "what", "a:1", "do")
