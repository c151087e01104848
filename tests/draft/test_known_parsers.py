"""Programs whose parser lies in a library, and parsers that cannot be read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_argument_systems import told

from infrarsi.draft.settings import Setting

Write = Callable[[Mapping[str, str]], Path]
PRETRAIN = "from megatron.training import pretrain\n\npretrain(None)\n"
TITAN = "from torchtitan.config import ConfigManager\n\nConfigManager().parse_args()\n"


def settings(write: Write, command: str, files: Mapping[str, str]) -> dict[str, Setting]:
    """The settings of a job by their names."""
    root = write({"train.sh": command + "\n", **files})
    return {setting.key or setting.dest: setting for setting in told(root).settings}


def facts(setting: Setting) -> tuple[str, tuple[Any, ...], Any, str]:
    """Type, choices, value today and place."""
    assert setting.definition is not None
    return setting.definition.kind, setting.definition.choices, setting.value, setting.origin


def test_megatron_is_known_by_name(write: Write) -> None:
    found = settings(
        write,
        "torchrun pretrain_gpt.py --micro-batch-size 4 --recompute-granularity full "
        "--no-masked-softmax-fusion --overlap-grad-reduce",
        {"pretrain_gpt.py": PRETRAIN},
    )
    assert facts(found["micro_batch_size"]) == ("int", (), 4, "train.sh:1")
    granularity = ("str", ("full", "selective"), "full", "train.sh:1")
    assert facts(found["recompute_granularity"]) == granularity
    assert found["masked_softmax_fusion"].value is False
    assert found["bias_gelu_fusion"].value is True
    assert found["overlap_grad_reduce"].value is True
    assert facts(found["num_workers"]) == ("int", (), 2, "Megatron-LM's own arguments")


def test_a_default_that_differs_between_versions_is_not_known(write: Write) -> None:
    found = settings(write, "torchrun pretrain_gpt.py", {"pretrain_gpt.py": PRETRAIN})
    varying = [s for s in found.values() if s.definition and s.definition.system == "megatron"]
    assert any(not setting.is_known and not setting.is_given for setting in varying)
    assert all(setting.value is None for setting in varying if not setting.is_known)


def test_megatrons_source_in_the_repository_comes_first(write: Write) -> None:
    arguments = (
        "import argparse\n\n\ndef _add_training(parser):\n"
        "    group = parser.add_argument_group('training')\n"
        "    group.add_argument('--micro-batch-size', type=int, default=3)\n    return parser\n\n\n"
        "def parse_args():\n    parser = argparse.ArgumentParser()\n"
        "    parser = _add_training(parser)\n    return parser.parse_args()\n"
    )
    found = settings(
        write,
        "torchrun pretrain_gpt.py",
        {
            "pretrain_gpt.py": "from megatron.training.arguments import parse_args\n\n"
            "pretrain(parse_args())\n",
            "megatron/__init__.py": "",
            "megatron/training/__init__.py": "",
            "megatron/training/arguments.py": arguments,
        },
    )
    assert facts(found["micro_batch_size"]) == ("int", (), 3, "megatron/training/arguments.py:6")
    assert set(found) == {"micro_batch_size"}


def test_torchtitan_takes_toml_and_then_flags(write: Write) -> None:
    found = settings(
        write,
        "torchrun train.py --job.config_file a.toml --training.local_batch_size 4",
        {
            "train.py": TITAN,
            "a.toml": "[training]\nlocal_batch_size = 2\nsteps = 30\n"
            '[activation_checkpoint]\nmode = "full"\n',
        },
    )
    assert found["training.local_batch_size"].value == 4
    assert found["training.steps"].value == 30
    assert found["training.steps"].origin == "a.toml:3"
    assert facts(found["activation_checkpoint.mode"])[2:] == ("full", "a.toml:5")
    assert facts(found["compile.enable"])[2:] == (False, "torchtitan's own job configuration")


def test_torchtitans_registry_is_python_and_not_read(write: Write) -> None:
    root = write(
        {
            "train.sh": "torchrun train.py --module llama3 --config debug --training.steps 5\n",
            "train.py": TITAN,
        }
    )
    found = told(root)
    assert any("made by a function of Python code" in unknown for unknown in found.unknowns)
    known = {s.key or s.dest: s.value for s in found.settings if s.is_known}
    assert known == {"training.steps": 5, "module": "llama3", "config": "debug"}


def test_fields_of_training_arguments_are_known_by_name(write: Write) -> None:
    found = settings(
        write,
        "torchrun train.py --output_dir out --per_device_train_batch_size 4 --bf16",
        {
            "train.py": "from dataclasses import dataclass\n"
            "from transformers import HfArgumentParser, TrainingArguments\n\n\n@dataclass\n"
            "class Own(TrainingArguments):\n    max_steps: int = 50\n    rank_size: int = 8\n\n\n"
            "HfArgumentParser(Own).parse_args_into_dataclasses()\n",
        },
    )
    assert facts(found["per_device_train_batch_size"]) == ("int", (), 4, "train.sh:1")
    assert facts(found["max_steps"]) == ("int", (), 50, "train.py:7")
    assert facts(found["rank_size"]) == ("int", (), 8, "train.py:8")
    assert found["bf16"].value is True
    assert found["gradient_accumulation_steps"].value == 1
    assert not found["optim"].is_known


def test_trl_changes_defaults_that_are_then_not_known(write: Write) -> None:
    found = settings(
        write,
        "torchrun train.py",
        {"train.py": "from trl import SFTConfig, TrlParser\n\nTrlParser((SFTConfig,)).parse()\n"},
    )
    assert not found["gradient_checkpointing"].is_known
    assert found["dataloader_num_workers"].value == 0


def test_a_json_file_alone_takes_the_place_of_all_flags(write: Write) -> None:
    found = settings(
        write,
        "torchrun train.py run.json",
        {
            "train.py": "import sys\nfrom transformers import HfArgumentParser, TrainingArguments\n"
            "HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])\n",
            "run.json": '{"per_device_train_batch_size": 16, "gradient_checkpointing": true}',
        },
    )
    micro = found["per_device_train_batch_size"]
    assert (micro.value, str(micro.place)) == (16, "config:run.json:per_device_train_batch_size")


@pytest.mark.parametrize(
    ("program", "where"),
    [
        (
            "import argparse\np = argparse.ArgumentParser()\nfor n in names():\n"
            "    p.add_argument(n)\n",
            "train.py:4: the name of an argument is computed",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument(*flags)\n",
            "train.py:3: the name of an argument is computed",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--a', **options)\n",
            "train.py:3: `--a` is made with computed options",
        ),
        (
            "import click\n@click.option(make())\ndef f(): ...\n",
            "train.py:2: the name of an option is computed",
        ),
        ("import fire\nfire.Fire()\n", "train.py:2: what `fire.Fire` is given"),
        ("import tyro\ntyro.cli(make())\n", "train.py:2: what `tyro.cli` is given"),
        (
            "from absl import flags\nflags.DEFINE_integer(name(), 1, '')\n",
            "train.py:2: the name of a flag is computed",
        ),
        (
            "from ml_collections import config_flags\nconfig_flags.DEFINE_config_file('config')\n",
            "train.py:2: `--config` takes a whole",
        ),
        (
            "from transformers import HfArgumentParser\nHfArgumentParser(make())\n",
            "train.py:2: the data classes of this parser",
        ),
        (
            "from transformers import HfArgumentParser\nfrom x import Y\nHfArgumentParser(Y)\n",
            "train.py:3: the fields of `Y` are defined elsewhere",
        ),
        (
            "import hydra\n@hydra.main(config_path='c', config_name=name())\ndef f(c): ...\n",
            "train.py:2: which configuration `hydra.main` takes is computed",
        ),
        (
            "import simple_parsing\np = simple_parsing.ArgumentParser()\n"
            "p.add_arguments(make(), 'x')\n",
            "train.py:3: the data class given here",
        ),
    ],
)
def test_a_parser_that_is_made_at_run_time_is_told_with_its_line(
    program: str, where: str, write: Write
) -> None:
    found = told(write({"train.sh": "python train.py\n", "train.py": program}))
    assert any(unknown.startswith(where) for unknown in found.unknowns), found.unknowns
    assert found.arguments.is_open


def test_a_name_that_a_later_file_sets_again_is_not_guessed(write: Write) -> None:
    root = write(
        {
            "train.sh": "python train.py --batch_size=4 small.py\n",
            "train.py": "import sys\nbatch_size = 12\nfor a in sys.argv[1:]:\n"
            "    if '=' not in a:\n        exec(open(a).read())\n    else:\n"
            "        k, v = a[2:].split('=')\n        globals()[k] = int(v)\n",
            "small.py": "batch_size = 8\n",
        }
    )
    found = told(root)
    assert any("set again by this file" in unknown for unknown in found.unknowns)
    assert not any(s.is_known and s.definition for s in found.settings if s.dest == "batch_size")


def test_type_bool_of_argparse_is_true_for_every_word(write: Write) -> None:
    found = settings(
        write,
        "python train.py --compile False",
        {
            "train.py": "import argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--compile', type=bool, default=False)\np.parse_args()\n"
        },
    )
    assert found["compile"].value is True


def test_what_another_file_defines_as_a_program_is_not_this_ones(write: Write) -> None:
    found = settings(
        write,
        "python train.py",
        {
            "train.py": "import argparse\nimport tool\np = argparse.ArgumentParser()\n"
            "p.add_argument('--lr', type=float, default=1.0)\np.parse_args()\n",
            "tool.py": "import argparse\nif __name__ == '__main__':\n"
            "    p = argparse.ArgumentParser()\n    p.add_argument('--lr', default='x')\n"
            "    p.add_argument('--batch-size', default=3)\n",
        },
    )
    assert set(found) == {"lr"}
    assert found["lr"].value == 1.0
