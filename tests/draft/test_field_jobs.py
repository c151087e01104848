"""What real jobs of large stacks do, one manner each, in small jobs of our own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import stack_jobs
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def megatron(write: Make, script: str, **files: str) -> Draft:
    root = write({**stack_jobs.MEGATRON, "train.sh": script, **files})
    return read(root / "train.sh", gpus=8)


BRANCHES = """#!/bin/bash
PRECISION=bf16
CHECKPOINT=none
AC=sel
if [ $PRECISION = fp16 ]; then
    half="--fp16"
elif [ $PRECISION = bf16 ]; then
    half="--bf16"
fi
if [ $CHECKPOINT != none ]; then
    load_option="--load $CHECKPOINT"
fi
if [ $AC = sel ]; then
    recompute="--recompute-activations"
fi
cmd="torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 16
 --seq-length 512 --train-iters 900 ${load_option} ${half} ${recompute}"
echo $cmd
eval $cmd
"""


def test_an_option_of_a_branch_not_taken_is_empty(write: Make) -> None:
    draft = megatron(write, BRANCHES)
    assert facts(draft)["precision"] == "bf16"
    assert not [unknown for unknown in draft.unknowns if "load_option" in unknown]
    assert "activation_recompute" not in {knob.family for knob in draft.project.knobs}


def test_no_precision_is_told_where_a_condition_decides_on_it(write: Make) -> None:
    draft = megatron(write, BRANCHES.replace("PRECISION=bf16", "PRECISION=$(cat precision)"))
    assert "precision" not in facts(draft)
    assert any("flags in it are not seen" in unknown for unknown in draft.unknowns), draft.unknowns


@pytest.mark.parametrize(
    "line", ["SAVE=<your folder>", "export SAVE=<folder>_new", "ARGS='' run --save <PATH TO SAVE>"]
)
def test_a_placeholder_is_named_with_its_line(write: Make, line: str) -> None:
    with pytest.raises(UserError, match="stands where a value must be") as error:
        megatron(write, f"#!/bin/bash\n{line}\ntorchrun --nproc_per_node 8 pretrain_gpt.py\n")
    assert error.value.where == "train.sh:2"


@pytest.mark.parametrize(
    "line",
    ["SAVE=$1 # <your folder>", 'echo "usage: $0 --save <a folder>"', "cat <a.txt >b.txt",
     "X=<(ls a)"],
)  # fmt: skip
def test_what_looks_like_one_is_none(write: Make, line: str) -> None:
    flags = "--micro-batch-size 1 --train-iters 900"
    megatron(write, f"{line}\ntorchrun --nproc_per_node 8 pretrain_gpt.py {flags}\n")


def test_where_a_script_ends_before_the_training_is_told(write: Make) -> None:
    script = """IMAGE=""
if [ -z "$IMAGE" ]; then
    echo "set IMAGE"
    exit 1
fi
srun --container-image=$IMAGE torchrun --nproc_per_node 8 pretrain_gpt.py
"""
    with pytest.raises(UserError, match="the script ends in line 4"):
        megatron(write, script)


ENGINE = """import argparse
import deepspeed
import torch
from megatron.training import get_batch

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch-size", type=int)
parser.add_argument("--global-batch-size", type=int)
parser.add_argument("--seq-length", type=int)
parser.add_argument("--train-iters", type=int)
parser.add_argument("--train-tokens", type=int)
parser.add_argument("--zero-stage", type=int, default=1.0)
parser.add_argument("--checkpoint-activations", action="store_true")
parser.add_argument("--recompute-granularity", type=str)
parser.add_argument("--use-distributed-optimizer", action="store_true")
parser.add_argument("--fp16", action="store_true")
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
engine, *_ = deepspeed.initialize(args=args, model=torch.nn.Linear(4, 4))
"""


def engine(write: Make, more: str) -> Draft:
    script = (
        "deepspeed --num_gpus 8 pretrain_gpt.py --micro-batch-size 2 --global-batch-size 64 "
        f"--seq-length 1024 --fp16 --deepspeed --deepspeed_config $CONFIG {more}\n"
    )
    return megatron(write, script, **{"pretrain_gpt.py": ENGINE})


def test_a_fork_for_deepspeed_shards_by_its_own_flag(write: Make) -> None:
    draft = engine(write, "--train-iters 900 --zero-stage 2 --checkpoint-activations")
    assert draft.project.stack == "deepspeed"
    families = {knob.family for knob in draft.project.knobs}
    assert not families & {"zero_stage", "activation_recompute"}


def test_tokens_end_a_job_before_its_iterations(write: Make) -> None:
    draft = engine(write, "--train-iters 500000 --train-tokens 65536000")
    assert draft.project.workload.planned_steps == 1000


def test_sizes_that_a_registry_makes_leave_the_layout_unknown(write: Make) -> None:
    root = write(
        {
            "run.sh": "torchrun --nproc_per_node=8 train.py --module small --config debug\n",
            "train.py": stack_jobs.TORCHTITAN["train.py"]
            + "with torch.autocast('cuda', dtype=torch.float32):\n    pass\n",
        }
    )
    draft = read(root / "run.sh", gpus=8)
    assert not {"data_parallel", "precision"} & facts(draft).keys()
