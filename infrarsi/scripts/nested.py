"""A script inside a word: the text of `bash -c "..."`, of `eval`, or what ssh is given.

The text is what the outer shell makes of the word; every byte of it remembers where it is written,
so that an edit of the inner script becomes one of the outer.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from infrarsi.scripts.atoms import Char, Field, Hole, Quoting
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.folders import Folders
from infrarsi.scripts.model import Mount
from infrarsi.scripts.spelling import Edit
from infrarsi.scripts.state import Variable
from infrarsi.scripts.wrapping import on_host

_HOLE = "__infrarsi_unknown_{}"
_SPECIAL = b'$`"\\'
_BETWEEN = b"'\"\\\n"  # quotes that end and begin again, and line continuations
_SAFE = re.compile(rb"[\w.+/@-]+")  # a word without quotes holds them as they are
_NOWHERE = Char("", -1, -1, Quoting.COMPUTED)


@dataclass(frozen=True)
class Text:
    """An inner script: `places` has one character of the outer for each byte of `source`.

    `unknown` are variables that stand for the parts that cannot be known.
    """

    source: bytes
    places: tuple[Char, ...]
    unknown: dict[str, Variable]
    lines: tuple[int, ...]

    @classmethod
    def of(
        cls,
        fields: Sequence[Field],
        line_at: Callable[[int], int],
        unknown_as: Callable[[int], str] | None = None,
    ) -> "Text":
        """The fields joined by blanks, as `eval` and ssh join them; one for `bash -c`.

        `unknown_as` spells the parts that cannot be known in a text that is no shell script.
        """
        source, places, lines = bytearray(), [], []
        unknown: dict[str, Variable] = {}
        for index, field in enumerate(fields):
            line = field.line
            if index:
                source += b" "
                places.append(_NOWHERE)
                lines.append(line)
            for atom in field.atoms:
                if isinstance(atom, Char) and not atom.condition:
                    written = atom.text.encode(errors="surrogateescape")
                    line = line_at(atom.start) if atom.start >= 0 else line
                    place = atom
                else:
                    reason = atom.expression if isinstance(atom, Hole) else atom.condition
                    name = _HOLE.format(len(unknown))
                    hole = Hole(reason, line)
                    unknown[name] = Variable((hole,), None, reason, line, False)
                    number = len(unknown) - 1
                    spelled = f"${{{name}}}" if unknown_as is None else unknown_as(number)
                    written, place = spelled.encode(), _NOWHERE
                source += written
                places += [place] * len(written)
                lines += [line] * len(written)
        return cls(bytes(source), tuple(places), unknown, tuple(lines))

    def line(self, offset: int) -> int:
        """The line of the outer script that a byte is written in."""
        if not self.lines:
            return 1
        return self.lines[min(max(offset, 0), len(self.lines) - 1)]

    def outward(self, edits: Sequence[Edit], outer: bytes) -> list[Edit] | None:
        """The edits as edits of the outer script; None where a text is written in no one place."""
        found = [self._outward(edit, outer) for edit in edits]
        return None if None in found else [edit for edit in found if edit is not None]

    def _outward(self, edit: Edit, outer: bytes) -> Edit | None:
        touched = self.places[edit.start : edit.end]
        if not touched:
            before = self.places[edit.start - 1] if edit.start else _NOWHERE
            after = self.places[edit.start] if edit.start < len(self.places) else _NOWHERE
            at, quoting = before.end, before.quoting
            if before.start < 0:
                at, quoting = after.start, after.quoting
            written = None if at < 0 else _written(edit.text, quoting)
            return None if written is None else Edit(at, at, written)
        if any(place.start < 0 for place in touched):
            return None
        start, opened = _edge(touched[0], outer, is_first=True)
        end, closed = _edge(touched[-1], outer, is_first=False)
        if opened is not closed:
            return None
        for one, two in pairwise(touched):
            gap = outer[one.end : two.start] if one is not two else b""
            if one.start > two.start or gap.strip(_BETWEEN):
                return None
        written = _written(edit.text, opened)
        return None if written is None else Edit(start, end, written)


class InnerExpander(Expander):
    """Evaluates the words of an inner script; lines are those of the outer one."""

    def __init__(
        self,
        text: Text,
        around: Expander,
        mounts: tuple[Mount, ...],
        environ: Mapping[str, str],
    ) -> None:
        super().__init__(text.source, around.path, around.folders.root, environ)
        self.folders = MountedFolders(around.folders.root, mounts)
        self.line_at = text.line


@dataclass(frozen=True)
class MountedFolders(Folders):
    """Folders as a container sees them, named as the host has them."""

    mounts: tuple[Mount, ...] = ()

    def resolve(self, path: str, cwd: str | None) -> str | None:
        """A path as one relative to the project, None if it cannot be known or lies outside."""
        outside = on_host(path, self.mounts) if path.startswith("/") else None
        return super().resolve(outside if outside is not None else path, cwd)


def _edge(place: Char, outer: bytes, *, is_first: bool) -> tuple[int, Quoting]:
    """Where an edit begins or ends; the quote inside `'...'\\''...'` takes its neighbour along."""
    at = place.start if is_first else place.end
    neighbour = outer[at - 1 : at] if is_first else outer[at : at + 1]
    if place.quoting is Quoting.BARE and neighbour == b"'":
        return (at - 1 if is_first else at + 1), Quoting.SINGLE
    return at, place.quoting


def _written(text: bytes, quoting: Quoting) -> bytes | None:
    """Text as it must stand between the outer script's quotes."""
    if quoting is Quoting.DOUBLE:
        return b"".join(b"\\" + bytes([c]) if c in _SPECIAL else bytes([c]) for c in text)
    if quoting is Quoting.SINGLE:
        return text.replace(b"'", b"'\\''")
    if quoting is Quoting.DOCUMENT:
        return re.sub(rb"([$`\\])", rb"\\\1", text)
    if quoting is Quoting.VERBATIM:
        return text
    return text if not text or (quoting is Quoting.BARE and _SAFE.fullmatch(text)) else None
