"""Files that a script writes by heredocs, as texts that are read and changed in place."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tree_sitter import Node

from infrarsi.errors import UserError
from infrarsi.scripts.atoms import Field, Hole, Quoting
from infrarsi.scripts.expansion import WHOLE
from infrarsi.scripts.launching import recognise
from infrarsi.scripts.nested import Text
from infrarsi.scripts.reading import Reading
from infrarsi.scripts.redirects import Redirect
from infrarsi.scripts.spelling import Edit, quote

_NUMBER = "7700770{:03d}"  # a word of every configuration format
_NAME = "_infrarsi_unknown_{}"  # one that no Python program defines
_LOOKING = (  # commands that leave the files that they are given as they are
    *("cat", "echo", "printf", "ls", "chmod", "head", "tail", "wc", "test", "[", "mkdir", "rm"),
    *("touch", "export", "source", ".", "bash", "sh", "grep", "dirname", "basename", "realpath"),
    *("python", "python3", "torchrun", "accelerate", "deepspeed", "diff", "md5sum", "sha256sum"),
)
_IN_PLACE = re.compile(r"-(i.*|[a-zA-Z]*i)|--in-?place.*")
_FILTERS = ("sed", "perl", "yq", "jq", "awk", "envsubst")  # they print, unless told to edit
_WORD = rb"[\w.+-]"


@dataclass(frozen=True)
class Document:
    """A file that the script writes: `path` relative to the project, `line` of its first heredoc.

    `unknown` are the words in `text` that stand for what cannot be known, each with the expression;
    `lines` are the script's, for each line of the text. A text that cannot be known at all has the
    reason in `why`. `is_own` says of each line whether it is written as it stands.
    """

    path: str
    text: str
    line: int
    unknown: Mapping[str, str]
    lines: tuple[int, ...] = ()
    is_own: tuple[bool, ...] = ()
    why: str = ""

    def line_of(self, number: int) -> int:
        """The line of the script that a line of the file (from 1) is written in."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else self.line


def documents(top: Reading) -> tuple[Document, ...]:
    """Every file that heredocs of a script write, in the order of its lines."""
    return tuple(_document(path, parts, top) for path, parts in _written(top).items())


def edits_of(top: Reading, path: str, text: str) -> list[Edit]:
    """The edits of the script after which it writes another text into a file.

    Raises UserError where the text is not the script's own, or is put together from what other
    parts of the script use too.
    """
    parts = _written(top).get(path)
    if parts is None:
        raise UserError(f"no heredoc of the script writes {path!r}", where=top.where)
    document = _document(path, parts, top)
    if document.why:
        raise _refused(top, document, document.why)
    reading = parts[0][0]
    source = _text(path, parts)
    old, new = source.source, text.encode(errors="surrogateescape")
    start, end = _changed(old, new)
    if old == new:
        return []
    edit = Edit(start, end, new[start : len(new) - (len(old) - end)])
    found = _whole_value(reading, source, edit)
    if found is None:
        found = source.outward([edit], reading.expander.source)
    if found is None:
        found = _whole_expansion(reading, source, edit, parts, top, document)
    if found is None:
        raise _refused(top, document, "what stands there is computed, or is no plain text")
    bodies = [(part.node.start_byte, part.node.end_byte) for _, part in parts]
    for each in found:
        if not any(a <= each.start <= each.end <= b for a, b in bodies):
            _insist_on_one_use(reading, each, bodies, top, document)
    return reading.outward(found, path)


def _whole_value(reading: Reading, source: Text, edit: Edit) -> list[Edit] | None:
    """The edit as one of a whole value without quotes, `OUT=out`, which gets quotes if need be."""
    touched = source.places[edit.start : edit.end]
    if not touched or any(place.quoting is not Quoting.BARE for place in touched):
        return None
    span = touched[0].start, touched[-1].end
    values = [(s.value.start_byte, s.value.end_byte) for s in reading.sites if s.value is not None]
    if span not in values:
        return None
    return [Edit(*span, quote(edit.text.decode(errors="surrogateescape")))]


def _whole_expansion(
    reading: Reading,
    source: Text,
    edit: Edit,
    parts: "_Parts",
    top: Reading,
    document: Document,
) -> list[Edit] | None:
    """The value in place of the `${X:-4}` or `$((...))` that gives it, if X has no other use."""
    touched = source.places[edit.start : edit.end]
    span = touched[0].expansion if touched else None
    if span is None or any(place.expansion != span for place in touched):
        return None
    around = source.places[max(edit.start - 1, 0) : edit.start] + source.places[edit.end :][:1]
    same = [part for _, part in parts if part.node.start_byte <= span[0] < part.node.end_byte]
    if any(place.expansion == span for place in around) or not same:
        return None
    written = reading.expander.source[span[0] : span[1]]
    if b"$(" in written.replace(b"$((", b"") or b"`" in written:
        return None  # what a program prints may be anything else in a run
    bodies = [(part.node.start_byte, part.node.end_byte) for _, part in parts]
    for name in set(re.findall(rb"[A-Za-z_]\w*", written)):
        own = [
            (s.node.start_byte, s.node.end_byte) for s in reading.sites if s.name == name.decode()
        ]
        _insist_on_no_mention(reading, name.decode(), [*bodies, *own], top, document)
    return [Edit(*span, re.sub(rb"([$`\\])", rb"\\\1", edit.text))]


_Parts = list[tuple[Reading, Redirect]]


def _written(reading: Reading) -> dict[str, _Parts]:
    found: dict[str, _Parts] = {}
    for each in _readings(reading):
        for redirect in each.redirects:
            if redirect.path is not None:
                found.setdefault(redirect.path, []).append((each, redirect))
    return {
        path: parts
        for path, parts in found.items()
        if any(redirect.text is not None for _, redirect in parts)
    }


def _readings(reading: Reading) -> Iterator[Reading]:
    yield reading
    for inner in reading.inner:
        yield from _readings(inner)


def _text(path: str, parts: _Parts) -> Text:
    """The text of all heredocs that go into a file."""
    atoms = tuple(chain.from_iterable(redirect.text or () for _, redirect in parts))
    spelled = _NAME if path.endswith(".py") else _NUMBER
    expander = parts[0][0].expander
    line = expander.line(parts[0][1].node)
    return Text.of([Field(atoms, line)], expander.line_at, spelled.format)


def _document(path: str, parts: _Parts, top: Reading) -> Document:
    reading, first = next(pair for pair in parts if pair[1].text is not None)
    line = reading.expander.line(first.node)
    why = _unknown_as_a_whole(path, parts, top)
    if why:
        return Document(path, "", line, {}, why=why)
    source = _text(path, parts)
    spelled = _NAME if path.endswith(".py") else _NUMBER
    unknown = {spelled.format(i): v.raw for i, v in enumerate(source.unknown.values())}
    bodies = [(part.node.start_byte, part.node.end_byte) for _, part in parts]
    lines, own, begin = [], [], 0
    for text in source.source.splitlines(keepends=True):
        end = begin + len(text)
        places = source.places[begin:end]
        lines.append(source.lines[begin])
        own.append(all(any(a <= p.start < b for a, b in bodies) for p in places))
        begin = end
    whole = source.source.decode(errors="surrogateescape")
    return Document(path, whole, line, unknown, tuple(lines), tuple(own))


def _unknown_as_a_whole(path: str, parts: _Parts, top: Reading) -> str:
    """Why nobody can tell what the program reads; "" where that is known."""
    for reading, part in parts:
        line = reading.expander.line(part.node)
        if part.text is None:
            return f"the output of a program goes into it in line {line}"
        if any(isinstance(atom, Hole) and atom.expression == WHOLE for atom in part.text):
            return f"the text from line {line} on is not understood"
        if not part.is_certain:
            return f"a condition or a loop decides whether line {line} writes it"
        if reading is not parts[0][0]:
            return "several scripts write it"
    if parts[0][1].appends:
        return f"line {parts[0][0].expander.line(parts[0][1].node)} only adds to it"
    again = [reading.expander.line(part.node) for reading, part in parts if not part.appends]
    if len(again) > 1:
        return f"lines {' and '.join(map(str, again))} write it"
    return next(_changers(path, parts, top), "")


def _changers(path: str, parts: _Parts, top: Reading) -> Iterator[str]:
    """Commands that are given the file and may write to it."""
    statements = [part.node for _, part in parts]
    for reading in _readings(top):
        for invocation in reading.invocations:
            cwd = invocation.state.cwd
            names = [f.text for f in invocation.fields]
            resolve = reading.expander.folders.resolve
            given = [i for i, name in enumerate(names) if name and resolve(name, cwd) == path]
            if not given or not names[0] or given == [0] or _is_in(invocation.node, statements):
                continue
            name = posixpath.basename(names[0])
            is_filter = name in _FILTERS and not any(
                word and _IN_PLACE.fullmatch(word) for word in names[1:]
            )
            is_source = name in ("cp", "rsync", "scp") and given[-1] < len(names) - 1
            is_program = recognise(invocation, reading.expander) is not None
            if not (name in _LOOKING or is_filter or is_source or is_program):
                line = reading.expander.line(invocation.node)
                yield f"`{name}` in line {line} may change it"


def _is_in(node: Node, statements: Sequence[Node]) -> bool:
    return any(s.start_byte <= node.start_byte < s.end_byte for s in statements)


def _changed(old: bytes, new: bytes) -> tuple[int, int]:
    """The part of the old text that is another in the new one, as whole words."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = len(old)
    while end > start and len(new) - (len(old) - end) > start:
        if old[end - 1] != new[len(new) - (len(old) - end) - 1]:
            break
        end -= 1
    while start and re.match(_WORD, old[start - 1 : start]):
        start -= 1
    while end < len(old) and re.match(_WORD, old[end : end + 1]):
        end += 1
    return start, end


def _insist_on_one_use(
    reading: Reading,
    edit: Edit,
    bodies: list[tuple[int, int]],
    top: Reading,
    document: Document,
) -> None:
    """An assignment may change only where nothing but this file takes its value."""
    site = next(
        (
            s
            for s in reading.sites
            if s.value is not None
            and s.value.start_byte <= edit.start <= edit.end <= s.value.end_byte
        ),
        None,
    )
    if site is None or not site.certain:
        raise _refused(top, document, "what stands there comes from elsewhere in the script")
    inside = [*bodies, (site.node.start_byte, site.node.end_byte)]
    _insist_on_no_mention(reading, site.name, inside, top, document)


def _insist_on_no_mention(
    reading: Reading,
    name: str,
    inside: Sequence[tuple[int, int]],
    top: Reading,
    document: Document,
) -> None:
    """Nothing outside these parts may use a variable, but to print it."""
    for start, line, command in _mentions(reading, name):
        if command in ("echo", "printf") or any(a <= start < b for a, b in inside):
            continue
        raise _refused(top, document, f"`{name}` is used in line {line} too")


def _mentions(reading: Reading, name: str) -> Iterator[tuple[int, int, str]]:
    """(offset, line, command) of every place outside comments where a name stands."""
    pattern = re.compile(rb"(?<!\w)" + name.encode() + rb"(?!\w)")
    root = reading.tree.root_node
    for match in pattern.finditer(reading.expander.source):
        node = root.descendant_for_byte_range(match.start(), match.end())
        if node is None or node.type == "comment":
            continue
        above: Node | None = node
        while above is not None and above.type != "command":
            above = above.parent
        name_node = above.child_by_field_name("name") if above is not None else None
        command = reading.expander.raw(name_node) if name_node is not None else ""
        yield match.start(), reading.expander.line(node), command


def _refused(top: Reading, document: Document, why: str) -> UserError:
    return UserError(
        f"`{document.path}` cannot be changed where the script writes it: {why}",
        where=f"{top.where}:{document.line}",
        fix="write the value out in the heredoc itself",
    )
