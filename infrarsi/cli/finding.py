"""Which run a command is about: the one that was named, or the newest of the project at hand."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infrarsi.errors import UserError

if TYPE_CHECKING:
    from infrarsi.runs import RunDirectory

RUNS = Path(".infrarsi") / "runs"
NEWEST = "newest"
JOURNAL = "journal.jsonl"


def find_run(run: Path | None, out: Path | None) -> "RunDirectory":
    """The run that is meant, told on stderr where it is not below this folder.

    `run` is a run directory, the name of one, or a project: its folder or a file of it. Without it
    the newest run under `out` is taken, or that of this folder. Raises UserError where there is
    none.
    """
    from infrarsi.runs import RunDirectory

    path = run_path(run, out)
    if path is None:
        if run is not None and str(run) != NEWEST:
            return RunDirectory.open(run)  # it says what is there instead
        return RunDirectory.newest(out or RUNS)
    return RunDirectory.open(path)


def run_path(run: Path | None, out: Path | None) -> Path | None:
    """The folder of the run that is meant, None where there is none."""
    if run is None or (str(run) == NEWEST and not run.exists()):
        return _last(out) if out is not None else _told(_nearest(Path.cwd()))
    if (run / JOURNAL).is_file():
        return run
    if len(run.parts) == 1:
        roots = [out] if out is not None else [p / RUNS for p in _upwards(Path.cwd())]
        named = next((root / run for root in roots if (root / run / JOURNAL).is_file()), None)
        if named is not None:
            return _told(named)
    return _told(_nearest(run.resolve())) if run.exists() else None


def _nearest(start: Path) -> Path | None:
    """The newest run of what is at `start`: kept there, or in a folder above.

    In a folder above only runs of this project count: those whose project is `start`, holds it, or
    lies in it.
    """
    folder = start if start.is_dir() else start.parent
    for place in _upwards(folder):
        runs = sorted(path.parent for path in (place / RUNS).glob(f"*/{JOURNAL}"))
        if place != folder:
            runs = [path for path in runs if _is_of(path, folder)]
        if runs:
            return runs[-1]
    return None


def _last(root: Path) -> Path | None:
    return max((path.parent for path in root.glob(f"*/{JOURNAL}")), default=None)


def _is_of(run: Path, folder: Path) -> bool:
    project = first_event(run).get("project_root")
    if not isinstance(project, str):
        return False
    root = Path(project)
    return folder.is_relative_to(root) or root.is_relative_to(folder)


def first_event(run: Path) -> dict[str, Any]:
    """The first line of a run's journal, empty where it has none that can be read."""
    try:
        with (run / JOURNAL).open(encoding="utf-8") as file:
            found = json.loads(file.readline() or "{}")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _upwards(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.parents


def _told(run: Path | None) -> Path | None:
    """Say where a run was found that is kept elsewhere than in this folder's `.infrarsi`."""
    if run is not None and run.parent.resolve() != RUNS.resolve():
        print(f"The run is {os.path.relpath(run)}.", file=sys.stderr)
    return run


def project_of(
    run: Path, started: Mapping[str, Any], named: Path | None = None
) -> tuple[Path, Path]:
    """The folder of a run's project, and where the run's snapshot is now.

    A run belongs to the project that it was made of, as long as it lies where it was made: one that
    was moved or copied does not tell which folder is meant, so that must be `named`. Raises
    UserError for such a run without a name, and for a project that is not there.
    """
    root, snapshot = Path(started["project_root"]), Path(started["snapshot_root"])
    made = next((place for place in snapshot.parents if place.name == started["run_id"]), None)
    is_moved = made is not None and made.resolve() != run.resolve()
    if is_moved and made is not None:
        snapshot = run.resolve() / snapshot.relative_to(made)
    if named is not None:
        if not named.exists():
            raise UserError(
                "there is no such project", where=str(named), fix="name its folder with `--project`"
            )
        return (named if named.is_dir() else named.parent).resolve(), snapshot
    if is_moved and made is not None:
        raise UserError(
            f"this run was made in {made} for the project in {root}, and was moved or copied since",
            where=str(run),
            fix=f"name the project that is meant: `--project {_beside(run, made, root)}`",
        )
    if not root.is_dir():
        raise UserError(
            "the project of this run is not there any more",
            where=str(root),
            fix="put it back, or name where it is now with `--project`",
        )
    return root, snapshot


def _beside(run: Path, made: Path, root: Path) -> Path | str:
    """The same folder as seen from where the run is now, a placeholder where there is none."""
    above = len(RUNS.parts)
    before, now = made.parents[above:], run.resolve().parents[above:]
    if before and now and root.is_relative_to(before[0]):
        place = now[0] / root.relative_to(before[0])
        if place.is_dir():
            here = Path.cwd()
            return place.relative_to(here) if place.is_relative_to(here) else place
    return "FOLDER"
