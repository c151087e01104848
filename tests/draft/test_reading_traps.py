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


NOT_RUN = "torchrun --nproc_per_node 2 train.py"
TRAINER = """import torch
from transformers import AutoModel, Trainer, TrainingArguments

ROWS = 4
args = TrainingArguments(
    output_dir="./out", per_device_train_batch_size=ROWS, MORE max_steps=2000, bf16=True
)
trainer = Trainer(model=AutoModel.from_pretrained("m"), args=args)
trainer.train()
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("gradient_accumulation_steps=8,", {"micro_batch": 4, "accumulation": 8}),
        ("gradient_accumulation_steps=64 // ROWS,", {"micro_batch": 4, "accumulation": 16}),
        ("gradient_accumulation_steps=guess(),", {"micro_batch": 4, "global_batch": None}),
        ("**given,", {"micro_batch": None, "precision": None}),
    ],
    ids=["written out", "of a constant", "computed", "with more"],
)
def test_arguments_that_the_program_itself_gives_a_trainer_are_facts_and_no_knobs(
    write: Write, more: str, expected: dict[str, object]
) -> None:
    root = write({"train.sh": NOT_RUN, "train.py": TRAINER.replace("MORE", more)})
    found = read(root / "train.sh", gpus=8)
    known = facts(found)
    assert {name: known.get(name) for name in expected} == expected
    if known.get("accumulation"):
        size = expected["accumulation"]
        assert isinstance(size, int)
        assert known["global_batch"] == 2 * 4 * size
        assert found.project.workload.planned_steps == 2000
    assert not any("config:train.py" in str(knob) for knob in found.project.knobs)


def test_a_yaml_behind_which_flags_stand_gives_way_to_them(write: Write) -> None:
    program = (
        "import sys\nimport torch\nfrom transformers import HfArgumentParser, Trainer\n"
        "from transformers import TrainingArguments\n"
        "class Parser(HfArgumentParser):\n    def parse(self):\n"
        "        return self.parse_yaml_file(sys.argv[1])\n"
        "parser = Parser((TrainingArguments,))\n(args,) = parser.parse()\n"
        "Trainer(args=args).train()\n"
    )
    table = "output_dir: out\nper_device_train_batch_size: 16\ngradient_accumulation_steps: 1\n"
    for flags, times in (("", 1), (" --gradient_accumulation_steps=4", 4)):
        launch = f"torchrun --nproc_per_node 2 run.py a.yaml{flags}\n"
        root = write({"train.sh": launch, "run.py": program, "a.yaml": table})
        found = read(root / "train.sh", gpus=8)
        assert facts(found)["micro_batch"] == 16
        assert facts(found)["accumulation"] == times


def test_a_flag_that_no_parser_shows_leaves_the_files_value_open(write: Write) -> None:
    program = (
        "import torch\nimport yaml\nfrom other import parse\nargs = parse()\n"
        "config = yaml.safe_load(open(args.config))\n"
        "model = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for _ in range(config['steps']):\n    model(torch.zeros(2)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    table = "batch_size: 16\nsteps: 300\n"
    launch = "python run.py --config a.yaml --batch_size 4\n"
    root = write({"train.sh": launch, "run.py": program, "a.yaml": table})
    found = read(root / "train.sh")
    assert "micro_batch" not in facts(found)
    assert any("both give `batch_size`" in unknown for unknown in found.unknowns)


def test_the_processes_that_trl_reads_in_its_file_count(write: Write) -> None:
    table = "output_dir: out\nper_device_train_batch_size: 2\nnum_processes: 4\n"
    root = write({"train.sh": "trl sft --config sft.yaml\n", "sft.yaml": table})
    assert facts(read(root / "train.sh", gpus=8))["processes"] == 4


def test_a_program_that_only_starts_another_is_refused(write: Write) -> None:
    program = "import deepspeed\nfrom deepspeed.launcher.runner import main\nmain()\n"
    root = write({"train.sh": "python deepy.py train.py -d conf a.yml\n", "deepy.py": program})
    with pytest.raises(UserError, match="starts the training by itself"):
        read(root / "train.sh")


def test_the_name_of_a_run_is_no_folder(write: Write) -> None:
    program = TRAIN.replace("AUTOCAST", "torch.enable_grad()").replace(
        "args = ", 'parser.add_argument("--run", default="dummy")\nargs = '
    )
    root = write({"train.sh": NOT_RUN + " --run a\n", "train.py": program})
    assert "flag:--run" not in read(root / "train.sh").project.sinks
    (root / "train.sh").write_text(NOT_RUN + " --run runs/a\n")
    assert "flag:--run" in read(root / "train.sh").project.sinks


def test_a_file_that_only_a_run_can_name_is_told(write: Write) -> None:
    program = TRAIN.replace("AUTOCAST", "torch.enable_grad()").replace(
        "args = ", 'parser.add_argument("--config")\nargs = '
    )
    launch = "CFG=/tmp/$$.yaml\ncat > $CFG <<EOF\nbatch_size: 3\nEOF\n"
    root = write({"train.sh": f"{launch}{NOT_RUN} --config $CFG\n", "train.py": program})
    told = [unknown for unknown in read(root / "train.sh").unknowns if "--config" in unknown]
    assert told == [
        "what the file of `--config` says (train.sh:5): which file it is, `$$`, only a run can tell"
    ]


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("    import swanlab\n    swanlab.init(project='a')\n", "env:SWANLAB_MODE"),
        ("    import swanlab\n    swanlab.init(mode='cloud')\n", None),
        ("    import comet_ml\n    comet_ml.Experiment()\n", None),
    ],
    ids=["swanlab", "swanlab with its mode", "comet"],
)
@pytest.mark.parametrize("flag", ["", " --track"], ids=["off", "on"])
def test_a_tracker_behind_a_flag_of_another_module(
    write: Write, call: str, place: str | None, flag: str
) -> None:
    program = TRAIN.replace("AUTOCAST", "torch.enable_grad()").replace(
        "args = ", 'parser.add_argument("--track", action="store_true")\nargs = '
    )
    program += "from tracking import start\nif args.track:\n    start()\n"
    files = {"train.py": program, "tracking.py": f"def start():\n{call}"}
    root = write({"train.sh": f"{NOT_RUN}{flag}\n", **files})
    if flag and place is None:
        with pytest.raises(UserError, match="cannot be taken offline"):
            read(root / "train.sh")
        return
    sinks = read(root / "train.sh").project.sinks
    assert (place in sinks) == bool(flag)


@pytest.mark.parametrize(("flag", "offered"), [("", True), (" --gradient_checkpointing", False)])
def test_what_another_setting_decides_is_not_offered(
    write: Write, flag: str, offered: bool
) -> None:
    program = (
        "import torch\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(args=args).train()\n"
    )
    root = write({"train.sh": f"{NOT_RUN} --output_dir out{flag}\n", "train.py": program})
    families = {knob.family for knob in read(root / "train.sh", gpus=8).project.knobs}
    assert ("ddp_find_unused_parameters" in families) is offered
