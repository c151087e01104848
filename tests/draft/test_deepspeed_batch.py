"""The split of an update under DeepSpeed, from what its file says of batch sizes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.contract import Knob
from infrarsi.draft import Draft

Write = Callable[[Mapping[str, str]], Path]
MICRO, TIMES, WHOLE = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "train_batch_size",
)
TRAIN = """import argparse
import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--load-dir", default=None)
parser.add_argument("--save-dir", default="checkpoints")
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=[1, 2])
if args.load_dir:
    engine.load_checkpoint(args.load_dir)
engine.save_checkpoint(args.save_dir)
"""


def draft(write: Write, config: Mapping[str, object], train: str = TRAIN) -> Draft:
    """A job of four processes with that file."""
    launch = "deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config ds.json\n"
    files = {"train.sh": launch, "train.py": train, "ds.json": json.dumps(config)}
    return read(write(files) / "train.sh", cpus=8, gpus=4)


def micro_batch(found: Draft) -> Knob | None:
    return next((k for k in found.project.knobs if k.family == "micro_batch"), None)


@pytest.mark.parametrize(
    ("config", "micro", "share", "samples"),
    [
        ({WHOLE: 64, MICRO: 2, TIMES: 8}, 2, 16, 64),
        ({MICRO: 2, TIMES: 8}, 2, 16, 64),
        ({WHOLE: 64, MICRO: 2}, 2, 16, 64),
        ({WHOLE: 64, TIMES: 8}, 2, 16, 64),
        ({WHOLE: 64}, 16, 16, 64),
        ({MICRO: 2}, 2, 2, 8),
    ],
    ids=["all", "no whole", "no accumulation", "no micro batch", "whole", "micro batch"],
)
def test_whatever_is_left_out_the_update_stays(
    write: Write, config: dict[str, int], micro: int, share: int, samples: int
) -> None:
    found = draft(write, config)
    knob = micro_batch(found)
    assert knob is not None
    assert found.project.workload.samples_per_update == samples
    assert knob.reference == micro
    assert isinstance(knob.values, dict)
    for value, change in knob.values.items():
        set_to = {place.rpartition(":")[2]: number for place, number in change.set.items()}
        assert set_to == {MICRO: value, TIMES: share // int(value)}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({WHOLE: 60, MICRO: 2, TIMES: 8}, "make no update of 4 processes"),
        ({WHOLE: 2}, "make no update of 4 processes"),
        ({MICRO: 1}, "there is no other split"),
    ],
    ids=["they disagree", "fewer samples than processes", "one sample each"],
)
def test_numbers_that_make_no_other_split_are_said(
    write: Write, config: dict[str, int], said: str
) -> None:
    found = draft(write, config)
    assert micro_batch(found) is None
    assert any(said in note for note in found.notes)


def test_a_loader_of_its_own_closes_the_micro_batch(write: Write) -> None:
    found = draft(write, {WHOLE: 64, MICRO: 2}, TRAIN.replace(", training_data=[1, 2]", ""))
    assert micro_batch(found) is None
    assert any("own loader" in note for note in found.notes)


def test_the_flags_that_deepspeed_adds_are_known(write: Write) -> None:
    found = draft(write, {WHOLE: 64, MICRO: 2})
    assert not any("--deepspeed" in note for note in found.notes)


def test_an_engine_goes_on_from_the_folder_that_it_saved_into(write: Write) -> None:
    resume = draft(write, {WHOLE: 64}).project.verify.resume
    assert resume is not None
    assert resume.set == {"flag:--load-dir": "@CHECKPOINT@"}
    assert resume.checkpoint == "save-dir"


def test_a_fixed_folder_of_an_engine_is_a_sink(write: Write) -> None:
    fixed = TRAIN.replace("save_checkpoint(args.save_dir)", 'save_checkpoint("kept/run", tag="a")')
    found = draft(write, {WHOLE: 64}, fixed).project
    assert "path:kept" in found.sinks
    assert found.verify.resume is not None
    assert found.verify.resume.checkpoint == "path:kept/run"


def test_a_function_of_the_program_of_that_name_is_not_the_engines(write: Write) -> None:
    own = TRAIN.replace(
        "engine.save_checkpoint(args.save_dir)",
        "class Kept:\n    def save_checkpoint(self, model):\n        pass\n\n\n"
        "Kept().save_checkpoint(model)",
    )
    assert not any("save_checkpoint" in unknown for unknown in draft(write, {}, own).unknowns)
