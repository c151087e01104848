"""Writing text into a script: quoting, replacing, removing and inserting at byte level."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from infrarsi.scripts.atoms import Field, Quoting
from infrarsi.scripts.literals import line_start

_UNSPLIT = re.compile(r"[^\s*?\[\]]+")
_BLANK = b" \t"


@dataclass(frozen=True)
class Edit:
    """Replace the bytes from `start` to `end` by `text`."""

    start: int
    end: int
    text: bytes


def apply(source: bytes, edits: Iterable[Edit]) -> bytes:
    """The source with all edits made; they must not overlap."""
    result = source
    for edit in sorted(set(edits), key=lambda e: (e.start, e.end), reverse=True):
        result = result[: edit.start] + edit.text + result[edit.end :]
    return result


def quote(text: str) -> bytes:
    """A word that the shell reads as exactly this text."""
    return shlex.quote(text).encode(errors="surrogateescape")


def inside(text: str, quoting: Quoting) -> bytes | None:
    """Text as part of a string that is split later; None if it cannot be written there."""
    if not _UNSPLIT.fullmatch(text):
        return None
    if quoting is Quoting.DOUBLE:
        text = re.sub(r'([$`"\\])', r"\\\1", text)
    elif quoting is Quoting.SINGLE:
        if "'" in text:
            return None
    elif quoting is Quoting.COMPUTED or shlex.quote(text) != text:
        return None
    return text.encode(errors="surrogateescape")


def span_of(field: Field) -> tuple[int, int] | None:
    """The bytes that hold exactly this field."""
    if field.word is not None:
        return field.word
    span = field.text_span()
    return None if span is None else span[:2]


def replacing(field: Field, text: str) -> Edit | None:
    """Give a field another value; None if it is written in no single place."""
    if field.word is not None:
        return Edit(*field.word, quote(text))
    span = field.text_span()
    written = None if span is None else inside(text, span[2])
    if span is None or written is None:
        return None
    return Edit(span[0], span[1], written)


def after(field: Field, texts: list[str]) -> Edit | None:
    """Put more words after a field, separated by a blank."""
    if field.word is not None:
        end = field.word[1]
        return Edit(end, end, b"".join(b" " + quote(text) for text in texts))
    span = field.text_span()
    written = [] if span is None else [inside(text, span[2]) for text in texts]
    if span is None or None in written:
        return None
    return Edit(span[1], span[1], b"".join(b" " + (part or b"") for part in written))


def removing(source: bytes, fields: list[Field]) -> list[Edit] | None:
    """Take fields out together with the blanks, or the line of their own, that they leave."""
    spans = [span_of(field) for field in fields]
    regions: list[tuple[int, int]] = []
    for span in spans:
        if span is None:
            return None
        if regions and not source[regions[-1][1] : span[0]].replace(b"\\\n", b"").strip():
            regions[-1] = (regions[-1][0], span[1])
        else:
            regions.append(span)
    return [_region(source, start, end) for start, end in regions]


def _region(source: bytes, start: int, end: int) -> Edit:
    before = start
    while before > 0:
        if source[before - 1] in _BLANK:
            before -= 1
        elif source[before - 2 : before] == b"\\\n":
            before -= 2
        else:
            break
    behind = end
    while behind < len(source) and source[behind] in _BLANK:
        behind += 1
    if before == 0 or source[before - 1 : before] == b"\n":
        if source[behind : behind + 1] == b"\n":
            return Edit(before, behind + 1, b"")
        return Edit(start, behind, b"")
    if before == start:  # the first in an array or a string
        return Edit(start, behind, b"")
    return Edit(before, end, b"")


def indentation(source: bytes, at: int) -> bytes:
    """The blanks that the line holding `at` begins with."""
    start = line_start(source, at)
    end = start
    while end < len(source) and source[end : end + 1] in (b" ", b"\t"):
        end += 1
    return source[start:end]
