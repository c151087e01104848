"""Text of a script that stands for itself, with the bytes that each character is written in."""

from fnmatch import fnmatchcase

from infrarsi.scripts.atoms import Atom, Atoms, Char, Quoting


def chars(source: bytes, start: int, end: int, quoting: Quoting, guarded: bool) -> Atoms:
    """The characters of a span, one atom each; bytes that are not UTF-8 are kept as surrogates."""
    return tuple(_chars(source, start, end, quoting, guarded))


def escaped(source: bytes, start: int, end: int, quoting: Quoting, special: bytes | None) -> Atoms:
    """Text with backslashes: they escape every character (`special` None) or the special ones."""
    found: list[Char] = []
    letters = _chars(source, start, end, quoting, False)
    index = 0
    while index < len(letters):
        char = letters[index]
        after = letters[index + 1] if index + 1 < len(letters) else None
        if char.text == "\\" and after is not None:
            if after.text == "\n":
                index += 2
                continue
            if special is None or after.text.encode(errors="surrogateescape") in special:
                found.append(Char(after.text, char.start, after.end, quoting, True))
                index += 2
                continue
        found.append(char)
        index += 1
    return tuple(found)


def without_tabs(atoms: Atoms, start: int, end: int) -> Atoms:
    """The text of `<<-`: tabs at the beginning of its lines, from `start` to `end`, are gone."""
    found: list[Atom] = []
    begins = True
    for atom in atoms:
        is_own = isinstance(atom, Char) and start <= atom.start < end
        if begins and is_own and atom.text == "\t":  # type: ignore[union-attr]  # a Char
            continue
        found.append(atom)
        begins = is_own and atom.text == "\n"  # type: ignore[union-attr]  # a Char
    return tuple(found)


def line_start(source: bytes, at: int) -> int:
    """The offset of the first byte of a line."""
    return source.rfind(b"\n", 0, at) + 1


def _chars(source: bytes, start: int, end: int, quoting: Quoting, guarded: bool) -> list[Char]:
    found = []
    at = start
    for letter in source[start:end].decode(errors="surrogateescape"):
        size = len(letter.encode(errors="surrogateescape"))
        found.append(Char(letter, at, at + size, quoting, guarded))
        at += size
    return found


def trimmed(text: str, operator: str, pattern: str) -> str:
    """What `${X%pattern}` and its relatives leave of a text."""
    lengths = range(len(text) + 1)
    order = lengths if len(operator) == 1 else reversed(lengths)
    for length in order:
        if operator[0] == "%":
            head, tail = text[: len(text) - length], text[len(text) - length :]
            if fnmatchcase(tail, pattern):
                return head
        elif fnmatchcase(text[:length], pattern):
            return text[length:]
    return text
