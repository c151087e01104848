"""Small programs in the manner of each argument system, each of which prints what it was told.

`today` has name, type, default, choices, value today, and where that is written, of settings that
must be read; `changes` are places to set, `gets` what the program prints then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHOW = "import json\n\n\ndef show(values):\n    print(json.dumps(values, default=str))\n"


@dataclass(frozen=True)
class Program:
    """One job: its files, `train.sh` among them, and what is expected of it."""

    name: str
    command: str
    files: Mapping[str, str]
    today: Mapping[str, tuple[str, Any, tuple[Any, ...], Any, str]]
    changes: Mapping[str, Any] = field(default_factory=dict)
    gets: Mapping[str, Any] = field(default_factory=dict)

    def all_files(self) -> dict[str, str]:
        """Every file, with the launch script and the function that prints."""
        script = f"#!/bin/bash\n{self.command}\n"
        return {"train.sh": script, "show.py": SHOW, **self.files}


ARGPARSE = """import argparse
from show import show

SIZES = [("--layers", int, 4), ("--width", int, 64)]


def add_common(group):
    group.add_argument("--lr", type=float, default=1e-3, help="step size")
    group.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)


def add(parser, name, default):
    parser.add_argument(name, default=default)


base = argparse.ArgumentParser(add_help=False)
base.add_argument("-s", "--seed", type=int, default=7)
parser = argparse.ArgumentParser(parents=[base])
group = parser.add_argument_group("optimizer")
add_common(group)
for name, kind, default in SIZES:
    parser.add_argument(name, type=kind, default=default)
for key, value in {"alpha": 2, "beta": 3}.items():
    parser.add_argument(f"--{key}", type=int, default=value)
add(parser, "--attn", "eager")
parser.add_argument("--amp", type=lambda s: s.lower() in ("1", "true", "yes"), default=True)
parser.add_argument("--micro", type=lambda s: int(float(s)), default=2)
parser.add_argument("--mode", choices=["full", "none"], default="none")
parser.add_argument("--odd", type=bool, default=False)
parser.set_defaults(seed=9)
show(vars(parser.parse_args()))
"""
SUBPARSERS = """import argparse
from show import show


def shared(p):
    p.add_argument("--workers", type=int, default=2)


parser = argparse.ArgumentParser()
parser.add_argument("--verbose", action="store_true")
sub = parser.add_subparsers(dest="what")
train = sub.add_parser("train")
train.add_argument("--batch-size", type=int, default=8)
shared(train)
test = sub.add_parser("test")
test.add_argument("--batch-size", type=int, default=64)
shared(test)
show(vars(parser.parse_args()))
"""
CLICK = """import click
from show import show


@click.command()
@click.option("--batch-size", "-b", "bs", default=8, show_default=True, help="rows")
@click.option("--lr", type=float, default=0.1)
@click.option("--compile/--no-compile", default=False)
@click.option("--fast/--slow", "fast", default=True)
@click.option("--verbose", is_flag=True)
@click.option("--attn", type=click.Choice(["eager", "sdpa"]), default="eager")
@click.option("--workers", type=click.IntRange(0, 64), default=2)
def main(**given):
    show(given)


main()
"""
TYPER = """from typing import Annotated

import typer
from show import show


def main(
    data: str,
    batch_size: int = 8,
    lr: float = typer.Option(0.1, "--learning-rate", help="step size"),
    compile: bool = False,
    workers: Annotated[int, typer.Option(help="loader processes")] = 2,
):
    show(dict(data=data, batch_size=batch_size, lr=lr, compile=compile, workers=workers))


typer.run(main)
"""
TYRO = '''from dataclasses import dataclass, field
from typing import Literal

import tyro
from show import show


@dataclass
class Optimizer:
    lr: float = 1e-3
    """Step size."""
    fused: bool = False


@dataclass
class Config:
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch_size: int = 8
    attn: Literal["eager", "sdpa"] = "eager"
    compile: bool = True


c = tyro.cli(Config)
show({"optimizer.lr": c.optimizer.lr, "optimizer.fused": c.optimizer.fused,
      "batch_size": c.batch_size,
      "attn": c.attn, "compile": c.compile})
'''
ABSL = """from absl import app, flags
from show import show

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 8, "Rows of a step.")
flags.DEFINE_float("lr", 1e-3, "Step size.")
flags.DEFINE_bool("compile", False, "Compile.")
flags.DEFINE_enum("attn", "eager", ["eager", "sdpa"], "Attention.")


def main(_):
    show({name: FLAGS[name].value for name in ("batch_size", "lr", "compile", "attn")})


app.run(main)
"""
FIRE = """import fire
from show import show


def train(batch_size=8, lr: float = 1e-3, compile=False, attn="eager"):
    show(dict(batch_size=batch_size, lr=lr, compile=compile, attn=attn))


if __name__ == "__main__":
    fire.Fire(train)
"""
SIMPLE_PARSING = '''from dataclasses import dataclass

from show import show
from simple_parsing import ArgumentParser, choice


@dataclass
class Train:
    """Training."""

    batch_size: int = 8  # rows
    lr: float = 1e-3
    compile: bool = False
    attn: str = choice("eager", "sdpa", default="eager")


parser = ArgumentParser()
parser.add_arguments(Train, dest="train")
show(vars(parser.parse_args().train))
'''
HYDRA = """import hydra
from omegaconf import DictConfig, OmegaConf
from show import show


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    values = {}

    def walk(node, prefix):
        for key, value in node.items():
            if isinstance(value, dict):
                walk(value, prefix + key + ".")
            else:
                values[prefix + key] = value

    walk(OmegaConf.to_container(cfg, resolve=True), "")
    show(values)


main()
"""
HYDRA_FILES = {
    "train.py": HYDRA,
    "conf/config.yaml": """defaults:
  - model: small
  - optimizer: adam
  - override hydra/job_logging: disabled
  - _self_

seed: 1
trainer:
  batch_size: 8   # rows
  workers: ${oc.env:LOADERS,2}
  compile: false
  twice: ${trainer.batch_size}
hydra:
  run:
    dir: .
  output_subdir: null
""",
    "conf/model/small.yaml": "layers: 2\nattn: eager\n",
    "conf/model/large.yaml": "defaults:\n  - small\nlayers: 24\n",
    "conf/optimizer/adam.yaml": "# @package _global_\noptimizer:\n  lr: 1e-3\n  fused: false\n",
}
STRUCTURED = """from dataclasses import dataclass, field

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from show import show


@dataclass
class Trainer:
    batch_size: int = 8
    compile: bool = False


@dataclass
class Config:
    trainer: Trainer = field(default_factory=Trainer)
    lr: float = 0.5


cs = ConfigStore.instance()
cs.store(name="base", node=Config)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    show({"trainer.batch_size": cfg.trainer.batch_size, "lr": cfg.lr,
          "trainer.compile": cfg.trainer.compile})


main()
"""
OMEGACONF = """from omegaconf import OmegaConf
from show import show

cfg = OmegaConf.merge(OmegaConf.load("base.yaml"), OmegaConf.from_cli())
show({"train.batch_size": cfg.train.batch_size, "train.lr": cfg.train.lr,
      "train.again": cfg.train.again})
"""
CONFIGURATOR = """import sys
from ast import literal_eval

for arg in sys.argv[1:]:
    if "=" not in arg:
        exec(open(arg).read())
    else:
        key, val = arg[2:].split("=")
        attempt = val
        try:
            attempt = literal_eval(val)
        except (SyntaxError, ValueError):
            pass
        assert type(attempt) is type(globals()[key]), key
        globals()[key] = attempt
"""
GLOBALS = """from show import show

batch_size = 12
gradient_accumulation_steps = 5 * 8
learning_rate = 6e-4
compile = True
dtype = "bfloat16"
config_keys = [k for k, v in globals().items() if isinstance(v, (int, float, bool, str))]
exec(open("configurator.py").read())
show({k: globals()[k] for k in config_keys if not k.startswith("_")})
"""
YAML_BESIDE = """import argparse
from show import show
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/a.yaml")
args = parser.parse_args()
c = yaml.safe_load(open(args.config))
show({"train.batch_size": c["train"]["batch_size"], "train.compile": c["train"]["compile"],
      "train.lr": float(c["train"]["lr"]), "eval.batch_size": c["eval"]["batch_size"]})
"""
YAML_DEFAULTS = """import argparse
from show import show
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--batch_size", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
known, _ = parser.parse_known_args()
parser.set_defaults(**yaml.safe_load(open(known.config)))
show(vars(parser.parse_args()))
"""
YAML_OVERRIDES = """import argparse
from show import show
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--cfg")
parser.add_argument("--batch_size", type=int, default=1)
args = parser.parse_args()
for key, value in yaml.safe_load(open(args.cfg)).items():
    setattr(args, key, value)
show(vars(args))
"""
TOML = """import tomllib
from show import show

settings = tomllib.load(open("settings.toml", "rb"))
train = settings["train"]
show({"train.batch_size": train["batch_size"], "train.compile": train["compile"]})
"""
JSON_BESIDE = """import argparse
import json
from show import show

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed_config")
args = parser.parse_args()
c = json.load(open(args.deepspeed_config))
zero = c["zero_optimization"]
show({"train_micro_batch_size_per_gpu": c["train_micro_batch_size_per_gpu"],
      "zero_optimization.stage": zero["stage"], "overlap_comm": zero.get("overlap_comm")})
"""
HF = """from dataclasses import dataclass, field
from typing import Optional

from show import show
from transformers import HfArgumentParser


@dataclass
class ModelArguments:
    width: int = field(default=64, metadata={"help": "size of a layer"})
    attn: str = field(default="eager", metadata={"choices": ["eager", "sdpa"]})
    compile: bool = field(default=False)
    fused: bool = True
    note: Optional[str] = None
    kinds: list[str] = field(default_factory=lambda: ["a"])


(model,) = HfArgumentParser((ModelArguments,)).parse_args_into_dataclasses()
show(vars(model))
"""

_BOOL = ("false", "true")
PROGRAMS = [
    Program(
        "argparse",
        "python train.py --lr 0.5 --width=128 --amp no --odd False",
        {"train.py": ARGPARSE},
        {
            "lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
            "compile": ("str", False, (), False, "train.py:9"),
            "seed": ("int", 9, (), 9, "train.py:17"),
            "layers": ("int", 4, (), 4, "train.py:22"),
            "width": ("int", 64, (), 128, "train.sh:2"),
            "beta": ("int", 3, (), 3, "train.py:24"),
            "attn": ("str", "eager", (), "eager", "train.py:13"),
            "amp": ("bool", True, (), False, "train.sh:2"),
            "micro": ("int", 2, (), 2, "train.py:27"),
            "mode": ("str", "none", ("full", "none"), "none", "train.py:28"),
            "odd": ("truthy", False, (), True, "train.sh:2"),
        },
        {"flag:--lr": 0.25, "flag:--compile": True, "flag:--attn": "sdpa", "flag:--amp": "true"},
        {"lr": 0.25, "compile": True, "attn": "sdpa", "amp": True},
    ),
    Program(
        "argparse-subparsers",
        "python train.py train --workers 4",
        {"train.py": SUBPARSERS},
        {
            "batch_size": ("int", 8, (), 8, "train.py:13"),
            "workers": ("int", 2, (), 4, "train.sh:2"),
        },
        {"flag:--batch-size": 16, "flag:--workers": 1},
        {"batch_size": 16, "workers": 1},
    ),
    Program(
        "click",
        "python train.py -b 4 --slow",
        {"train.py": CLICK},
        {
            "bs": ("int", 8, (), 4, "train.sh:2"),
            "lr": ("float", 0.1, (), 0.1, "train.py:7"),
            "compile": ("bool", False, (), False, "train.py:8"),
            "fast": ("bool", True, (), False, "train.sh:2"),
            "verbose": ("bool", False, (), False, "train.py:10"),
            "attn": ("str", "eager", ("eager", "sdpa"), "eager", "train.py:11"),
            "workers": ("int", 2, (), 2, "train.py:12"),
        },
        {"flag:-b": 16, "flag:--compile": True, "flag:--attn": "sdpa"},
        {"bs": 16, "compile": True, "attn": "sdpa"},
    ),
    Program(
        "typer",
        "python train.py corpus --learning-rate 0.5 --no-compile",
        {"train.py": TYPER},
        {
            "batch_size": ("int", 8, (), 8, "train.py:9"),
            "lr": ("float", 0.1, (), 0.5, "train.sh:2"),
            "compile": ("bool", False, (), False, "train.sh:2"),
            "workers": ("int", 2, (), 2, "train.py:12"),
        },
        {"flag:--batch-size": 32, "flag:--workers": 4},
        {"batch_size": 32, "workers": 4},
    ),
    Program(
        "tyro",
        "python train.py --optimizer.lr 0.5 --optimizer.fused --no-compile",
        {"train.py": TYRO},
        {
            "optimizer.lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
            "optimizer.fused": ("bool", False, (), True, "train.sh:2"),
            "batch_size": ("int", 8, (), 8, "train.py:18"),
            "attn": ("str", "eager", ("eager", "sdpa"), "eager", "train.py:19"),
            "compile": ("bool", True, (), False, "train.sh:2"),
        },
        {"flag:--batch_size": 4, "flag:--attn": "sdpa", "flag:--optimizer.lr": 0.25},
        {"batch_size": 4, "attn": "sdpa", "optimizer.lr": 0.25},
    ),
    Program(
        "absl",
        "python train.py --lr=0.5 --nocompile",
        {"train.py": ABSL},
        {
            "batch_size": ("int", 8, (), 8, "train.py:5"),
            "lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
            "compile": ("bool", False, (), False, "train.sh:2"),
            "attn": ("str", "eager", ("eager", "sdpa"), "eager", "train.py:8"),
        },
        {"flag:--batch_size": 16, "flag:--compile=": "true", "flag:--attn": "sdpa"},
        {"batch_size": 16, "compile": True, "attn": "sdpa"},
    ),
    Program(
        "fire",
        "python train.py --lr 0.5",
        {"train.py": FIRE},
        {
            "batch_size": ("int", 8, (), 8, "train.py:5"),
            "lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
            "compile": ("bool", False, (), False, "train.py:5"),
            "attn": ("str", "eager", (), "eager", "train.py:5"),
        },
        {"flag:--batch_size=": 16, "flag:--compile=": "True"},
        {"batch_size": 16, "compile": True},
    ),
    Program(
        "simple-parsing",
        "python train.py --lr 0.5",
        {"train.py": SIMPLE_PARSING},
        {
            "batch_size": ("int", 8, (), 8, "train.py:11"),
            "lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
            "compile": ("bool", False, (), False, "train.py:13"),
            "attn": ("str", "eager", ("eager", "sdpa"), "eager", "train.py:14"),
        },
        {"flag:--batch_size": 16, "flag:--compile=": "true", "flag:--attn": "sdpa"},
        {"batch_size": 16, "compile": True, "attn": "sdpa"},
    ),
    Program(
        "hydra",
        "python train.py trainer.batch_size=16 +extra.note=3",
        HYDRA_FILES,
        {
            "trainer.batch_size": ("int", 8, (), 16, "train.sh:2"),
            "trainer.compile": ("bool", False, (), False, "conf/config.yaml:11"),
            "model.layers": ("int", 2, (), 2, "conf/model/small.yaml:1"),
            "optimizer.lr": ("float", 1e-3, (), 1e-3, "conf/optimizer/adam.yaml:3"),
            "seed": ("int", 1, (), 1, "conf/config.yaml:7"),
            "model": ("str", "small", ("large", "small"), "small", "conf/config.yaml:2"),
        },
        {"flag:trainer.batch_size": 4, "flag:trainer.compile": "true", "flag:optimizer.lr": 0.5},
        {"trainer.batch_size": 4, "trainer.compile": True, "optimizer.lr": 0.5, "trainer.twice": 4},
    ),
    Program(
        "hydra-group",
        "python train.py model=large model.attn=sdpa",
        HYDRA_FILES,
        {
            "model.layers": ("int", 24, (), 24, "conf/model/large.yaml:3"),
            "model.attn": ("str", "eager", (), "sdpa", "train.sh:2"),
            "model": ("str", "large", ("large", "small"), "large", "train.sh:2"),
        },
        {"flag:model.attn": "eager", "flag:model": "small"},
        {"model.attn": "eager", "model.layers": 2},
    ),
    Program(
        "hydra-structured",
        "python train.py trainer.batch_size=2",
        {
            "train.py": STRUCTURED,
            "conf/config.yaml": "defaults:\n  - base\n  - override hydra/job_logging: disabled\n"
            "  - _self_\n\nlr: 0.25\nhydra: {run: {dir: .}, output_subdir: null}\n",
        },
        {
            "trainer.batch_size": ("int", 8, (), 2, "train.sh:2"),
            "lr": ("float", 0.25, (), 0.25, "conf/config.yaml:6"),
            "trainer.compile": ("bool", False, (), False, "train.py:12"),
        },
        {"flag:lr": 0.125, "flag:trainer.compile": "true"},
        {"lr": 0.125, "trainer.compile": True},
    ),
    Program(
        "omegaconf",
        "python train.py train.lr=0.5",
        {
            "train.py": OMEGACONF,
            "base.yaml": "train:\n  batch_size: 8\n  lr: 1e-3\n  again: ${train.batch_size}\n",
        },
        {
            "train.batch_size": ("int", 8, (), 8, "base.yaml:2"),
            "train.lr": ("float", 1e-3, (), 0.5, "train.sh:2"),
        },
        {"flag:train.batch_size": 4},
        {"train.batch_size": 4, "train.again": 4},
    ),
    Program(
        "globals",
        "python train.py --learning_rate=0.5",
        {"train.py": GLOBALS, "configurator.py": CONFIGURATOR},
        {
            "batch_size": ("int", 12, (), 12, "train.py:3"),
            "gradient_accumulation_steps": ("int", 40, (), 40, "train.py:4"),
            "learning_rate": ("float", 6e-4, (), 0.5, "train.sh:2"),
            "compile": ("bool", True, (), True, "train.py:6"),
            "dtype": ("str", "bfloat16", (), "bfloat16", "train.py:7"),
        },
        {"flag:--batch_size=": 6, "flag:--compile=": "False"},
        {"batch_size": 6, "compile": False},
    ),
    Program(
        "globals-config",
        "python train.py config/small.py --compile=False",
        {
            "train.py": GLOBALS,
            "configurator.py": CONFIGURATOR,
            "config/small.py": "# small\nbatch_size = 2 * 2\ndtype = 'float32'\n",
        },
        {
            "batch_size": ("int", 4, (), 4, "config/small.py:2"),
            "dtype": ("str", "float32", (), "float32", "config/small.py:3"),
            "compile": ("bool", True, (), False, "train.sh:2"),
        },
        {"config:config/small.py:batch_size": 2, "flag:--dtype=": "float16"},
        {"batch_size": 2, "dtype": "float16"},
    ),
    Program(
        "yaml",
        "python train.py --config conf/a.yaml",
        {
            "train.py": YAML_BESIDE,
            "conf/a.yaml": "# all\nshared: &shared\n  compile: off\n\ntrain:\n  <<: *shared\n"
            "  batch_size: 8  # rows\n  lr: 1e-3\neval:\n  batch_size: 64\n",
        },
        {
            "train.batch_size": ("int", 8, (), 8, "conf/a.yaml:7"),
            "train.compile": ("bool", False, (), False, "conf/a.yaml:3"),
            "train.lr": ("float", 1e-3, (), 1e-3, "conf/a.yaml:8"),
            "eval.batch_size": ("int", 64, (), 64, "conf/a.yaml:10"),
        },
        {
            "config:conf/a.yaml:train.batch_size": 4,
            "config:conf/a.yaml:train.compile": True,
            "config:conf/a.yaml:train.lr": 1e-5,
        },
        {
            "train.batch_size": 4,
            "train.compile": True,
            "train.lr": 1e-5,
            "eval.batch_size": 64,
        },
    ),
    Program(
        "yaml-default-path",
        "python train.py",
        {
            "train.py": YAML_BESIDE,
            "conf/a.yaml": "train: {batch_size: 8, lr: 0.1, compile: 'no'}\neval:\n"
            "  batch_size: 64\n",
        },
        {"train.batch_size": ("int", 8, (), 8, "conf/a.yaml:1")},
        {"config:conf/a.yaml:train.batch_size": 2, "config:conf/a.yaml:train.compile": "on"},
        {"train.batch_size": 2, "train.compile": "on"},
    ),
    Program(
        "yaml-defaults",
        "python train.py --config a.yaml --workers 3",
        {"train.py": YAML_DEFAULTS, "a.yaml": "batch_size: 8\nworkers: 1\n"},
        {
            "batch_size": ("int", 1, (), 8, "a.yaml:1"),
            "workers": ("int", 0, (), 3, "train.sh:2"),
        },
        {"flag:--batch_size": 4},
        {"batch_size": 4, "workers": 3},
    ),
    Program(
        "yaml-overrides",
        "python train.py --cfg a.yaml --batch_size 2",
        {"train.py": YAML_OVERRIDES, "a.yaml": "batch_size: 8\nname: run\n"},
        {
            "batch_size": ("int", 8, (), 8, "a.yaml:1"),
            "name": ("str", "run", (), "run", "a.yaml:2"),
        },
        {"config:a.yaml:batch_size": 4},
        {"batch_size": 4},
    ),
    Program(
        "toml",
        "python train.py",
        {
            "train.py": TOML,
            "settings.toml": "# all\n[train]\nbatch_size = 8  # rows\ncompile = false\n",
        },
        {
            "train.batch_size": ("int", 8, (), 8, "settings.toml:3"),
            "train.compile": ("bool", False, (), False, "settings.toml:4"),
        },
        {"config:settings.toml:train.batch_size": 4, "config:settings.toml:train.compile": True},
        {"train.batch_size": 4, "train.compile": True},
    ),
    Program(
        "deepspeed-json",
        "python train.py --deepspeed_config ds.json",
        {
            "train.py": JSON_BESIDE,
            "ds.json": '{\n  "train_micro_batch_size_per_gpu": 2,\n'
            '  "zero_optimization": {"stage": 2}\n}\n',
        },
        {
            "train_micro_batch_size_per_gpu": ("int", 2, (), 2, "ds.json:2"),
            "zero_optimization.stage": ("int", 2, (), 2, "ds.json:3"),
        },
        {
            "config:ds.json:train_micro_batch_size_per_gpu": 4,
            "config:ds.json:zero_optimization.stage": 1,
            "config:ds.json:zero_optimization.overlap_comm": True,
        },
        {
            "train_micro_batch_size_per_gpu": 4,
            "zero_optimization.stage": 1,
            "overlap_comm": True,
        },
    ),
]
HF_PROGRAM = Program(
    "hf",
    "python train.py --width 128 --no_fused",
    {"train.py": HF},
    {
        "width": ("int", 64, (), 128, "train.sh:2"),
        "attn": ("str", "eager", ("eager", "sdpa"), "eager", "train.py:11"),
        "compile": ("bool", False, (), False, "train.py:12"),
        "fused": ("bool", True, (), False, "train.sh:2"),
    },
    {"flag:--compile": "true", "flag:--attn": "sdpa", "flag:--width": 32},
    {"compile": True, "attn": "sdpa", "width": 32},
)
