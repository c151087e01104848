"""Unified diffs, made and applied exactly: no fuzz, no offset, no path outside what is allowed."""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file"
_NOTHING = "/dev/null"
_REFUSED = ("rename ", "copy ", "new mode ", "old mode ", "GIT binary patch", "Binary files ")
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class PatchFailed(Exception):
    """A diff that does not fit the files exactly, or touches what it must not; outcome
    `patch_failed`. The text is one sentence with the place."""


@dataclass(frozen=True)
class _Hunk:
    old_start: int
    new_start: int
    lines: tuple[str, ...]  # " ", "-" or "+", then the line with its newline

    @property
    def old(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] != "+"]

    @property
    def new(self) -> list[str]:
        return [line[1:] for line in self.lines if line[0] != "-"]


@dataclass
class _FileDiff:
    old: str | None
    new: str | None
    hunks: list[_Hunk] = field(default_factory=list)


def make(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """One diff from `before` to `after`, files in order of their paths; "" if they are equal.

    A path that only one of them has is created or deleted. Lines end at a newline character only,
    so that carriage returns and form feeds are content. An empty file cannot be created or deleted
    by such a diff: ValueError.
    """
    parts: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if not old and not new:
            raise ValueError(f"a unified diff cannot create or delete the empty file {path!r}")
        parts.append(f"--- {_NOTHING if old is None else _written('a/' + path)}\n")
        parts.append(f"+++ {_NOTHING if new is None else _written('b/' + path)}\n")
        lines = difflib.unified_diff(_lines(old or ""), _lines(new or ""))
        for line in list(lines)[2:]:
            parts.append(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n")
    return "".join(parts)


def apply(
    diff: str,
    files: Mapping[str, str],
    *,
    editable: Collection[str] | None = None,
    create: bool = False,
    delete: bool = False,
) -> dict[str, str | None]:
    """The files that a diff changes, with their new text (None for a deleted one).

    Every hunk must match at the line that it states. `editable` lists the paths that may be
    touched (default: those of `files`). Raises PatchFailed.
    """
    allowed = files.keys() if editable is None else editable
    changed: dict[str, str | None] = {}
    parsed = _parse(diff)
    if not parsed:
        raise PatchFailed("the patch holds no change")
    for item in parsed:
        path = _checked_path(item, allowed, create, delete)
        if path in changed:
            raise PatchFailed(f"{path}: the patch changes this file twice")
        changed[path] = _apply_file(path, item, files.get(path))
    return changed


def paths(diff: str) -> tuple[str, ...]:
    """The paths that a diff touches, in its order."""
    return tuple(item.new or item.old or "" for item in _parse(diff))


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _apply_file(path: str, item: _FileDiff, text: str | None) -> str | None:
    if (item.old is None) != (text is None):
        state = "exists already" if text is not None else "does not exist"
        raise PatchFailed(f"{path}: the file {state}")
    lines = _lines(text or "")
    result: list[str] = []
    position = 0
    for hunk in item.hunks:
        old = hunk.old
        start = hunk.old_start - 1 if old else hunk.old_start
        if start < position or start > len(lines):
            raise PatchFailed(
                f"{path}:{hunk.old_start}: the hunk overlaps the one before or lies behind the end"
            )
        result += lines[position:start]
        if hunk.new_start != (len(result) + 1 if hunk.new else len(result)):
            raise PatchFailed(f"{path}:{hunk.old_start}: the line numbers of the hunk do not agree")
        _compare(path, start, old, lines[start : start + len(old)])
        result += hunk.new
        position = start + len(old)
    result += lines[position:]
    for index, line in enumerate(result[:-1]):
        if not line.endswith("\n"):
            raise PatchFailed(f"{path}:{index + 1}: a line without newline is not the last one")
    if item.new is None:
        if result:
            raise PatchFailed(f"{path}: the patch deletes the file, but leaves lines of it")
        return None
    return "".join(result)


def _compare(path: str, start: int, wanted: list[str], found: list[str]) -> None:
    for index, line in enumerate(wanted):
        have = found[index] if index < len(found) else None
        if line != have:
            told = "the end of the file" if have is None else repr(have)
            raise PatchFailed(f"{path}:{start + index + 1}: expected {line!r}, found {told}")


def _checked_path(item: _FileDiff, allowed: Collection[str], create: bool, delete: bool) -> str:
    path = item.new if item.new is not None else item.old
    if path is None:
        raise PatchFailed("a change from /dev/null to /dev/null")
    if item.old is not None and item.new is not None and item.old != item.new:
        raise PatchFailed(f"{item.old}: the patch renames the file to `{item.new}`")
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise PatchFailed(f"{path}: the path leaves the project")
    if item.old is None and not create:
        raise PatchFailed(f"{path}: the patch creates a file")
    if item.new is None and not delete:
        raise PatchFailed(f"{path}: the patch deletes the file")
    if path not in allowed:
        raise PatchFailed(f"{path}: the file is not editable; editable are {sorted(allowed)}")
    return path


def _parse(diff: str) -> list[_FileDiff]:
    lines = diff.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    found: list[_FileDiff] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_REFUSED):
            raise PatchFailed(f"line {at + 1} of the patch: {line[:40]!r} is not supported")
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            old, new = _name(line[4:], "a/"), _name(lines[at + 1][4:], "b/")
            found.append(_FileDiff(old, new))
            at += 2
        elif line.startswith("@@ "):
            if not found:
                raise PatchFailed(f"line {at + 1} of the patch: a hunk before any file")
            hunk, at = _hunk(lines, at)
            found[-1].hunks.append(hunk)
        else:
            _refuse_stray(line, at, bool(found))
            at += 1
    for item in found:
        if not item.hunks:
            raise PatchFailed(f"{item.new or item.old}: the patch holds no hunk for this file")
    return found


def _refuse_stray(line: str, at: int, inside: bool) -> None:
    """Text before the first file is commentary; later only git's own header lines are."""
    if inside and not line.startswith(("diff --git ", "index ", "new file mode", "deleted file")):
        raise PatchFailed(f"line {at + 1} of the patch: {line[:40]!r} belongs to no hunk")


def _hunk(lines: list[str], at: int) -> tuple[_Hunk, int]:
    match = _HUNK.match(lines[at])
    if match is None:
        raise PatchFailed(f"line {at + 1} of the patch: {lines[at][:40]!r} is no hunk header")
    old_start, new_start = int(match[1]), int(match[3])
    old_left = int(match[2]) if match[2] is not None else 1
    new_left = int(match[4]) if match[4] is not None else 1
    body: list[str] = []
    at += 1
    while old_left > 0 or new_left > 0:
        if at >= len(lines):
            raise PatchFailed("the patch ends inside a hunk")
        line = lines[at]
        sign = line[:1]
        if sign not in (" ", "-", "+"):
            raise PatchFailed(f"line {at + 1} of the patch: {line[:40]!r} in a hunk")
        old_left -= sign != "+"
        new_left -= sign != "-"
        at += 1
        ends = at < len(lines) and lines[at].startswith("\\")
        body.append(line if ends else line + "\n")
        at += ends
    if old_left or new_left:
        raise PatchFailed(f"line {at} of the patch: the hunk is longer than its header says")
    return _Hunk(old_start, new_start, tuple(body)), at


def _written(path: str) -> str:
    """A path as git writes it: quoted with escapes, or ended by a tab if it has blanks."""
    if any(c in _ESCAPES or ord(c) < 32 or ord(c) == 127 for c in path):
        return '"' + "".join(_escaped(c) for c in path) + '"'
    return path + "\t" if " " in path else path


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    return f"\\{ord(letter):03o}" if ord(letter) < 32 or ord(letter) == 127 else letter


def _name(text: str, prefix: str) -> str | None:
    if text.startswith('"'):
        end = text.rfind('"')
        try:
            raw = text[1:end].encode("latin-1", "backslashreplace").decode("unicode_escape")
            path = raw.encode("latin-1").decode()
        except UnicodeError:
            path = text[1:end].replace('\\"', '"').replace("\\\\", "\\")
    else:
        path = text.split("\t")[0]
    if path == _NOTHING:
        return None
    return path.removeprefix(prefix)
