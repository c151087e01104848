"""Changing the environment of the training command."""

from collections.abc import Sequence

from tree_sitter import Node

from infrarsi.scripts.editing import single_launch
from infrarsi.scripts.interpreter import Site
from infrarsi.scripts.launching import Launched
from infrarsi.scripts.reading import Reading
from infrarsi.scripts.spelling import Edit, indentation, line_start, quote


def set_env(reading: Reading, name: str, value: str, *, is_command: bool) -> list[Edit]:
    """The edits that give the training command this variable."""
    launched = single_launch(reading, name)
    given = _in_front(launched, name)
    if given:
        return [Edit(*given[-1], _assigned(name, value))]
    site = _replaceable(reading, launched, name)
    if site is not None:
        return [Edit(site.node.start_byte, site.node.end_byte, _assigned(name, value))]
    statement = launched.invocation.statement
    if is_command or _mentions(statement, name):
        return [_prefix(launched, _assigned(name, value) + b" ")]
    return [_line_before(reading, statement, b"export " + _assigned(name, value))]


def remove_env(reading: Reading, name: str, *, is_command: bool) -> list[Edit]:
    """The edits after which the training command does not see the variable."""
    launched = single_launch(reading, name)
    source = reading.expander.source
    edits = []
    for start, end in _in_front(launched, name):
        while source[end : end + 1] in (b" ", b"\t"):
            end += 1
        edits.append(Edit(start, end, b""))
    site = _replaceable(reading, launched, name)
    statement = launched.invocation.statement
    if site is not None and _alone(site):
        declaration = site.node.parent
        assert declaration is not None
        edits.append(Edit(declaration.start_byte, declaration.end_byte, b"unset " + name.encode()))
    elif is_command or _mentions(statement, name, _in_front(launched, name)):
        edits.append(_before_launcher(launched, b"env -u " + name.encode() + b" "))
    else:
        edits.append(_line_before(reading, statement, b"unset " + name.encode()))
    return edits


def _assigned(name: str, value: str) -> bytes:
    return name.encode() + b"=" + quote(value)


def _in_front(launched: Launched, name: str) -> list[tuple[int, int]]:
    """The spans of `NAME=value` in front of the command, `env NAME=value` included."""
    invocation = launched.invocation
    spans = [(s.node.start_byte, s.node.end_byte) for s in invocation.prefix if s.name == name]
    for field in invocation.fields[: launched.launcher_end]:
        if field.word is not None and field.known_prefix.startswith(f"{name}="):
            spans.append(field.word)
    return spans


def _replaceable(reading: Reading, launched: Launched, name: str) -> Site | None:
    """The one exported assignment that nothing but the training command's environment uses."""
    prefixed = {s.node.start_byte for invocation in reading.invocations for s in invocation.prefix}
    sites = [s for s in reading.sites if s.name == name and s.node.start_byte not in prefixed]
    if len(sites) != 1 or name not in launched.invocation.state.exported:
        return None
    site = sites[0]
    variable = launched.invocation.state.variables.get(name)
    plain = (
        site.certain
        and site.value is not None
        and site.value.type != "array"
        and not any(child.type == "+=" for child in site.node.children)
    )
    if not plain or variable is None:
        return None
    start, end = site.node.start_byte, site.node.end_byte
    uses = [u for u in _uses(reading.tree.root_node, name) if not start <= u.start_byte < end]
    return site if not uses else None


def _alone(site: Site) -> bool:
    parent = site.node.parent
    return parent is not None and parent.type == "declaration_command" and parent.child_count == 2


def _uses(node: Node, name: str) -> list[Node]:
    """Every place that reads the variable."""
    found = []
    if node.type == "variable_name" and node.text == name.encode():
        parent = node.parent
        written = parent is not None and (
            parent.type in ("declaration_command", "unset_command")
            or (parent.type == "variable_assignment" and parent.children[0] == node)
        )
        if not written:
            found.append(node)
    for child in node.children:
        found.extend(_uses(child, name))
    return found


def _mentions(node: Node, name: str, apart_from: Sequence[tuple[int, int]] = ()) -> bool:
    """Whether a statement reads or assigns the variable."""
    if any(start <= node.start_byte < node.end_byte <= end for start, end in apart_from):
        return False
    if node.type == "variable_name" and node.text == name.encode():
        return True
    return any(_mentions(child, name, apart_from) for child in node.children)


def _prefix(launched: Launched, text: bytes) -> Edit:
    """In front of the command; `time` stays in front, since it is a word of the shell."""
    invocation = launched.invocation
    first = invocation.words[0]
    at = first.start_byte
    if invocation.fields[0].text == "time" and len(invocation.words) > 1:
        at = invocation.words[1].start_byte
    return Edit(at, at, text)


def _before_launcher(launched: Launched, text: bytes) -> Edit:
    words = launched.invocation.words
    own = 2 if launched.launcher == "accelerate launch" else 1
    if launched.launcher.startswith("python -m"):
        own = 3
    at = words[max(0, launched.launcher_end - own)].start_byte
    return Edit(at, at, text)


def _line_before(reading: Reading, statement: Node, text: bytes) -> Edit:
    source = reading.expander.source
    start = line_start(source, statement.start_byte)
    indent = indentation(source, statement.start_byte)
    if start + len(indent) == statement.start_byte:
        return Edit(start, start, indent + text + b"\n")
    return Edit(statement.start_byte, statement.start_byte, text + b"; ")
