"""A training in a container is witnessed: the runtime is told to let the witness in."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infrarsi.contract import SINKS_TOKEN, Outcome, Overlay
from infrarsi.node.local_bench import LocalBench
from infrarsi.testing.launcher_suite import RULES, Lab

# A runtime that is as closed as a container: of the environment only what it is told, and no path
# in a variable that is not mounted.
_RUNTIME = """#!{python}
import os, sys
words = sys.argv[1:]
assert words.pop(0) == "run", words
given, mounts, folder = {{}}, {{}}, "/"
while words[0].startswith("-"):
    option = words.pop(0)
    if option == "--rm":
        continue
    value = words.pop(0)
    if option in ("--env", "-e"):
        name, _, text = value.partition("=")
        given[name] = text if "=" in value else os.environ[name]
    elif option in ("--volume", "-v"):
        host, inside = value.split(":")[:2]
        assert os.path.exists(host), host
        mounts[inside] = host
    elif option == "-w":
        folder = value
assert words.pop(0) == "image"
for name in ("INFRARSI_WITNESS_SOCK", "TMPDIR", "OUT"):
    path = given.get(name, next(iter(mounts)))
    assert any(path == m or path.startswith(m + "/") for m in mounts), (name, path, mounts)
assert folder == "/" or folder in mounts, folder
os.chdir(mounts.get(folder, "/"))
inside = dict(given, PATH=os.environ["PATH"], HOME="/", PYTHONPATH="/of/the/image")
os.execvpe(words[0], words, inside)
"""
_RUN = 'docker run --rm -v "$PWD":/w -w /w -e STEPS=12 image '


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A machine with a runtime of its own."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "docker").write_text(_RUNTIME.format(python=sys.executable))
    (programs / "docker").chmod(0o755)
    base = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "lab").mkdir()
    with LocalBench(base=base, rules=RULES) as bench:
        yield Lab(bench, tmp_path / "lab")


def test_a_training_in_a_container_is_witnessed(lab: Lab) -> None:
    result = lab.run(_RUN + "python train.py", steps=12)
    assert result.outcome is Outcome.OK, result.log_tail
    assert [len(rank.steps) for rank in result.ranks] == [12]
    assert result.ranks[0].sealed


def test_the_images_own_path_and_the_sinks_are_there(lab: Lab) -> None:
    command = _RUN + "sh -c 'echo $PYTHONPATH; echo $WANDB_MODE; echo x > $OUT/a && cat $OUT/a'"
    overlay = Overlay(command, env={"OUT": SINKS_TOKEN})
    path, mode, written = lab.run_overlay(overlay).log_tail.splitlines()
    assert path.endswith("/witness/inject:/of/the/image")
    assert (mode, written) == ("offline", "x")


def test_without_a_runtime_the_path_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    base = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    with LocalBench(base=base, rules=RULES) as bench:
        said = Lab(bench, tmp_path / "lab").run("echo $PATH").log_tail
    assert "infrarsi-" not in said
