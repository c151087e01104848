"""The files that redirections write, and the text of a heredoc that goes into one."""

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from infrarsi.scripts.atoms import Atom, Atoms, Char, Field, unguard
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.state import State

_INTO = (">", ">>", ">|", "&>", "&>>")
_COPYING = (["cat"], ["cat", "-"])  # commands that give on what a heredoc gives to them


@dataclass(frozen=True)
class Redirect:
    """A file that a statement writes: `text` is that of a heredoc, None for a program's output.

    `path` is relative to the project, None where it cannot be known or lies outside. `is_certain`
    unless a condition or a loop decides on the statement.
    """

    node: Node
    path: str | None
    appends: bool
    is_certain: bool
    text: Atoms | None = None


def redirects_of(
    node: Node, expander: Expander, state: State, *, is_certain: bool
) -> list[Redirect]:
    """The files that a redirected statement names."""
    redirects = node.children_by_field_name("redirect")
    files = [r for r in redirects if r.type == "file_redirect"]
    heredoc = next((r for r in redirects if r.type == "heredoc_redirect"), None)
    words = _words(node.child_by_field_name("body"), expander, state)
    text: Atoms | None = None
    piped: Node | None = None
    if heredoc is not None:
        files += [c for c in heredoc.children if c.type == "file_redirect"]
        piped = next((c for c in heredoc.children if c.type == "pipeline"), None)
        text = expander.document(heredoc, state)
    into: list[tuple[str | None, bool, Atoms | None]] = []
    for redirect in files:
        target = redirect.child_by_field_name("destination")
        sign = next((c.type for c in redirect.children if not c.is_named), "")
        if target is not None and sign in _INTO:
            given = text if words in _COPYING and piped is None else None
            into.append((expander.text(target, state), ">>" in sign, given))
    if piped is not None:
        words = _words(_first_command(piped), expander, state) if words in _COPYING else None
    if text is not None and words is not None and words[:1] == ["tee"]:
        into += [(w, "-a" in words, text) for w in words[1:] if not w.startswith("-")]
    folders = expander.folders
    return [
        Redirect(
            node,
            None if name is None else folders.resolve(name, state.cwd),
            appends,
            is_certain,
            given,
        )
        for name, appends, given in into
    ]


def _words(node: Node | None, expander: Expander, state: State) -> list[str] | None:
    """The words of a command, None where one of them is not known."""
    if node is None or node.type != "command":
        return None
    words = [*node.children_by_field_name("name"), *node.children_by_field_name("argument")]
    inner = [
        word.named_children[0] if word.type == "command_name" and word.named_children else word
        for word in words
    ]
    texts = [found.text for word in inner for found in expander.fields(word, state)]
    known = [text for text in texts if text is not None]
    return known if len(known) == len(texts) else None


def _first_command(pipeline: Node) -> Node | None:
    """The command behind the first sign of a pipeline that follows a heredoc."""
    first = pipeline.named_children[0] if pipeline.named_children else None
    if first is not None and first.type == "redirected_statement":
        return first.child_by_field_name("body")
    return first


def filled_by(fields: Sequence[Field], given: Atoms) -> tuple[str, Atoms] | None:
    """The variable of `read -r -d '' X <<EOF` and its value: the text without blanks around it."""
    words = [found.text for found in fields]
    name = words[-1] or ""
    if words[0] != "read" or "-r" not in words or words[-3:-1] != ["-d", ""]:
        return None
    atoms = list(unguard(given))
    while atoms and _is_blank(atoms[-1]):
        atoms.pop()
    while atoms and _is_blank(atoms[0]):
        atoms.pop(0)
    return (name, tuple(atoms)) if name.isidentifier() else None


def _is_blank(atom: Atom) -> bool:
    return isinstance(atom, Char) and atom.text in (" ", "\t", "\n")
