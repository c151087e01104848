"""Runs launch scripts in the real bash, with launchers that only write down what they got."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from infrarsi.scripts import Argument, Script

_RECORDER = """#!/bin/sh
{ printf '%s\\0' "$0" "$#" "$@" "$(pwd)"; env -0; printf '\\0'; } >> "$RECORD"
"""


@dataclass(frozen=True)
class Call:
    """One call of a launcher: its arguments without its own name, environment and folder."""

    launcher: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str


class RealShell:
    """A folder with fake launchers on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("torchrun", "python", "python3", "accelerate", "deepspeed"):
            (self.bin / name).write_text(_RECORDER)
            (self.bin / name).chmod(0o755)
        self.project = folder / "a project"
        self.project.mkdir()

    def run(self, text: str, *arguments: str, path: str = "train.sh") -> list[Call]:
        """The calls that a script makes; the script must not fail."""
        record = self.folder / "record"
        record.write_text("")
        place = self.project / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode(errors="surrogateescape"))
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "RECORD": str(record),
            "HOME": str(self.folder),
        }
        done = subprocess.run(
            ["bash", path, *arguments],
            cwd=self.project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        assert "command not found" not in done.stderr, f"{text}\n{done.stderr}"
        parts = iter(os.fsdecode(record.read_bytes()).split("\0"))
        calls = []
        while launcher := next(parts):
            given = [next(parts) for _ in range(int(next(parts)))]
            inside = next(parts)
            found = dict(item.split("=", 1) for item in iter(lambda: next(parts), ""))
            calls.append(Call(os.path.basename(launcher), given, found, inside))
        return calls


def words(argument: Argument) -> list[str]:
    """The words that an argument of known value was read from, in the `--flag value` spelling."""
    assert argument.value is not None, argument
    if not argument.name:
        return [str(argument.value)]
    return [argument.name] if argument.value is True else [argument.name, str(argument.value)]


def spread(given: list[str]) -> list[str]:
    """Arguments with `--flag=value` and `key=value` taken apart, to compare spellings."""
    found = []
    for word in given:
        name, equals, value = word.partition("=")
        found += [name, value] if equals and " " not in name else [word]
    return found


def read(script: Script) -> list[str]:
    """What the reader says that the launcher gets: options, entry, arguments."""
    command = script.training_command()
    found = [word for option in command.launcher_options for word in words(option)]
    assert command.entry is not None
    found.append(command.entry)
    return found + [word for argument in command.arguments for word in words(argument)]
