"""The stack of a job is told from what owns its training loop, with the place that shows it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import TRAIN

from infrarsi.draft.sources import read as read_sources
from infrarsi.draft.stack import Stack, recognise
from infrarsi.draft.target import import_path, locate
from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
LINES = TRAIN.count("\n")


def stack_of(root: Path) -> Stack:
    target = locate(root / "train.sh", entry=None, command=None, environ={})
    return recognise(target, read_sources(target.root, target.entry, import_path(target)))


@pytest.mark.parametrize(
    ("launch", "code", "name", "chain", "line"),
    [
        ("python train.py", "", "native-ddp", (), 2),
        ("torchrun train.py", "from torch.nn.parallel import DistributedDataParallel as DDP\n"
         "DDP(None)\n", "native-ddp", (), LINES + 2),
        ("accelerate launch train.py", "", "native-ddp", (), 2),
        ("deepspeed train.py", "", "native-ddp", (), 2),
        ("deepspeed train.py", "import deepspeed\ndeepspeed.initialize()\n", "deepspeed",
         ("deepspeed",), LINES + 2),
        ("torchrun train.py --deepspeed ds.json", "import deepspeed\n", "deepspeed",
         ("deepspeed",), LINES + 1),
        ("torchrun train.py", "from megatron.core import parallel_state\n", "megatron",
         ("megatron",), LINES + 1),
        ("torchrun train.py", "import torchtitan\n", "torchtitan", ("torchtitan",), LINES + 1),
        ("torchrun train.py", "from torch.distributed.fsdp import fully_shard\nfully_shard(1)\n",
         "torchtitan", (), LINES + 2),
        ("torchrun train.py", "from transformers import Trainer\n", "hf-trainer",
         ("hf-trainer", "accelerate"), LINES + 1),
        ("torchrun train.py", "import transformers\nclass Own(transformers.Trainer):\n    pass\n",
         "hf-trainer", ("hf-trainer", "accelerate"), LINES + 2),
        ("torchrun train.py", "from trl import SFTConfig, SFTTrainer\n", "hf-trainer",
         ("trl", "hf-trainer", "accelerate"), LINES + 1),
        ("accelerate launch train.py", "from accelerate import Accelerator\n", "hf-trainer",
         ("accelerate", "hf-trainer"), LINES + 1),
        ("python train.py", "from llamafactory.train.tuner import run_exp\n", "hf-trainer",
         ("llama-factory", "hf-trainer", "accelerate"), LINES + 1),
        ("python train.py", "import axolotl\n", "hf-trainer",
         ("axolotl", "hf-trainer", "accelerate"), LINES + 1),
    ],
)  # fmt: skip
def test_a_stack_is_told_with_its_place(
    write: Make, launch: str, code: str, name: str, chain: tuple[str, ...], line: int
) -> None:
    found = stack_of(write({"train.sh": launch + "\n", "train.py": TRAIN + code}))
    assert (found.name, found.dialects) == (name, chain)
    assert found.place == f"train.py:{line}"


@pytest.mark.parametrize(
    ("launch", "code", "chain", "beside"),
    [
        ("torchrun train.py --deepspeed zero3.json", "from transformers import Trainer\n",
         ("hf-trainer", "deepspeed", "accelerate"), "`--deepspeed` (train.sh:1)"),
        ("deepspeed train.py", "from trl import SFTTrainer\n",
         ("trl", "deepspeed", "hf-trainer", "accelerate"), "the launcher `deepspeed` (train.sh:1)"),
        ("accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py",
         "from accelerate import Accelerator\n", ("accelerate", "deepspeed", "hf-trainer"),
         "`--use_deepspeed` (train.sh:1)"),
        ("accelerate launch train.py",
         "from accelerate import Accelerator\nimport deepspeed\ndeepspeed.initialize()\n",
         ("accelerate", "deepspeed", "hf-trainer"), f"`import deepspeed` (train.py:{LINES + 2})"),
    ],
)  # fmt: skip
def test_deepspeed_under_a_trainer_is_one_more_dialect_of_it(
    write: Make, launch: str, code: str, chain: tuple[str, ...], beside: str
) -> None:
    found = stack_of(write({"train.sh": launch + "\n", "train.py": TRAIN + code}))
    assert (found.name, found.dialects) == ("hf-trainer", chain)
    assert beside in found.told


def test_a_checkout_of_megatron_is_known_by_its_own_files(write: Make) -> None:
    found = stack_of(
        write(
            {
                "train.sh": "torchrun pretrain.py --num-layers 2\n",
                "pretrain.py": "import torch\nfrom megatron.training import pretrain\n",
                "megatron/training/__init__.py": "from .arguments import parse_args\n",
                "megatron/training/arguments.py": "def parse_args():\n    pass\n",
            }
        )
    )
    assert (found.name, found.place) == ("megatron", "megatron/training/__init__.py:1")


def test_megatron_with_deepspeeds_engine_is_deepspeed_in_two_dialects(write: Make) -> None:
    code = "import deepspeed\nfrom megatron.core import mpu\ndeepspeed.initialize()\n"
    launch = "deepspeed train.py --deepspeed --deepspeed_config ds.json\n"
    found = stack_of(write({"train.sh": launch, "train.py": TRAIN + code}))
    assert (found.name, found.dialects) == ("deepspeed", ("megatron", "deepspeed"))


def test_a_trainer_of_the_jobs_own_is_no_sign(write: Make) -> None:
    code = "class Trainer:\n    pass\n\n\nTrainer()\n"
    assert stack_of(write({"train.sh": "python train.py\n", "train.py": TRAIN + code})).name == (
        "native-ddp"
    )


def test_a_module_of_the_jobs_own_named_like_a_stack_is_no_sign(write: Make) -> None:
    files = {"train.sh": "python train.py\n", "train.py": TRAIN + "import trl\n", "trl.py": "x=1\n"}
    assert stack_of(write(files)).name == "native-ddp"


@pytest.mark.parametrize("module", ["lightning", "jax", "colossalai"])
def test_a_framework_that_is_not_understood(write: Make, module: str) -> None:
    text = TRAIN.replace("loss.sum().backward()", "step()") + f"import {module}\n"
    root = write({"train.sh": "python train.py\n", "train.py": text})
    with pytest.raises(UserError, match="are understood"):
        stack_of(root)


@pytest.mark.parametrize("module", ["jax", "tensorflow"])
def test_a_torch_job_may_import_what_reads_its_data(write: Make, module: str) -> None:
    root = write({"train.sh": "python train.py\n", "train.py": TRAIN + f"import {module}\n"})
    assert stack_of(root).name == "native-ddp"
