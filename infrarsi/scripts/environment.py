"""Changing the environment of the training command."""

from collections.abc import Sequence
from typing import NoReturn

from tree_sitter import Node

from infrarsi.errors import UserError
from infrarsi.scripts.editing import single_launch
from infrarsi.scripts.interpreter import Site
from infrarsi.scripts.launching import Launched
from infrarsi.scripts.literals import line_start
from infrarsi.scripts.reading import Reading
from infrarsi.scripts.spelling import Edit, indentation, quote
from infrarsi.scripts.variables import Files, Use, Variable, is_default, keeps


def set_env(
    reading: Reading, name: str, value: str, files: Files | None, *, is_command: bool
) -> list[Edit]:
    """The edits that give the training command this variable.

    Where the script itself uses the variable, it holds the value from its first use on: what the
    script makes of it (`--nproc_per_node=$N`) follows. Raises UserError where something may set
    the variable again.
    """
    launched = single_launch(reading, name)
    variable = Variable(reading, launched, name, files)
    if variable.unread:
        _refuse(variable, variable.unread[0], "reads a file whose text is not known, which may use")
    if variable.reads:
        edits = _set_throughout(variable, value, is_command)
    else:
        edits = _set_late(variable, value, is_command)
    if launched.loses_environment(name) and not variable.words:
        edits.append(_before_launcher(launched, b"env " + _assigned(name, value) + b" "))
    return edits


def _set_late(variable: Variable, value: str, is_command: bool) -> list[Edit]:
    """At the training command, or where it is exported: nothing else uses the variable."""
    reading, launched, name = variable.reading, variable.launched, variable.name
    written = _assigned(name, value)
    if variable.in_front:
        return [Edit(*span, written) for span in variable.in_front]
    site = _replaceable(variable)
    if site is not None:
        return [Edit(site.node.start_byte, site.node.end_byte, written)]
    if variable.is_special or variable.lost:
        return [_before_launcher(launched, b"env " + written + b" ")]
    statement = launched.invocation.statement
    if _mentions(statement, name) or (is_command and not _has_substitution(statement)):
        return [_prefix(launched, written + b" ")]
    if is_command:
        return [_before(statement, b"export " + written)]
    return [_line_before(reading, statement, b"export " + written)]


def _set_throughout(variable: Variable, value: str, is_command: bool) -> list[Edit]:
    """Before the first use, and in every assignment."""
    written = _assigned(variable.name, value)
    if variable.lost:
        _refuse(variable, variable.lost[0], "sets")
    _refuse_two_values(variable)
    first = variable.first()
    assert first is not None
    edits = {(n.start_byte, n.end_byte): written for n in variable.writes}
    edits.update(dict.fromkeys(variable.words, written))
    at = first.start_byte, first.end_byte
    if first.type == "variable_assignment" and at in edits:
        edits[at] = b"export " + written
    elif not _exports(first, edits):
        new = b"export " + written
        edit = _before(first, new) if is_command else _line_before(variable.reading, first, new)
        edits[edit.start, edit.end] = edit.text
    by_name = variable.set_by_name(first.start_byte)
    if by_name is not None:
        _refuse(variable, by_name, "may set any variable, and so")
    return [Edit(start, end, text) for (start, end), text in edits.items()]


def _refuse_two_values(variable: Variable) -> None:
    """A variable that is used, set again and used again stands for two things."""
    writes = [node for node in variable.writes if not keeps(node, variable.name)]
    if len({node.text for node in writes}) < 2:
        return
    statements = variable.reading.tree.root_node.named_children
    last = next(n for n in statements if n.start_byte <= writes[-1].start_byte < n.end_byte)
    for use in variable.reads:
        if writes[0].end_byte <= use.start < last.start_byte:
            _refuse(variable, use, "uses, before it is set to another value,")


def _exports(first: Node, edits: dict[tuple[int, int], bytes]) -> bool:
    """Whether a statement is `export X=...` and no more than declarations."""
    if first.type != "declaration_command":
        return False
    words = (first.text or b"").split()
    found = [n for n in first.named_children if (n.start_byte, n.end_byte) in edits]
    return bool(found) and (words[0] == b"export" or b"-x" in words)


def remove_env(
    reading: Reading, name: str, files: Files | None, *, is_command: bool, decides: bool
) -> list[Edit]:
    """The edits after which the training command does not see the variable.

    `decides`: the command's own words depend on the variable. Then the script must fall back to
    its default for it; where it has none, this raises UserError.
    """
    launched = single_launch(reading, name)
    variable = Variable(reading, launched, name, files)
    if decides:
        return _unset_throughout(variable, is_command)
    source = reading.expander.source
    edits = []
    for start, end in variable.in_front:
        while source[end : end + 1] in (b" ", b"\t"):
            end += 1
        edits.append(Edit(start, end, b""))
    site = _replaceable(variable)
    statement = launched.invocation.statement
    is_used = bool(variable.reads or variable.unread or variable.lost)
    is_used = is_used or variable.is_special
    if site is not None and _alone(site) and not is_used:
        declaration = site.node.parent
        assert declaration is not None
        edits.append(Edit(declaration.start_byte, declaration.end_byte, b"unset " + name.encode()))
    elif is_command or is_used or _mentions(statement, name, variable.in_front):
        edits.append(_before_launcher(launched, b"env -u " + name.encode() + b" "))
    else:
        edits.append(_line_before(reading, statement, b"unset " + name.encode()))
    return edits


def _unset_throughout(variable: Variable, is_command: bool) -> list[Edit]:
    name, first = variable.name, variable.first()
    own = [node for node in variable.writes if not is_default(node, name)]
    problems = [*variable.unread, *variable.lost]
    if problems or own or variable.in_front or first is None:
        use = problems[0] if problems else variable.reads[0]
        _refuse(variable, use, "sets" if problems else "also uses")
    by_name = variable.set_by_name(first.start_byte)
    if by_name is not None:
        _refuse(variable, by_name, "may set any variable, and so")
    text = b"unset " + name.encode()
    return [_before(first, text) if is_command else _line_before(variable.reading, first, text)]


def _refuse(variable: Variable, use: Use, what: str) -> NoReturn:
    raise UserError(
        f"the variable `{variable.name}` cannot be changed so that it surely takes effect: "
        f"`{use.raw}` in line {use.line} {what} it",
        where=f"{variable.reading.where}:{use.line}",
        fix="set the variable once, in a plain assignment above its first use",
    )


def _assigned(name: str, value: str) -> bytes:
    return name.encode() + b"=" + quote(value)


def _replaceable(variable: Variable) -> Site | None:
    """The one exported assignment that nothing but the training command's environment uses."""
    launched, name = variable.launched, variable.name
    found = variable.writes
    if len(found) != 1 or variable.reads or variable.lost or variable.in_front:
        return None
    if name not in launched.invocation.state.exported:
        return None
    start = found[0].start_byte
    site = next((s for s in variable.reading.sites if s.node.start_byte == start), None)
    known = site is not None and site.certain and site.value is not None
    if not known or variable.set_by_name(start) is not None:
        return None
    return site


def _alone(site: Site) -> bool:
    parent = site.node.parent
    return parent is not None and parent.type == "declaration_command" and parent.child_count == 2


def _has_substitution(node: Node) -> bool:
    return node.type == "command_substitution" or any(map(_has_substitution, node.children))


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
    at = launched.invocation.words[launched.launcher_start].start_byte
    return Edit(at, at, text)


def _before(statement: Node, text: bytes) -> Edit:
    return Edit(statement.start_byte, statement.start_byte, text + b"; ")


def _line_before(reading: Reading, statement: Node, text: bytes) -> Edit:
    source = reading.expander.source
    start = line_start(source, statement.start_byte)
    indent = indentation(source, statement.start_byte)
    if start + len(indent) == statement.start_byte:
        return Edit(start, start, indent + text + b"\n")
    return _before(statement, text)
