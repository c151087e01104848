"""One execution's own copy of the project, and its sinks.

The copy lies in `<receipt_dir>/work/<name>`, the sinks in `<receipt_dir>/sinks`. Large data is
linked, not copied; what was linked is compared before and after the run.
"""

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from infrarsi.contract import (
    CHECKPOINT_DIR_TOKEN,
    CHECKPOINT_TOKEN,
    SINKS_TOKEN,
    Overlay,
    SnapshotRef,
)
from infrarsi.errors import UserError
from infrarsi.node.kept import lay_beside, put_back

_SAFE = re.compile(r"[A-Za-z0-9_./+@:,=-]+")
_NOT_COPIED = shutil.ignore_patterns("__pycache__")  # a stale one would hide a patch
Stamp = tuple[int, int]
"""Size and modification time in nanoseconds."""


@dataclass(frozen=True)
class WorkTree:
    """Where one execution lives on this node.

    `folder` is the copy of the project, the command's working directory. `sinks_text` is what
    stands for SINKS_TOKEN, `cache_text` the path of the compile caches: each the path itself, or a
    link to it where the path has characters that a shell, a configuration file or a compiler's
    command line would have to quote. `scratch` is the temporary folder. `checkpoint_text` is the
    checkpoint to resume from, "" where there is none.
    """

    folder: Path
    sinks: Path
    sinks_text: str
    cache_text: str
    scratch: Path
    links: Mapping[str, str]
    checkpoint_text: str = ""

    @property
    def removable(self) -> tuple[Path, ...]:
        """The folders that must not outlive the execution."""
        return (self.folder.parent, self.sinks, self.scratch.parent)

    def fill_in(self, text: str) -> str:
        """`text` with SINKS_TOKEN, and those of a checkpoint where there is one, replaced."""
        text = text.replace(SINKS_TOKEN, self.sinks_text)
        if not self.checkpoint_text:
            return text
        folder = self.checkpoint_text
        if not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        text = text.replace(CHECKPOINT_TOKEN, self.checkpoint_text)
        return text.replace(CHECKPOINT_DIR_TOKEN, folder)


@dataclass(frozen=True)
class ResumeFrom:
    """What an earlier execution kept (`infrarsi.node.kept`): all of it goes back into the sinks.

    Where `checkpoint` names one file or folder of it, that alone is laid beside the copy.
    """

    kept: Path
    checkpoint: str | None = None


def unpack(
    snapshot: SnapshotRef,
    overlay: Overlay,
    receipt_dir: Path,
    cache_dir: Path,
    resume_from: ResumeFrom | None = None,
) -> WorkTree:
    """Make the copy, apply the overlay, make fresh sinks; `cache_dir` is made if need be.

    Raises UserError if an overlay path is not inside the project or lies in linked data, and
    ExternalError never: a full disk is an OSError for the caller. Nothing may exist there yet.
    """
    receipt_dir.mkdir(parents=True, exist_ok=True)
    root = Path(snapshot.root)
    folder = receipt_dir / "work" / snapshot.name
    sinks = receipt_dir / "sinks"
    sinks.mkdir()
    scratch = Path(tempfile.mkdtemp(prefix="infrarsi-"), "tmp")
    scratch.mkdir()
    links = json.loads((root / "links.json").read_text()) if (root / "links.json").exists() else {}
    cache_dir.mkdir(parents=True, exist_ok=True)
    tree = WorkTree(
        folder,
        sinks,
        sinks_text=_plain_path(sinks, scratch.with_name("sinks")),
        cache_text=_plain_path(cache_dir, scratch.with_name("cache")),
        scratch=scratch,
        links=links,
    )
    try:
        shutil.copytree(root / "tree", folder, symlinks=True, ignore=_NOT_COPIED)
        for name, target in links.items():
            place = _inside(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        for name in overlay.remove:
            _remove(_inside(folder, name))
        if resume_from is not None:
            tree = _with_checkpoint(tree, resume_from)
        for name, text in overlay.files.items():
            _write(_inside(folder, name), tree.fill_in(text))
    except BaseException:
        for path in tree.removable:
            remove_tree(path)
        raise
    return tree


def _with_checkpoint(tree: WorkTree, resume_from: ResumeFrom) -> WorkTree:
    if resume_from.checkpoint is None:
        put_back(resume_from.kept, tree.sinks, tree.folder)
        return tree
    beside = tree.folder.parent / ".resume"
    place = lay_beside(resume_from.kept, resume_from.checkpoint, beside)
    plain = _plain_path(beside, tree.scratch.with_name("resume"))
    return replace(tree, checkpoint_text=f"{plain}/{place.relative_to(beside).as_posix()}")


def remove_tree(path: Path) -> None:
    """Delete a folder, read-only ones inside it included; never follows a link."""
    if not path.exists():
        return
    for folder, _, _ in os.walk(path):
        if not os.access(folder, os.W_OK | os.X_OK):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def stamps(links: Mapping[str, str]) -> dict[str, Stamp]:
    """Size and time of every linked file, by its project-relative path."""
    found: dict[str, Stamp] = {}
    for name, target in links.items():
        if os.path.isdir(target):
            for inner, stamp in _walk(target):
                found[f"{name}/{inner}"] = stamp
        elif os.path.exists(target):
            found[name] = _stamp(os.stat(target))
    return found


def changed(before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> tuple[str, ...]:
    """Names whose stamp differs, came, or went."""
    names = before.keys() | after.keys()
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))


def _walk(folder: str) -> Iterator[tuple[str, Stamp]]:
    stack = [""]
    while stack:
        inner = stack.pop()
        with os.scandir(os.path.join(folder, inner)) as entries:
            for entry in entries:
                name = f"{inner}/{entry.name}" if inner else entry.name
                if entry.is_dir(follow_symlinks=False):
                    stack.append(name)
                else:
                    yield name, _stamp(entry.stat(follow_symlinks=False))


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def _plain_path(path: Path, alias: Path) -> str:
    """The path, or `alias` made a link to it."""
    if _SAFE.fullmatch(str(path)):
        return str(path)
    alias.symlink_to(path)
    return str(alias)


def _inside(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise UserError(f"an overlay path must lie inside the project, but got {name!r}")
    place = folder.joinpath(*parts)
    real_parent = os.path.realpath(place.parent)
    root = os.path.realpath(folder)
    if real_parent != root and not real_parent.startswith(root + os.sep):
        raise UserError(
            f"`{name}` lies in linked data ({real_parent}), which no candidate may change",
            fix="leave it out of `editable` and `sinks`, or make the folder part of the project",
        )
    return place


def _remove(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        remove_tree(place)


def _write(place: Path, text: str) -> None:
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
    if place.is_symlink() or place.exists():
        place.unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8", newline="")
    if mode is not None:
        place.chmod(mode)
