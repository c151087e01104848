"""Which file of a folder starts the job, where the user named only the folder."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from infrarsi.draft.manifests import SUFFIXES, looks_like_manifest
from infrarsi.draft.programs import (
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    files,
    listing,
    shell_text,
    trains,
)
from infrarsi.errors import UserError
from infrarsi.scripts import Script

_LAUNCH = re.compile(r"train|tune|launch|run|main|start", re.I)
Started = Callable[[Path], Path]
"""The program that a launch script starts; raises UserError where it starts none."""


def choose(folder: Path, entry: str | None, environ: Mapping[str, str], started: Started) -> Path:
    """The launch script or the entry of a folder; raises UserError unless there is just one."""
    if entry is not None and not (folder / entry).is_file():
        raise UserError(
            f"there is no {entry!r} in {folder}; there are {listing(folder)}",
            where="--entry",
            fix="give the Python file that trains, relative to the project",
        )
    scripts, broken = _scripts_of(folder, entry, environ, started)
    if not scripts and entry is not None:
        return folder / entry
    if not scripts and len(broken) == 1:  # another program instead of it would be another job
        raise next(iter(broken.values()))
    found = [*scripts, *broken]
    found = found or [path for path in files(folder, SUFFIXES) if looks_like_manifest(path)]
    found = found or [path for path in files(folder, PYTHON_SUFFIXES) if trains(path)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(repr(path.relative_to(folder).as_posix()) for path in found[:12])
    if found:
        first = next(iter(broken.values()), None)
        why = f" ({first.where}: {first.what})" if first is not None else ""
        raise UserError(
            f"{len(found)} files may start the training: {names}{why}",
            where=str(folder),
            fix="name one of them, or choose with --entry or --command",
        )
    raise UserError(
        "no launch script and no Python file that trains was found in this folder; there are "
        + listing(folder),
        where=str(folder),
        fix="name the launch script, or give --entry or --command",
    )


def _scripts_of(
    folder: Path, entry: str | None, environ: Mapping[str, str], started: Started
) -> tuple[list[Path], dict[Path, UserError]]:
    """Scripts that start a training (`entry`, if it is given), and those that should but cannot."""
    scripts: list[Path] = []
    broken: dict[Path, UserError] = {}
    for path in files(folder, SHELL_SUFFIXES):
        try:
            program = started(path.resolve())
        except UserError as error:
            if entry is None and _starts_a_program(path, environ):
                broken[path] = error
            continue
        if entry is None or program == (folder / entry).resolve():
            scripts.append(path)
    if scripts:  # a broken helper is no rival of a script that works, a launch script is one
        broken = {
            path: error
            for path, error in broken.items()
            if path.parent == folder and _LAUNCH.search(path.stem)
        }
    return scripts, broken


def _starts_a_program(path: Path, environ: Mapping[str, str]) -> bool:
    try:
        text = shell_text(path)
        return bool(Script.parse(text, path.name, environ=environ).programs())
    except UserError:
        return False
