"""Manners of public jobs in which a value is named, but is not what the job has."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.errors import UserError

Write = Callable[[Mapping[str, str]], Path]
TRAIN = """import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--amp-dtype", default="float16")
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()
torch.distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(args.steps):
    with AUTOCAST:
        loss = model(torch.zeros(args.batch_size, 2)).sum()
    loss.backward()
    optimizer.step()
"""
ENABLED = 'torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.bf16)'


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def drawn(write: Write, launch: str, autocast: str = "torch.enable_grad()") -> Draft:
    root = write({"train.sh": launch + "\n", "train.py": TRAIN.replace("AUTOCAST", autocast)})
    return read(root / "train.sh", gpus=8)


@pytest.mark.parametrize(
    ("autocast", "flags", "precision"),
    [
        (ENABLED, "", None),
        (ENABLED, "--bf16", "bf16"),
        ("torch.autocast('cuda', torch.bfloat16, enabled=False)", "", None),
        ("torch.autocast('cuda', torch.bfloat16, enabled=is_low())", "--bf16", None),
        ("torch.cuda.amp.autocast(enabled=args.amp)", "--amp", "fp16"),
        ("torch.cuda.amp.autocast(enabled=args.amp)", "", None),
        ("amp(args.amp_dtype)", "", None),
        ("amp(args.amp_dtype)", "--amp --amp-dtype bfloat16", "bf16"),
    ],
)
def test_a_precision_that_is_switched_off_is_not_told(
    write: Write, autocast: str, flags: str, precision: str | None
) -> None:
    found = drawn(write, f"torchrun --nproc_per_node 2 train.py {flags}", autocast)
    assert facts(found).get("precision") == precision


@pytest.mark.parametrize(
    ("launch", "processes"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=gpu train.py", 2),
        ("export CUDA_VISIBLE_DEVICES='4,5,6'\ntorchrun --nproc-per-node auto train.py", 3),
        ('G=0,1,2,3\nCUDA_VISIBLE_DEVICES="$G" torchrun --nproc_per_node=gpu train.py', 4),
    ],
)
def test_one_process_a_gpu_is_one_for_each_that_the_script_leaves_visible(
    write: Write, launch: str, processes: int
) -> None:
    found = drawn(write, launch)
    assert facts(found)["processes"] == processes
    assert found.project.launch.gpus_per_node == processes


def test_where_deepspeed_offloads_to_is_no_device_of_the_job(write: Write) -> None:
    offload = {"device": "cpu", "pin_memory": True}
    table = {
        "train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 3, "offload_optimizer": offload},
    }
    program = (
        "import argparse\nimport deepspeed\nimport torch\n"
        "parser = argparse.ArgumentParser()\n"
        "parser = deepspeed.add_config_arguments(parser)\n"
        "args = parser.parse_args()\nmodel = torch.nn.Linear(2, 2)\n"
        "engine, *_ = deepspeed.initialize(args=args, model=model)\n"
        "for _ in range(100):\n    engine.backward(engine(torch.zeros(2)).sum())\n"
        "    engine.step()\n"
    )
    launch = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"
    root = write({"train.sh": launch, "train.py": program, "ds.json": json.dumps(table)})
    assert read(root / "train.sh", gpus=8).project.launch.gpus_per_node == 8


def test_megatron_with_deepspeeds_file_is_deepspeeds(write: Write) -> None:
    program = (
        "import torch\nimport deepspeed\nfrom megatron.training import pretrain\n"
        "pretrain(None, None, None)\n"
    )
    launch = (
        "deepspeed --num_gpus 8 pretrain_gpt.py --micro-batch-size 4 --global-batch-size 32 "
        "--seq-length 128 --train-iters 500 --bf16 --zero-stage=1 --deepspeed "
        "--deepspeed_config=ds.json\n"
    )
    table = {"train_batch_size": 32, "zero_optimization": {"stage": 1}}
    files = {"train.sh": launch, "pretrain_gpt.py": program, "ds.json": json.dumps(table)}
    found = read(write(files) / "train.sh", gpus=8)
    assert found.project.stack == "deepspeed"
    assert {k.family: k.reference for k in found.project.knobs}["zero_stage"] == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from detectron2.engine import DefaultTrainer", "Detectron2"),
        ("import torchtune", "torchtune"),
        ("from nemo.collections import nlp", "NeMo"),
    ],
)
def test_a_framework_with_a_loop_of_its_own_is_named(write: Write, line: str, name: str) -> None:
    program = TRAIN.replace("AUTOCAST", "torch.enable_grad()")
    root = write({"train.sh": "python train.py\n", "train.py": f"{line}\n{program}"})
    with pytest.raises(UserError, match=f"this job uses {name}"):
        read(root / "train.sh")


def test_parts_of_such_a_framework_are_no_loop(write: Write) -> None:
    program = "from detectron2.structures import Boxes\n" + TRAIN.replace(
        "AUTOCAST", "torch.enable_grad()"
    )
    root = write({"train.sh": "python train.py\n", "train.py": program})
    assert read(root / "train.sh").project.stack == "native-ddp"
