"""What is read of each argument system is what its programs are told, and what is set arrives."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from argument_programs import HF_PROGRAM, PROGRAMS, Program

from infrarsi.contract import Knob, Launch, Place, Project
from infrarsi.draft.knobs import Surroundings, from_settings
from infrarsi.draft.machine import Machine
from infrarsi.draft.reading import Told, read_settings
from infrarsi.draft.sources import read
from infrarsi.draft.target import import_path, locate
from infrarsi.workspace.launch_text import LaunchText
from infrarsi.workspace.sources import Sources

Write = Callable[[Mapping[str, str]], Path]
ALL = [
    *(pytest.param(program, id=program.name) for program in PROGRAMS),
    pytest.param(HF_PROGRAM, id="hf", marks=pytest.mark.stacks),
]


def told(root: Path) -> Told:
    """What is read of a job, in an empty environment."""
    target = locate(root / "train.sh", entry=None, command=None, environ={})
    return read_settings(target, read(target.root, target.entry, import_path(target)), {})


def project_of(knobs: Sequence[Knob]) -> Project:
    """A project around a launch script."""
    launch = Launch(command="bash train.sh", script="train.sh")
    return Project(schema="infrarsi-project-v1", name="x", launch=launch, knobs=list(knobs))


def apply(root: Path, launch: LaunchText) -> None:
    """Write the changed script and files."""
    (root / "train.sh").write_text(launch.script.text)
    for path, text in launch.configs.items():
        (root / path).write_text(text)


def run(root: Path) -> dict[str, Any]:
    """What the program prints when its launch script is run."""
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        ["bash", "train.sh"], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("program", ALL)
def test_name_type_default_choices_value_and_place_are_read(program: Program, write: Write) -> None:
    settings = told(write(program.all_files())).settings
    by_name = {setting.key or setting.dest: setting for setting in settings}
    for name, (kind, default, choices, value, place) in program.today.items():
        setting = by_name[name]
        assert setting.definition is not None
        found = (
            setting.definition.kind,
            setting.definition.default,
            setting.definition.choices,
            setting.value,
            setting.origin,
        )
        assert found == (kind, default, choices, value, place), name


@pytest.mark.parametrize("program", ALL)
def test_values_read_are_those_that_the_program_gets(program: Program, write: Write) -> None:
    root = write(program.all_files())
    got = run(root)
    known = {}
    for setting in told(root).settings:
        if setting.is_known:
            known[setting.key or setting.dest] = setting.value
    both = set(known) & set(got)
    assert both
    assert {name: known[name] for name in both} == {name: got[name] for name in both}


@pytest.mark.slow
@pytest.mark.parametrize("program", ALL)
def test_knobs_made_of_it_reach_the_program(program: Program, write: Write) -> None:
    root = write(program.all_files())
    before = told(root).settings
    around = Surroundings(Machine(8, 1), 1, True)
    found = [item.knob for item in from_settings(before, around)]
    if not found:
        pytest.skip("none of its settings is of a family with other values")
    values = {k.name: [v for v in k.values if v != k.reference][-1] for k in found}
    apply(
        root,
        LaunchText.of(project_of(found), Sources(root)).with_settings(project_of(found), values),
    )
    got, after = run(root), told(root).settings
    known = {s.key or s.dest: s.value for s in after if s.is_known}
    old = {s.key or s.dest: s.value for s in before if s.is_known}
    changed = {name for name in known if known[name] != old.get(name)}
    assert len(changed) >= len(found)
    assert {name: known[name] for name in changed & set(got)} == {
        name: got[name] for name in changed & set(got)
    }


@pytest.mark.parametrize("program", ALL)
def test_a_place_that_is_set_reaches_the_program(program: Program, write: Write) -> None:
    root = write(program.all_files())
    launch = LaunchText.of(project_of([]), Sources(root))
    for text, value in program.changes.items():
        launch = launch.with_place(Place.parse(text), value)
    apply(root, launch)
    got = run(root)
    assert {name: got.get(name) for name in program.gets} == dict(program.gets)
