"""Parsers that a library makes of a function; a truth value that a flag of its own switches off."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.workspace.launch_text import LaunchText
from infrarsi.workspace.sources import Sources as Files

Make = Callable[[Mapping[str, str]], Path]
BODY = "import torch\n\n\ndef train(loss):\n    loss.backward()\n\n\n"
DRACCUS = """import draccus
from dataclasses import dataclass, field

@dataclass
class Loader:
    num_workers: int = 2

@dataclass
class Config:
    name: str
    loader: Loader = field(default_factory=Loader)
    batch_size: int = 8
    max_steps: int = 400

@draccus.wrap()
def main(cfg: Config):
    train(cfg)
"""
JSONARGPARSE = """from jsonargparse import CLI

def main(batch_size: int = 8, max_steps: int = 400, num_workers: int = 2):
    train(max_steps)

CLI(main)
"""
CYCLOPTS = """from cyclopts import App

app = App()

@app.default
def main(*, batch_size: int = 8, max_steps: int = 400, num_workers: int = 2, compile: bool = False):
    train(max_steps)

app()
"""


def drafted(write: Make, program: str, arguments: str) -> Draft:
    script = f"python train.py {arguments}\n"
    return read(write({"train.sh": script, "train.py": BODY + program}) / "train.sh")


@pytest.mark.parametrize(
    ("program", "arguments", "flag"),
    [
        (DRACCUS, "--name x --loader.num_workers 4 --max_steps 500", "--loader.num_workers"),
        (JSONARGPARSE, "--num_workers 4 --max_steps 500", "--num_workers"),
        (CYCLOPTS, "--num-workers 4 --max-steps 500", "--num-workers"),
    ],
    ids=["draccus", "jsonargparse", "cyclopts"],
)
def test_flags_of_a_function_or_a_class(
    write: Make, program: str, arguments: str, flag: str
) -> None:
    found = drafted(write, program, arguments)
    assert found.project.workload.planned_steps == 500
    knob = next(k for k in found.project.knobs if k.family == "dataloader_workers")
    assert (knob.reference, knob.at) == (4, f"flag:{flag}")


@pytest.mark.parametrize(
    ("program", "library"),
    [
        (
            '"""Usage: train.py [--steps=N]"""\nimport docopt\n\nargs = docopt.docopt(__doc__)\n',
            "docopt",
        ),
        ("import jsonargparse\n\njsonargparse.CLI(make())\n", "jsonargparse"),
    ],
)
def test_what_is_not_read_is_named(write: Make, program: str, library: str) -> None:
    found = drafted(write, program, "--steps=30")
    assert any(f"read by {library}, which is not understood" in told for told in found.unknowns)


ABSL = """from absl import app, flags

flags.DEFINE_integer("max_steps", 300, "")
flags.DEFINE_bool("compile", True, "")
"""


@pytest.mark.parametrize("flag", ["--nocompile", "-nocompile"])
def test_a_flag_that_switches_off_makes_a_knob(write: Make, flag: str) -> None:
    found = drafted(write, ABSL, flag)
    knob = next(k for k in found.project.knobs if k.family == "compile")
    other: Any = next(value for value in knob.values if value != knob.reference)
    change = knob.change(other)
    assert {str(place): value for place, value in change.set} == {"flag:--compile=": "true"}
    assert [str(place) for place in change.remove] == [f"flag:{flag}"]
    root, project = found.root, found.project
    text = LaunchText.of(project, Files(root)).with_settings(project, {knob.name: other})
    assert "train.py --compile=true" in text.script.text
