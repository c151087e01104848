"""Arguments that a fork of Megatron-LM makes from the fields of its data classes."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft

Make = Callable[[Mapping[str, str]], Path]

ENTRY = "import torch\nfrom megatron.training import pretrain\n\npretrain()\n"
FACTORY = '''import dataclasses


class ArgumentGroupFactory:
    """One argument for each field."""

    def __init__(self, source, exclude=None):
        self.source, self.exclude = source, exclude or []

    def build_group(self, parser, title):
        group = parser.add_argument_group(title)
        for field in dataclasses.fields(self.source):
            names = ["--" + field.name.replace("_", "-")]
            group.add_argument(*names, default=field.default)
        return group
'''
CONFIGS = """from dataclasses import dataclass, field
from typing import Literal, Optional


@dataclass
class Sizes:
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1


@dataclass
class Shape(Sizes):
    num_layers: int = field(default=0, metadata={"argparse_meta": {"default": None}})
    num_attention_heads: int = 0
    epsilon: float = field(default=1e-5, metadata={"argparse_meta": {"arg_names": ["--norm-eps"]}})
    hidden_number: int = 3
    recompute_granularity: Optional[Literal["full", "selective"]] = None


@dataclass
class Loop:
    micro_batch_size: int | None = None
    global_batch_size: int | None = None
    rampup_batch_size: list[int] | None = field(
        default=None, metadata={"argparse_meta": {"nargs": 3}}
    )
    step_batch_size_schedule: str | None = None
    train_iters: int | None = None
    train_samples: int | None = None
    manual_gc: bool = False
    use_gloo: bool = True
    save: str | None = None
    load: str | None = None
"""
ARGUMENTS = """import argparse

from megatron.training.configs import Loop, Shape
from megatron.training.factory import ArgumentGroupFactory


def parse_args():
    parser = argparse.ArgumentParser()
    left_out = ["hidden_number"]
    ArgumentGroupFactory(Shape, exclude=left_out).build_group(parser, "shape")
    group = ArgumentGroupFactory(Loop).build_group(parser, "loop")
    group.add_argument("--bf16", action="store_true")
    group.add_argument("--fp16", action="store_true")
    group.add_argument("--seq-length", type=int, default=None)
    group.add_argument("--optimizer", type=str, default="adam")
    return parser.parse_args()
"""
TRAINING = """import torch

from megatron.training.arguments import parse_args


def pretrain():
    args = parse_args()
    optimizer = torch.optim.SGD([], lr=0.1) if args.optimizer == "sgd" else torch.optim.Adam([])
    state = torch.load(args.load)
    torch.save(state, args.save)
"""
FLAGS = (
    "--num-layers 32 --num-attention-heads 16 --seq-length 1024 --micro-batch-size 2 "
    "--global-batch-size 64 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
    "--bf16 --save ckpt --load ckpt"
)


def job(write: Make, more: str = "--train-iters 3000") -> Draft:
    root = write(
        {
            "train.sh": f"torchrun --nproc_per_node 8 pretrain_gpt.py {FLAGS} {more}\n",
            "pretrain_gpt.py": ENTRY,
            "megatron/__init__.py": "",
            "megatron/training/__init__.py": "from megatron.training.training import pretrain\n",
            "megatron/training/training.py": TRAINING,
            "megatron/training/arguments.py": ARGUMENTS,
            "megatron/training/factory.py": FACTORY,
            "megatron/training/configs.py": CONFIGS,
        }
    )
    return read(root / "train.sh", gpus=8)


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def test_the_fields_are_its_arguments(write: Make) -> None:
    draft = job(write)
    wanted = {"micro_batch": 2, "global_batch": 64, "sequence_length": 1024, "data_parallel": 2}
    wanted |= {"optimizer": "adam", "precision": "bf16"}
    found = facts(draft)
    assert {name: found.get(name) for name in wanted} == wanted
    assert draft.project.workload.planned_steps == 3000
    assert not [note for note in draft.notes if "no definition" in note]


def test_what_it_writes_and_its_sizes_are_in_the_contract(write: Make) -> None:
    draft = job(write)
    assert "flag:--save" in draft.project.sinks
    knobs = {knob.family: knob.reference for knob in draft.project.knobs}
    assert (knobs["tensor_parallel"], knobs["micro_batch"]) == (2, 2)
    assert knobs["activation_recompute"] == "none"


@pytest.mark.parametrize(
    ("flag", "is_defined"),
    [("--norm-eps 1e-6", True), ("--no-use-gloo", True), ("--disable-use-gloo", True),
     ("--manual-gc", True), ("--hidden-number 4", False), ("--epsilon 1", False)],
)  # fmt: skip
def test_metadata_switches_and_fields_left_out(write: Make, flag: str, is_defined: bool) -> None:
    draft = job(write, f"--train-iters 3000 {flag}")
    named = [note for note in draft.notes if f"`{flag.split()[0]}` is passed" in note]
    assert (not named) is is_defined


def test_a_schedule_of_the_batch_leaves_the_update_unknown(write: Make) -> None:
    draft = job(write, '--train-samples 6400000 --step-batch-size-schedule "0:16 1B:64"')
    assert draft.project.workload.samples_per_update is None
    assert any("number of optimizer steps" in unknown for unknown in draft.unknowns)


def test_samples_of_the_whole_job_give_its_steps(write: Make) -> None:
    assert job(write, "--train-samples 640000").project.workload.planned_steps == 10000
