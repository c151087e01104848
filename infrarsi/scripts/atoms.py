"""Shell values that remember where each of their characters is written.

A value is a tuple of atoms. A `Char` is one known character with the bytes it is written in, a
`Hole` something that cannot be known from the script. Splitting such a value into fields keeps the
places, so that a flag that came out of `$ARGS` can be changed inside the string that it came from.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class Quoting(StrEnum):
    """How the text of a character is written in the script."""

    BARE = "bare"
    DOUBLE = "double"
    SINGLE = "single"
    DOCUMENT = "document"  # of a heredoc whose delimiter is not quoted
    VERBATIM = "verbatim"  # of one whose delimiter is
    COMPUTED = "computed"  # the outcome of an expression; it is written nowhere


class Char(NamedTuple):
    """One known character, the bytes it is written in, and how it is quoted there.

    `guarded`: a quote at the use keeps it from being split. `condition`: see `Argument.condition`.
    `expansion` is the `${...}` of a heredoc that gives it.
    """

    text: str
    start: int
    end: int
    quoting: Quoting
    guarded: bool = False
    condition: str = ""
    expansion: tuple[int, int] | None = None


class Hole(NamedTuple):
    """An unknown part: `expression` as written, `unassigned` if nothing in the script sets it."""

    expression: str
    line: int
    unassigned: bool = False
    guarded: bool = False
    condition: str = ""


Atom = Char | Hole
Atoms = tuple[Atom, ...]


@dataclass(frozen=True)
class Field:
    """One argument as a command receives it.

    `word` is the span of the source word that is exactly this field, None if a word gave several.
    `line` is where it is written.
    """

    atoms: Atoms
    line: int
    word: tuple[int, int] | None = None
    forced_condition: str = ""

    @property
    def text(self) -> str | None:
        """Its value, None where a part is unknown."""
        return text_of(self.atoms)

    @property
    def known_prefix(self) -> str:
        """The known text up to the first unknown part."""
        known = []
        for atom in self.atoms:
            if isinstance(atom, Hole):
                break
            known.append(atom.text)
        return "".join(known)

    @property
    def hole(self) -> Hole | None:
        """The first unknown part."""
        return next((a for a in self.atoms if isinstance(a, Hole)), None)

    @property
    def condition(self) -> str:
        """The place that decides whether the field is there at all."""
        return self.forced_condition or next((a.condition for a in self.atoms if a.condition), "")

    def text_span(self) -> tuple[int, int, Quoting] | None:
        """The span inside a string that holds exactly this field, None if there is no such span."""
        chars = [a for a in self.atoms if isinstance(a, Char)]
        if not chars or len(chars) != len(self.atoms) or chars[0].quoting is Quoting.COMPUTED:
            return None
        for before, after in pairwise(chars):
            if before.end != after.start or before.quoting is not after.quoting:
                return None
        return chars[0].start, chars[-1].end, chars[0].quoting


def text_of(atoms: Iterable[Atom]) -> str | None:
    """The text of known atoms, None if one is unknown."""
    texts = []
    for atom in atoms:
        if isinstance(atom, Hole):
            return None
        texts.append(atom.text)
    return "".join(texts)


def computed(text: str) -> Atoms:
    """Atoms of a text that is written nowhere."""
    return tuple(Char(c, -1, -1, Quoting.COMPUTED) for c in text)


def given_by(atoms: Iterable[Atom], start: int, end: int) -> Atoms:
    """The same atoms as what the expansion between two bytes of a heredoc gives."""
    return tuple(a._replace(expansion=(start, end)) if isinstance(a, Char) else a for a in atoms)


def guard(atoms: Iterable[Atom]) -> Atoms:
    """The same atoms inside double quotes."""
    return tuple(atom._replace(guarded=True) for atom in atoms)


def unguard(atoms: Iterable[Atom]) -> Atoms:
    """The same atoms as the value of a variable, where quotes are gone."""
    return tuple(atom._replace(guarded=False) for atom in atoms)


class LineAt:
    """Line numbers of byte offsets."""

    def __init__(self, source: bytes) -> None:
        self._starts = [0]
        for index, byte in enumerate(source):
            if byte == 0x0A:
                self._starts.append(index + 1)

    def __call__(self, offset: int) -> int:
        """The line, from 1, of a byte offset."""
        return bisect_right(self._starts, offset)


def split(atoms: Sequence[Atom], line: int, line_at: Callable[[int], int]) -> list[Field]:
    """Word splitting at unguarded blanks; an empty unguarded value gives no field."""
    fields: list[Field] = []
    current: list[Atom] = []
    for atom in atoms:
        if isinstance(atom, Char) and not atom.guarded and atom.text in (" ", "\t", "\n"):
            if current:
                fields.append(_field(current, line, line_at))
            current = []
        else:
            current.append(atom)
    if current:
        fields.append(_field(current, line, line_at))
    return fields


def _field(atoms: list[Atom], line: int, line_at: Callable[[int], int]) -> Field:
    first = atoms[0]
    if isinstance(first, Char) and first.start >= 0:
        line = line_at(first.start)
    return Field(tuple(atoms), line)


def merge_atoms(a: Atoms, b: Atoms, condition: str, line: int) -> Atoms:
    """What a variable holds after a branch that may or may not have run."""
    if a == b:
        return a
    text = text_of(a)
    if text is not None and text == text_of(b) and not any(x.condition for x in a + b):
        return computed(text)  # known, but written in two places
    shorter, longer = sorted((a, b), key=len)
    if longer[: len(shorter)] == shorter:
        rest = longer[len(shorter) :]
        return shorter + tuple(x._replace(condition=x.condition or condition) for x in rest)
    return (Hole(condition, line),)


def merge_elements(
    a: tuple[Field, ...], b: tuple[Field, ...], condition: str, line: int
) -> tuple[Field, ...]:
    """The same for the elements of an array."""
    if a == b:
        return a
    shorter, longer = sorted((a, b), key=len)
    if longer[: len(shorter)] == shorter:
        rest = longer[len(shorter) :]
        return shorter + tuple(
            replace(x, forced_condition=x.forced_condition or condition) for x in rest
        )
    return (Field((Hole(condition, line),), line),)
