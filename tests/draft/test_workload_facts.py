"""What an update of each stack's job consumes, and where that was read."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import stack_jobs
from reading_jobs import read

from infrarsi.draft import Draft

Make = Callable[[Mapping[str, str]], Path]


@pytest.mark.parametrize(
    ("files", "script", "facts"),
    [
        (stack_jobs.MEGATRON, "train.sh",
         {"sequence_length": 4096, "micro_batch": 1, "global_batch": 128, "data_parallel": 4,
          "tokens_per_update": 128 * 4096, "precision": "bf16"}),
        (stack_jobs.TRAINER, "train.sh",
         {"micro_batch": 4, "accumulation": 8, "global_batch": 256, "data_parallel": 8,
          "precision": "bf16", "optimizer": "adamw_torch"}),
        (stack_jobs.TORCHTITAN, "run.sh",
         {"sequence_length": 8192, "micro_batch": 2, "global_batch": 8, "data_parallel": 4,
          "tokens_per_update": 8 * 8192}),
        (stack_jobs.DEEPSPEED, "train.sh",
         {"micro_batch": 2, "accumulation": 4, "global_batch": 32, "precision": "bf16",
          "optimizer": "AdamW"}),
        (stack_jobs.AXOLOTL, "train.sh",
         {"sequence_length": 2048, "micro_batch": 2, "accumulation": 4, "global_batch": 16,
          "precision": "bf16", "optimizer": "adamw_torch"}),
        (stack_jobs.FACTORY, "train.sh",
         {"sequence_length": 1024, "micro_batch": 1, "accumulation": 8, "global_batch": 16,
          "precision": "bf16"}),
    ],
    ids=["megatron", "trainer", "torchtitan", "deepspeed", "axolotl", "factory"],
)  # fmt: skip
def test_the_facts_of_an_update(
    write: Make, files: Mapping[str, str], script: str, facts: Mapping[str, object]
) -> None:
    draft = read(write(files) / script, cpus=16, gpus=8)
    found = {fact.name: fact.value for fact in draft.facts}
    assert {name: found.get(name) for name in facts} == facts
    assert all(fact.told for fact in draft.facts)


def without(text: str, *parts: str) -> dict[str, str]:
    files = dict(stack_jobs.TRAINER)
    for part in parts:
        assert part in files["train.sh"]
        files["train.sh"] = files["train.sh"].replace(part, text)
    return files


def samples(draft: Draft) -> int | None:
    return draft.project.workload.samples_per_update


def test_a_default_of_the_library_counts_where_it_is_the_same_in_all_versions(write: Make) -> None:
    files = without("", "--gradient_accumulation_steps 8")
    assert samples(read(write(files) / "train.sh", gpus=8)) == 4 * 8


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--gradient_accumulation_steps 8", "--gradient_accumulation_steps $(cat steps)"),
        ("--per_device_train_batch_size 4", "--per_device_train_batch_size $(cat size)"),
        ("--nproc_per_node 8", "--nproc_per_node $(nvidia-smi -L | wc -l)"),
    ],
)
def test_a_part_that_cannot_be_read_leaves_the_whole_unknown(
    write: Make, old: str, new: str
) -> None:
    assert samples(read(write(without(new, old)) / "train.sh", gpus=8)) is None


def test_tokens_are_not_known_where_samples_differ_in_length(write: Make) -> None:
    assert read(write(stack_jobs.AXOLOTL) / "train.sh").project.workload.tokens_per_update is None
    files = dict(stack_jobs.MEGATRON)
    files["train.sh"] = files["train.sh"].replace("--bf16", "--bf16 --variable-seq-lengths")
    draft = read(write(files) / "train.sh", gpus=8)
    assert (draft.project.workload.tokens_per_update, samples(draft)) == (None, 128)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (stack_jobs.MIXTURE, "8 experts: train.sh:9 passes --num-experts 8"),
        (stack_jobs.MEGATRON, "dense: nothing shows experts"),
        (stack_jobs.AXOLOTL, "experts: config.yaml:1 passes config.yaml:base_model mistralai/Mix"),
        (stack_jobs.FACTORY, "dense: nothing shows experts"),
    ],
    ids=["mixture", "megatron", "axolotl", "factory"],
)
def test_experts_are_told_with_what_shows_them(
    write: Make, files: Mapping[str, str], told: str
) -> None:
    assert told in read(write(files) / "train.sh", gpus=8).comments["stack",]


@pytest.mark.parametrize(
    ("files", "flag"),
    [
        (stack_jobs.MEGATRON, "--rampup-batch-size 32 32 1000"),
        (stack_jobs.TRAINER, "--auto_find_batch_size True"),
    ],
    ids=["rampup", "found"],
)
def test_a_batch_that_changes_while_the_job_runs_is_neither_said_nor_split(
    write: Make, files: Mapping[str, str], flag: str
) -> None:
    bf16 = "--bf16 True" if "--bf16 True" in files["train.sh"] else "--bf16"
    changed = {**files, "train.sh": files["train.sh"].replace(bf16, f"{bf16} {flag}")}
    draft = read(write(changed) / "train.sh", gpus=8)
    assert samples(draft) is None
    assert "micro_batch" not in {knob.family for knob in draft.project.knobs}
    assert any("changes the batch while the job runs" in note for note in draft.notes)
