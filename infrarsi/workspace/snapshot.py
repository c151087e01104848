"""The copy of the user's project that all executions of one run start from."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from infrarsi.contract import SnapshotRef
from infrarsi.errors import UserError
from infrarsi.node.digests import digest_file

_SKIPPED = frozenset(
    {".git", ".infrarsi", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hg"}
)
_DATA_NAMES = frozenset(
    {"data", "dataset", "datasets", "corpus", "checkpoints", "ckpt", "ckpts", "weights", "models"}
)
_CODE = (".py", ".pyx", ".cu", ".cpp", ".c", ".h", ".sh", ".yaml", ".yml", ".toml")
_GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What is copied and what is linked, in bytes and files.

    A file over `max_file_bytes` is linked. A folder with a name such as `data` that holds no code
    and more than `max_folder_bytes` or `max_folder_files` is linked as a whole. More than
    `max_total_bytes` to copy is an error.
    """

    max_file_bytes: int = 8 << 20
    max_folder_bytes: int = 64 << 20
    max_folder_files: int = 2000
    max_total_bytes: int = 2 * _GIB


@dataclass
class _Walk:
    """What a walk over the user's folder found; `entries` feeds the digest and the manifest."""

    entries: dict[str, list[str | int]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    copied_bytes: int = 0


def take(
    project_root: Path,
    store: Path,
    *,
    sinks: Sequence[str] = (),
    limits: Limits | None = None,
) -> SnapshotRef:
    """Copy the project into `store/snapshot` once; a snapshot that is there is returned as it is.

    Left out: version control, our own folder, caches, what `sinks` (project-relative paths) hold,
    and `store` itself. Linked: large files and data folders, whatever a link points to outside, and
    virtual environments. Raises UserError for what cannot be read or is too much to copy.
    """
    root = project_root.resolve()
    final = store / "snapshot"
    if (final / "manifest.json").exists():
        return _reference(final, root)
    partial = store / "snapshot.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "tree").mkdir(parents=True)
    own = _relative(store.resolve(), root)
    skipped = {_clean(sink) for sink in sinks} - {"."}
    if own is not None:
        skipped.add(own)
    walk = _Walk()
    _Taker(root, partial / "tree", frozenset(skipped), limits or Limits(), walk).take()
    (partial / "links.json").write_text(json.dumps(walk.links, sort_keys=True))
    manifest = {
        "digest": _digest(walk.entries),
        "entries": walk.entries,
        "notes": walk.notes,
        "sinks": sorted(skipped),
    }
    (partial / "manifest.json").write_text(json.dumps(manifest))
    partial.rename(final)
    return _reference(final, root)


def notes(snapshot: SnapshotRef) -> tuple[str, ...]:
    """What was left out for a reason that the user may want to know."""
    return tuple(_manifest(snapshot)["notes"])


def digests(snapshot: SnapshotRef) -> dict[str, str]:
    """`sha256:...` of every file that was copied, by project-relative path."""
    entries = _manifest(snapshot)["entries"]
    return {path: entry[1] for path, entry in entries.items() if entry[0] == "file"}


def verify_unchanged(
    root: Path, snapshot: SnapshotRef, *, limits: Limits | None = None
) -> tuple[str, ...]:
    """The paths of the user's folder that differ from the snapshot; empty if none does.

    Copied files are compared by content and mode, linked ones by size and time.
    """
    manifest = _manifest(snapshot)
    walk = _Walk()
    skipped = frozenset(manifest["sinks"])
    _Taker(root.resolve(), None, skipped, limits or Limits(), walk).take()
    before, after = manifest["entries"], walk.entries
    return tuple(sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p)))


def tree_digest(
    root: Path, *, skip: Sequence[str] = (".infrarsi",), stamp_over_bytes: int = _GIB
) -> str:
    """One digest of everything below `root`: names, kinds, modes, contents, link targets.

    Paths in `skip` (and what lies below) do not count, nor do byte-code caches. A file larger than
    `stamp_over_bytes` counts by size and time instead of content.
    """
    digest = hashlib.sha256()
    for path, status in _everything(root, "", frozenset(skip)):
        content = ""
        if stat.S_ISREG(status.st_mode) and status.st_size > stamp_over_bytes:
            content = f"{status.st_size} {status.st_mtime_ns}"
        elif stat.S_ISREG(status.st_mode):
            content = digest_file(root / path)
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(root / path)
        line = json.dumps([path, status.st_mode, content])
        digest.update(line.encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def _everything(
    root: Path, inner: str, skip: frozenset[str]
) -> Iterator[tuple[str, os.stat_result]]:
    for entry in _scan(root / inner):
        path = f"{inner}/{entry.name}" if inner else entry.name
        if path in skip or entry.name == "__pycache__":
            continue
        yield path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from _everything(root, path, skip)


class _Taker:
    """Walks the user's folder; copies into `target` unless that is None."""

    def __init__(
        self, root: Path, target: Path | None, skipped: frozenset[str], limits: Limits, walk: _Walk
    ) -> None:
        self.root, self.target, self.skipped = root, target, skipped
        self.limits, self.walk = limits, walk

    def take(self) -> None:
        self._folder("")

    def _folder(self, inner: str) -> None:
        for entry in _scan(self.root / inner):
            path = f"{inner}/{entry.name}" if inner else entry.name
            if entry.name in _SKIPPED or path in self.skipped or entry.name.endswith(".pyc"):
                continue
            if entry.is_symlink():
                self._symlink(path)
            elif entry.is_dir(follow_symlinks=False):
                self._directory(path)
            elif entry.is_file(follow_symlinks=False):
                self._file(path, entry.stat(follow_symlinks=False))
            else:
                self.walk.notes.append(f"{path}: neither a file nor a folder, left out")

    def _directory(self, path: str) -> None:
        place = self.root / path
        if os.path.exists(place / "pyvenv.cfg") or os.path.isdir(place / "conda-meta"):
            self._link_in_tree(path, str(place))
            self.walk.entries[path] = ["environment"]
            return
        if self._is_data(path) and not any(s.startswith(f"{path}/") for s in self.skipped):
            self._link(path, place)
            return
        mode = stat.S_IMODE(place.stat().st_mode)
        self.walk.entries[path] = ["folder", mode]
        if self.target is not None:
            (self.target / path).mkdir()
        self._folder(path)

    def _is_data(self, path: str) -> bool:
        if PurePosixPath(path).name.lower() not in _DATA_NAMES:
            return False
        size = count = 0
        for inner, status in _everything(self.root / path, "", frozenset()):
            if inner.endswith(_CODE):
                return False
            if stat.S_ISREG(status.st_mode):
                size, count = size + status.st_size, count + 1
        return size > self.limits.max_folder_bytes or count > self.limits.max_folder_files

    def _file(self, path: str, status: os.stat_result) -> None:
        place = self.root / path
        if status.st_size > self.limits.max_file_bytes:
            self._link(path, place)
            return
        self.walk.copied_bytes += status.st_size
        if self.walk.copied_bytes > self.limits.max_total_bytes:
            raise UserError(
                f"the project's folder holds more than {self.limits.max_total_bytes / _GIB:.1f} "
                "GiB in small files",
                where=str(self.root),
                fix="move data and outputs out of the project's folder, or name them as sinks",
            )
        try:
            content = place.read_bytes()
        except OSError as error:
            raise _unreadable(place, error) from error
        mode = stat.S_IMODE(status.st_mode)
        self.walk.entries[path] = ["file", f"sha256:{hashlib.sha256(content).hexdigest()}", mode]
        if self.target is not None:
            copy = self.target / path
            copy.write_bytes(content)
            copy.chmod(mode | stat.S_IRUSR)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _symlink(self, path: str) -> None:
        """Inside the project a link stays relative; outside it points to the absolute target."""
        written = os.readlink(self.root / path)
        goal = os.path.normpath(os.path.join(self.root, os.path.dirname(path), written))
        inside = _relative(Path(goal), self.root)
        if inside is None:
            self.walk.links[path] = goal
            self.walk.entries[path] = ["outside", goal]
            return
        relative = os.path.relpath(inside, os.path.dirname(path) or ".")
        self.walk.entries[path] = ["inside", relative]
        self._link_in_tree(path, relative)

    def _link_in_tree(self, path: str, goal: str) -> None:
        if self.target is not None:
            (self.target / path).symlink_to(goal)

    def _link(self, path: str, place: Path) -> None:
        status = place.stat()
        if not os.access(place, os.R_OK, effective_ids=True):
            raise _unreadable(place, PermissionError(13, "Permission denied"))
        self.walk.links[path] = str(place)
        stamp: list[str | int] = ["linked"]
        if stat.S_ISREG(status.st_mode):
            stamp += [status.st_size, status.st_mtime_ns]
        else:
            stamp.append(_stamp_of_folder(place))
        self.walk.entries[path] = stamp


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise _unreadable(folder, error) from error


def _stamp_of_folder(place: Path) -> str:
    digest = hashlib.sha256()
    for inner, status in _everything(place, "", frozenset()):
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        time = status.st_mtime_ns if stat.S_ISREG(status.st_mode) else 0
        digest.update(json.dumps([inner, size, time]).encode())
    return digest.hexdigest()


def _unreadable(place: Path, error: OSError) -> UserError:
    return UserError(
        f"it cannot be read ({error.strerror}), so the project cannot be copied",
        where=str(place),
        fix="make it readable, or move it out of the project's folder",
    )


def _reference(final: Path, root: Path) -> SnapshotRef:
    digest = json.loads((final / "manifest.json").read_text())["digest"]
    return SnapshotRef(digest, str(final.resolve()), root.name or "project")


def _manifest(snapshot: SnapshotRef) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(snapshot.root) / "manifest.json").read_text())
    return found


def _digest(entries: dict[str, list[str | int]]) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()}"


def _clean(path: str) -> str:
    return str(PurePosixPath(os.path.normpath(path)))


def _relative(place: Path, root: Path) -> str | None:
    try:
        return place.relative_to(root).as_posix()
    except ValueError:
        return None
