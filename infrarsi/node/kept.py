"""Checkpoints that outlive their execution, for a run that resumes from one of them.

They lie in `checkpoints/` of the receipt: `sinks/` as the job left them, and `tree/` with the
`path:` sinks, which are in the copy of the project.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

KEPT = "checkpoints"
IN_TREE = "path:"
"""Begins the name of a file in a `path:` sink; all others are relative to the sinks."""


def keep(sinks: Path, folder: Path, removed: Sequence[str], receipt: Path) -> None:
    """Move what a run left in its sinks into the receipt.

    `removed` are the `path:` sinks in `folder`, the copy of the project. Raises OSError.
    """
    kept = receipt / KEPT
    kept.mkdir()
    shutil.move(sinks, kept / "sinks")
    for name in removed:
        place = folder / name
        if place.exists() and not place.is_symlink():
            into = kept / "tree" / name
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(place, into)


def put_back(kept: Path, sinks: Path, folder: Path) -> None:
    """Fill the sinks of a new execution with what an earlier one left; raises OSError."""
    shutil.copytree(kept / "sinks", sinks, symlinks=True, dirs_exist_ok=True)
    if (kept / "tree").is_dir():
        shutil.copytree(kept / "tree", folder, symlinks=True, dirs_exist_ok=True)


def lay_beside(kept: Path, checkpoint: str, into: Path) -> Path:
    """Copy a kept checkpoint into the new folder `into`; returns its path there.

    `checkpoint` is a file or a folder. All of its folder is copied, since some checkpoints are
    several files. Raises OSError where it is not there.
    """
    source = kept_path(kept, checkpoint)
    if not source.exists():
        raise FileNotFoundError(f"the kept checkpoint {checkpoint!r} is gone")
    whole = source if source.is_dir() else source.parent
    shutil.copytree(whole, into / whole.name, symlinks=True)
    return into / whole.name if source.is_dir() else into / whole.name / source.name


def kept_path(kept: Path, name: str) -> Path:
    """Where a file of that name lies among kept checkpoints."""
    if name.startswith(IN_TREE):
        return kept / "tree" / name.removeprefix(IN_TREE)
    return kept / "sinks" / name
