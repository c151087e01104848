"""Jobs in the manner of TRL: a YAML file gives values of flags, and so says what the job does."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
PROGRAM = """import torch
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((SFTConfig, ModelConfig))
training_args, model_args = parser.parse_args_and_config()
trainer = SFTTrainer(model=model_args.model_name_or_path, args=training_args)
trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
"""
YAML = """model_name_or_path: some/model-1b
max_length: 512
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 200
output_dir: out
report_to: none
"""
FACTS = ("sequence_length", "micro_batch", "accumulation", "global_batch", "processes")


def job(write: Make, more: str = "", flags: str = "", program: str = PROGRAM) -> Draft:
    """The draft of a job on two GPUs with `more` lines in its file and `flags` behind it."""
    command = f"torchrun --nproc_per_node 2 sft.py --config sft.yaml {flags}\n"
    files = {"train.sh": command, "sft.py": program, "sft.yaml": YAML + more}
    return read(write(files) / "train.sh", gpus=2)


def facts(drafted: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in drafted.facts}


def families(drafted: Draft) -> dict[str, tuple[list[object], object]]:
    return {k.family: (list(k.values), k.reference) for k in drafted.project.knobs}


def test_the_file_says_what_an_update_is(write: Make) -> None:
    drafted = job(write)
    assert [facts(drafted)[name] for name in FACTS] == [512, 2, 4, 16, 2]
    assert drafted.project.workload.samples_per_update == 16
    assert drafted.project.workload.planned_steps == 200
    told = next(fact.told for fact in drafted.facts if fact.name == "micro_batch")
    assert told == "sft.yaml:3 passes --per_device_train_batch_size 2"


def test_its_own_flag_and_its_classes_are_no_riddle(write: Make) -> None:
    drafted = job(write)
    assert not any("--config" in note for note in drafted.notes)
    assert not any("ModelConfig" in unknown for unknown in drafted.unknowns)


def test_a_flag_of_the_command_comes_before_the_file(write: Make) -> None:
    drafted = job(write, flags="--per_device_train_batch_size 8")
    assert facts(drafted)["global_batch"] == 64


@pytest.mark.parametrize(
    ("more", "precision"),
    [("bf16: true\n", "bf16"), ("bf16: false\nfp16: false\n", "fp32"), ("", None)],
    ids=["bf16", "fp32", "a default that differs between versions"],
)
def test_the_precision_is_what_the_file_says(write: Make, more: str, precision: str | None) -> None:
    assert facts(job(write, more)).get("precision") == precision


def test_a_batch_that_changes_by_the_file_is_not_split(write: Make) -> None:
    drafted = job(write, "auto_find_batch_size: true\n")
    assert drafted.project.workload.samples_per_update is None
    assert "micro_batch" not in families(drafted)


def test_resuming_by_the_file_from_a_folder_that_is_fresh_stops(write: Make) -> None:
    with pytest.raises(UserError, match="goes on from the newest checkpoint") as caught:
        job(write, "resume_from_checkpoint: true\n")
    assert caught.value.where == "sft.yaml:8"


@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
def test_recomputation_is_the_one_that_the_job_writes(write: Make, name: str) -> None:
    drafted = job(write, f"{name}: true\n")
    (knob,) = [k for k in drafted.project.knobs if k.family == "activation_recompute"]
    assert knob.reference == "full"
    assert dict(knob.values)["none"].set == {f"flag:--{name}": "false"}  # type: ignore[call-overload]


def test_attention_written_out_is_offered_as_sdpa(write: Make) -> None:
    found = families(job(write, "attn_implementation: eager\n"))
    assert found["attention_backend"] == (["eager", "sdpa"], "eager")
    assert "attention_backend" not in families(job(write, "attn_implementation: sdpa\n"))
    assert "attention_backend" not in families(job(write))


def test_unused_parameters_are_offered_where_ddp_looks_for_them(write: Make) -> None:
    off = "gradient_checkpointing: false\n"
    assert families(job(write, off))["ddp_find_unused_parameters"] == ([True, False], True)
    assert "ddp_find_unused_parameters" not in families(job(write, off + "fsdp: full_shard\n"))
    assert "ddp_find_unused_parameters" not in families(job(write))  # versions of TRL differ


def test_a_class_of_another_library_is_not_taken_for_trls(write: Make) -> None:
    program = (
        "import torch\nfrom other import ModelConfig\n"
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
        "HfArgumentParser((ModelConfig, TrainingArguments)).parse_args_into_dataclasses()\n"
        "Trainer().train()\n"
    )
    drafted = job(write, program=program)
    assert any("`ModelConfig` are defined elsewhere" in text for text in drafted.unknowns)


def test_what_the_file_switches_on_is_switched_off_in_the_file(write: Make) -> None:
    program = (
        "import argparse\nimport torch\nimport yaml\n\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--config")\nparser.add_argument("--max-steps", type=int)\n'
        'parser.add_argument("--compile", action="store_true")\n'
        'parser.set_defaults(**yaml.safe_load(open("sft.yaml")))\nargs = parser.parse_args()\n'
        "loss = torch.compile(torch.zeros)(1)\nloss.backward()\n"
    )
    files = {
        "train.sh": "python sft.py --config sft.yaml\n",
        "sft.py": program,
        "sft.yaml": "max_steps: 200\ncompile: true\n",
    }
    (knob,) = [k for k in read(write(files) / "train.sh").project.knobs if k.family == "compile"]
    assert (knob.at, list(knob.values)) == ("config:sft.yaml:compile", [False, True])
