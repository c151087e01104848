"""Where the stacks write is redirected: folders, trackers, hubs; what cannot be moved stops."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import stack_jobs
from reading_jobs import read

from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]


def sinks(root: Path, script: str = "train.sh") -> dict[str, str]:
    return dict(read(root / script, gpus=8).project.sinks)


def changed(files: Mapping[str, str], path: str, old: str, new: str) -> dict[str, str]:
    assert old in files[path]
    return {**files, path: files[path].replace(old, new)}


@pytest.mark.parametrize(
    ("files", "script", "expected"),
    [
        (stack_jobs.MEGATRON, "train.sh",
         {"flag:--save": "fresh", "env:WANDB_MODE": "offline", "env:WANDB_DIR": "fresh"}),
        (stack_jobs.TRAINER, "train.sh",
         {"flag:--output_dir": "fresh", "env:WANDB_MODE": "offline", "env:WANDB_DIR": "fresh"}),
        (stack_jobs.TORCHTITAN, "run.sh", {"flag:--job.dump_folder": "fresh"}),
        (stack_jobs.DEEPSPEED, "train.sh",
         {"flag:--out": "fresh", "config:ds.json:tensorboard.output_path": "fresh"}),
        (stack_jobs.AXOLOTL, "train.sh",
         {"config:config.yaml:output_dir": "fresh", "env:WANDB_MODE": "offline",
          "env:WANDB_DIR": "fresh"}),
        (stack_jobs.FACTORY, "train.sh", {"config:sft.yaml:output_dir": "fresh"}),
    ],
    ids=["megatron", "trainer", "torchtitan", "deepspeed", "axolotl", "factory"],
)  # fmt: skip
def test_every_place_of_a_stack_is_redirected(
    write: Make, files: Mapping[str, str], script: str, expected: Mapping[str, str]
) -> None:
    assert sinks(write(files), script) == expected


@pytest.mark.parametrize(
    ("report", "variables"),
    [
        ("--report_to none", set()),
        ("--report_to tensorboard", set()),
        ("--report_to mlflow", {"env:MLFLOW_TRACKING_URI"}),
        ("--report_to clearml", {"env:CLEARML_OFFLINE_MODE"}),
        ("--report_to comet_ml", {"env:COMET_MODE", "env:COMET_OFFLINE_DIRECTORY"}),
    ],
)
def test_a_tracker_that_is_reported_to_is_taken_offline(
    write: Make, report: str, variables: set[str]
) -> None:
    files = changed(stack_jobs.TRAINER, "train.sh", "--report_to wandb", report)
    assert {place for place in sinks(write(files)) if place.startswith("env:")} == variables


def test_a_default_that_differs_between_versions_takes_all_trackers_offline(write: Make) -> None:
    files = changed(stack_jobs.TRAINER, "train.sh", "--report_to wandb", "")
    found = sinks(write(files))
    assert {"env:WANDB_MODE", "env:MLFLOW_TRACKING_URI", "env:CLEARML_OFFLINE_MODE"} <= set(found)


@pytest.mark.parametrize(
    ("files", "path", "old", "new", "words"),
    [
        (stack_jobs.TRAINER, "train.sh", "--report_to wandb", "--report_to azure_ml",
         "it reports to 'azure_ml'"),
        (stack_jobs.TRAINER, "train.sh", "--report_to wandb",
         "--report_to none --resume_from_checkpoint True", "newest checkpoint of the output"),
        (stack_jobs.AXOLOTL, "config.yaml", "wandb_project: tune", "hub_model_id: me/model",
         "uploads to a model hub"),
        (stack_jobs.FACTORY, "sft.yaml", "report_to: none", "report_to: none\npush_to_hub: true",
         "uploads to a model hub"),
        (stack_jobs.TRAINER, "train.py", "if args.push_to_hub:", "if True:",
         "it uploads to a model hub"),
        (stack_jobs.TRAINER, "train.py", "if args.push_to_hub:",
         "if args.push_to_hub or args.do_train:", "it uploads to a model hub"),
    ],
    ids=["tracker", "resume", "hub-id", "hub-file", "no-guard", "either-guard"],
)  # fmt: skip
def test_what_cannot_be_redirected_stops_before_the_first_run(
    write: Make, files: Mapping[str, str], path: str, old: str, new: str, words: str
) -> None:
    root = write(changed(files, path, old, new))
    with pytest.raises(UserError, match=words) as caught:
        sinks(root)
    assert caught.value.where
    assert caught.value.fix


def test_a_push_behind_a_flag_is_switched_off(write: Make) -> None:
    files = changed(stack_jobs.TRAINER, "train.sh", "--bf16", "--push_to_hub True --bf16")
    assert sinks(write(files))["flag:--push_to_hub"] == "false"


def test_the_output_folder_in_the_code_is_a_sink(write: Make) -> None:
    code = stack_jobs.TRAINER["train.py"].replace(
        "parser = HfArgumentParser(TrainingArguments)\n"
        "(args,) = parser.parse_args_into_dataclasses()\n",
        'args = TrainingArguments(output_dir="results", report_to="none", max_steps=50)\n',
    )
    files = {"train.sh": "python train.py\n", "train.py": code.split("if args")[0]}
    assert sinks(write(files)) == {"path:results": "fresh"}


def test_what_a_job_starts_from_stays_and_is_told(write: Make) -> None:
    draft = read(write(stack_jobs.MEGATRON) / "train.sh", gpus=8)
    assert "flag:--load" not in draft.project.sinks
    assert any("--load ckpt: every run starts from there" in note for note in draft.notes)
