"""Each stack's own settings become knobs of their families, and what it understands is offered."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import stack_jobs
from reading_jobs import read

from infrarsi.contract import Constraint, Knob
from infrarsi.contract.files import dump, parse
from infrarsi.draft import Draft
from infrarsi.draft.versions import Versions

Make = Callable[[Mapping[str, str]], Path]
JOBS = {
    "megatron": (stack_jobs.MEGATRON, "train.sh", "megatron"),
    "mixture": (stack_jobs.MIXTURE, "train.sh", "megatron"),
    "trainer": (stack_jobs.TRAINER, "train.sh", "hf-trainer"),
    "torchtitan": (stack_jobs.TORCHTITAN, "run.sh", "torchtitan"),
    "deepspeed": (stack_jobs.DEEPSPEED, "train.sh", "deepspeed"),
    "axolotl": (stack_jobs.AXOLOTL, "train.sh", "hf-trainer"),
    "factory": (stack_jobs.FACTORY, "train.sh", "hf-trainer"),
}


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Draft]:
    """The draft of every job, made once."""
    found = {}
    for name, (files, script, _) in JOBS.items():
        root = tmp_path_factory.mktemp(name) / "project"
        root.mkdir()
        for path, text in files.items():
            (root / path).write_text(text)
        found[name] = read(root / script, cpus=64, gpus=8)
    return found


def knobs(draft: Draft) -> dict[str, Knob]:
    return {knob.family: knob for knob in draft.project.knobs}


def sets(knob: Knob, value: Any) -> dict[str, Any]:
    assert isinstance(knob.values, dict)
    return dict(knob.values[value].set)


@pytest.mark.parametrize("name", JOBS)
def test_every_draft_of_a_stack_is_a_file_that_loads(drafts: dict[str, Draft], name: str) -> None:
    draft = drafts[name]
    assert draft.project.stack == JOBS[name][2]
    text = dump(draft.project, draft.comments)
    assert parse(text, draft.path).project == draft.project
    assert {("knobs", knob.name) for knob in draft.project.knobs} <= set(draft.comments)


@pytest.mark.parametrize("name", JOBS)
def test_the_job_as_it_is_keeps_every_constraint(drafts: dict[str, Draft], name: str) -> None:
    draft = drafts[name]
    today: dict[str, Any] = {knob.family: knob.reference for knob in draft.project.knobs}
    for text in draft.project.constraints:
        constraint = Constraint.parse(text)
        assert constraint.names <= today.keys(), text
        assert constraint.holds(today), text


@pytest.mark.parametrize(
    ("name", "family", "reference", "value", "changes"),
    [
        ("megatron", "micro_batch", 1, 4, {"flag:--micro-batch-size": 4}),
        ("megatron", "activation_recompute", "full", "selective",
         {"flag:--recompute-granularity": "selective"}),
        ("megatron", "overlap_grad_reduce", False, True, {"flag:--overlap-grad-reduce": True}),
        ("megatron", "dataloader_workers", 2, 4, {"flag:--num-workers": 4}),
        ("trainer", "micro_batch", 4, 8,
         {"flag:--per_device_train_batch_size": 8, "flag:--gradient_accumulation_steps": 4}),
        ("trainer", "activation_recompute", "full", "none",
         {"flag:--gradient_checkpointing": "false"}),
        ("trainer", "optimizer_impl", "foreach", "fused", {"flag:--optim": "adamw_torch_fused"}),
        ("trainer", "dataloader_workers", 0, 4, {"flag:--dataloader_num_workers": 4}),
        ("trainer", "zero_stage", 2, 1, {"config:ds.json:zero_optimization.stage": 1}),
        ("torchtitan", "micro_batch", 2, 1,
         {"flag:--training.local_batch_size": 1, "flag:--training.global_batch_size": 8}),
        ("torchtitan", "activation_recompute", "full", "none",
         {"flag:--activation_checkpoint.mode": "none"}),
        ("torchtitan", "compile", "off", "regional", {"flag:--compile.enable": True}),
        ("deepspeed", "micro_batch", 2, 4,
         {"config:ds.json:train_micro_batch_size_per_gpu": 4,
          "config:ds.json:gradient_accumulation_steps": 2}),
        ("deepspeed", "zero_prefetch_bucket", 50000000, 200000000,
         {"config:ds.json:zero_optimization.stage3_prefetch_bucket_size": 200000000}),
        ("axolotl", "micro_batch", 2, 4,
         {"config:config.yaml:micro_batch_size": 4,
          "config:config.yaml:gradient_accumulation_steps": 2}),
        ("axolotl", "activation_recompute", "full", "none",
         {"config:config.yaml:gradient_checkpointing": False}),
        ("axolotl", "optimizer_impl", "foreach", "fused",
         {"config:config.yaml:optimizer": "adamw_torch_fused"}),
        ("factory", "activation_recompute", "full", "none",
         {"config:sft.yaml:disable_gradient_checkpointing": True}),
        ("factory", "dataloader_workers", 0, 2, {"config:sft.yaml:dataloader_num_workers": 2}),
    ],
)  # fmt: skip
def test_a_value_of_a_family_is_written_as_the_stack_writes_it(
    drafts: dict[str, Draft],
    name: str,
    family: str,
    reference: Any,
    value: Any,
    changes: dict[str, Any],
) -> None:
    knob = knobs(drafts[name])[family]
    assert knob.reference == reference
    assert sets(knob, value) == changes


def test_turning_recomputation_off_takes_all_three_flags_away(drafts: dict[str, Draft]) -> None:
    knob = knobs(drafts["megatron"])["activation_recompute"]
    assert isinstance(knob.values, dict)
    assert knob.values["none"].remove == [
        "flag:--recompute-granularity",
        "flag:--recompute-method",
        "flag:--recompute-num-layers",
    ]


@pytest.mark.parametrize("name", JOBS)
def test_nothing_that_changes_the_job_is_offered(drafts: dict[str, Draft], name: str) -> None:
    offered = set(knobs(drafts[name]))
    assert not offered & {
        "autocast_precision",
        "packing",
        "length_grouping",
        "fp8",
        "process_count",
    }


def test_variables_are_offered_where_they_do_something(drafts: dict[str, Draft]) -> None:
    assert {"allocator", "nccl_channels", "norm_sm_margin"} <= set(knobs(drafts["megatron"]))
    assert "norm_sm_margin" not in knobs(drafts["trainer"])
    assert "nccl_ib_qps" not in knobs(drafts["megatron"])  # one node only


def test_messages_of_ddp_are_no_knob_under_deepspeed(drafts: dict[str, Draft], write: Make) -> None:
    assert "ddp_bucket" not in knobs(drafts["trainer"])
    plain = {**stack_jobs.TRAINER}
    plain["train.sh"] = plain["train.sh"].replace(" --deepspeed ds.json", "")
    offered = knobs(read(write(plain) / "train.sh", cpus=64, gpus=8))
    assert offered["ddp_bucket"].reference == 25


def test_settings_of_experts_are_offered_only_with_experts(drafts: dict[str, Draft]) -> None:
    assert not any(family.startswith("moe_") for family in knobs(drafts["megatron"]))


@pytest.mark.parametrize(
    ("pin", "is_offered"),
    [("megatron-core==0.19.0", True), ("megatron-core==0.5.0", False), ("torch", False)],
)
def test_a_name_is_offered_only_to_a_version_that_knows_it(
    write: Make, pin: str, is_offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Versions, "_here", lambda self, package: None)  # it may be installed
    files = {**stack_jobs.MIXTURE, "requirements.txt": f"{pin}  # pinned\n"}
    offered = knobs(read(write(files) / "train.sh", cpus=64, gpus=8))
    assert ("moe_permute_fusion" in offered) is is_offered


def test_a_value_that_cannot_be_read_makes_no_knob_and_is_told(write: Make) -> None:
    files = {**stack_jobs.MEGATRON}
    files["train.sh"] = files["train.sh"].replace("--micro-batch-size 1", "--micro-batch-size $MB")
    files["train.sh"] = files["train.sh"].replace("--use-distributed-optimizer", "$EXTRA")
    draft = read(write(files) / "train.sh", cpus=64, gpus=8)
    assert "micro_batch" not in knobs(draft)
    assert draft.project.workload.samples_per_update == 128


def test_a_rule_that_needs_an_unknown_value_leaves_its_knob_out(write: Make) -> None:
    files = {**stack_jobs.MEGATRON}
    files["train.sh"] = files["train.sh"].replace(
        "--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP"
    )
    draft = read(write(files) / "train.sh", cpus=64, gpus=8)
    assert "tensor_parallel" not in knobs(draft)
    assert "tp_comm_overlap" not in knobs(draft)
    assert "micro_batch" not in knobs(draft)
    assert draft.project.workload.samples_per_update == 128


def test_on_a_cpu_nothing_of_gpus_is_offered(write: Make) -> None:
    draft = read(write(stack_jobs.TRAINER) / "train.sh", cpus=8, gpus=0)
    offered = set(knobs(draft))
    assert "activation_recompute" in offered
    assert not offered & {
        "allocator",
        "nccl_channels",
        "dataloader_pin_memory",
        "zero_overlap_comm",
    }
