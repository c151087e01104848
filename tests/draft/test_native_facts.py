"""What an update of a program with its own loop consumes, and what is not told of it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft

Make = Callable[[Mapping[str, str]], Path]

HEAD = """import argparse
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
"""
LOOP = """
model = DDP(torch.nn.Linear(2, 2).to("cuda"))
loss = model(torch.zeros(1, 2)).sum()
loss.backward()
"""


def program(flags: str, code: str) -> str:
    return f"{HEAD}{flags}args = parser.parse_args()\n{code}{LOOP}"


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def drafted(write: Make, text: str, passed: str = "", launcher: str = "") -> Draft:
    launcher = launcher or "torchrun --nproc_per_node 4"
    files = {"run.sh": f"{launcher} main.py {passed}\n", "main.py": text}
    return read(write(files) / "run.sh", cpus=16, gpus=8)


PER_PROCESS = 'parser.add_argument("--batch-size", type=int, default=32)\n'
EPOCHS = 'parser.add_argument("--epochs", type=int, default=90)\n'
OPTIM = "opt = torch.optim.AdamW([torch.zeros(1)])\n"


@pytest.mark.parametrize(
    ("text", "passed", "expected"),
    [
        (program(PER_PROCESS + EPOCHS, OPTIM), "--batch-size 64",
         {"micro_batch": 64, "accumulation": 1, "global_batch": 256, "epochs": 90,
          "precision": "fp32", "optimizer": "AdamW"}),
        (program('parser.add_argument("--batch_size", type=int, default=8)\n'
                 'parser.add_argument("--update_freq", type=int, default=1)\n', OPTIM),
         "--update_freq 4",
         {"micro_batch": 8, "accumulation": 4, "global_batch": 128}),
        (program('parser.add_argument("--global-batch-size", type=int, default=256)\n',
                 "each = int(args.global_batch_size // torch.distributed.get_world_size())\n"),
         "", {"global_batch": 256, "micro_batch": 64, "accumulation": 1}),
        (program('parser.add_argument("--batch-size", type=int, default=64)\n'
                 'parser.add_argument("--grad-accum", type=int, default=8)\n',
                 "world = torch.distributed.get_world_size()\n"
                 "args.grad_accum //= world\n"),
         "", {"micro_batch": 64, "accumulation": 2, "global_batch": 512}),
        (program('parser.add_argument("--batch-size", type=int, default=64)\n',
                 "args.batch_size = int(args.batch_size / torch.cuda.device_count())\n"),
         "", {"micro_batch": None, "global_batch": None}),
        (program(PER_PROCESS, "accumulate = 4\n"), "",
         {"micro_batch": 32, "accumulation": None, "global_batch": None}),
        (program('parser.add_argument("--total_batch_size", type=int, default=4096,\n'
                 '                    help="of an update, in tokens")\n' + PER_PROCESS, OPTIM),
         "", {"tokens_per_update": 4096, "global_batch": None, "micro_batch": 32}),
        (program('parser.add_argument("--train_batch_size", type=int, default=2)\n', OPTIM),
         "", {"micro_batch": 2, "global_batch": 8}),
        (program('parser.add_argument("--opt", default="lamb")\n',
                 "a = torch.optim.SGD\nb = torch.optim.SGD([1])\nc = torch.optim.AdamW([1])\n"),
         "", {"optimizer": "lamb"}),
        (program("", "b = torch.optim.SGD([1])\nc = torch.optim.AdamW([1])\n"),
         "", {"optimizer": None}),
        (program("", "with torch.cuda.amp.autocast():\n    pass\n"), "", {"precision": "fp16"}),
        (program('parser.add_argument("--amp", action="store_true")\n',
                 "with torch.cuda.amp.autocast(enabled=args.amp):\n    pass\n"),
         "", {"precision": None}),
        (program('parser.add_argument("--dtype", default="float32")\n', ""),
         "--dtype bfloat16", {"precision": "bf16"}),
    ],
    ids=["a process's batch", "accumulation", "the whole divided", "accumulation divided",
         "a batch that is divided", "accumulation without a flag", "in tokens",
         "train_batch_size", "named optimizer", "several optimizers", "autocast of old",
         "autocast behind a flag", "dtype"],
)  # fmt: skip
def test_the_facts_of_a_loop_of_its_own(
    write: Make, text: str, passed: str, expected: Mapping[str, object]
) -> None:
    found = facts(drafted(write, text, passed))
    assert {name: found.get(name) for name in expected} == expected


def test_a_program_that_starts_its_own_ranks_has_an_unknown_number_of_them(write: Make) -> None:
    text = program("", "import torch.multiprocessing as mp\nmp.spawn(print, nprocs=8)\n")
    draft = drafted(write, text, launcher="python")
    assert "data_parallel" not in facts(draft)
    assert draft.project.launch.gpus_per_node == 8
    assert any("starts by itself (main.py:" in text for text in draft.unknowns)


def test_what_a_library_only_offers_is_no_other_stack(write: Make) -> None:
    root = write({
        "run.sh": "python main.py\n",
        "main.py": program("", "import extra\n"),
        "extra.py": "def to_jax():\n    import jax\n\ntry:\n    import lightning\n"
                    "except ImportError:\n    lightning = None\n",
    })  # fmt: skip
    assert read(root / "run.sh", gpus=1).project.stack == "native-ddp"


SAME_NAME = """from dataclasses import dataclass, field

import torch
import transformers
{more}

@dataclass
class TrainingArguments({base}):
    model_max_length: int = field(default=512)
    optim: str = field(default="adamw_torch")


parser = transformers.HfArgumentParser((TrainingArguments,))
(args,) = parser.parse_args_into_dataclasses()
trainer = transformers.Trainer(args=args)
trainer.train()
"""


@pytest.mark.parametrize(
    ("base", "more"),
    [
        ("transformers.TrainingArguments", ""),
        ("Base", "from transformers import TrainingArguments as Base"),
    ],
)
def test_a_class_with_the_name_of_the_library_s_that_it_extends(
    write: Make, base: str, more: str
) -> None:
    text = SAME_NAME.format(base=base, more=more)
    passed = (
        "--bf16 True --output_dir out --per_device_train_batch_size 4 --num_train_epochs 3 "
        "--gradient_accumulation_steps 8"
    )
    found = facts(drafted(write, text, passed))
    expected = {"micro_batch": 4, "accumulation": 8, "global_batch": 128, "precision": "bf16",
                "sequence_length": 512, "optimizer": "adamw_torch", "epochs": 3}  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
