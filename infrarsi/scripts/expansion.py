"""Evaluating the words of a script as far as they are fixed by the script itself."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from tree_sitter import Node

from infrarsi.scripts.arithmetic import calculate
from infrarsi.scripts.atoms import (
    Atoms,
    Char,
    Field,
    Hole,
    LineAt,
    Quoting,
    computed,
    given_by,
    guard,
    split,
    text_of,
    unguard,
)
from infrarsi.scripts.filters import filtered
from infrarsi.scripts.folders import Folders
from infrarsi.scripts.grammar import as_quoted
from infrarsi.scripts.literals import chars, escaped, line_start, trimmed, without_tabs
from infrarsi.scripts.state import State, Variable

_ESCAPED_IN_DOUBLE = b'$`"\\'
WHOLE = "the heredoc"
"""The expression of a heredoc whose text is not understood."""

_ESCAPED_IN_DOCUMENT = b"$`\\"
_BRACE_LIST = (",", "..")
_PLAIN = re.compile(r"[\w,.:;-]+")


_ASSIGNED = re.compile(
    r"^[ \t]*(?:(?:export|local|readonly)[ \t]+)?([A-Za-z_]\w*)\+?=", re.MULTILINE
)


class Expander:
    """Evaluates words against a `State`.

    `environ` is the environment that the script is started in; a variable that neither the script
    nor `environ` sets counts as unset where it has a default and as unknown otherwise; one that the
    script sets, but not on the way to here, is empty. `root` is
    what `pwd` prints in the folder of the project, `path` what `$0` is.
    """

    def __init__(self, source: bytes, path: str, root: str, environ: Mapping[str, str]) -> None:
        self.source = source
        self.path = path
        self.folders = Folders(root)
        self.environ = environ
        self.line_at: Callable[[int], int] = LineAt(source)
        self.own = frozenset(_ASSIGNED.findall(source.decode(errors="replace")))

    def raw(self, node: Node) -> str:
        """A node's text as written."""
        return self.source[node.start_byte : node.end_byte].decode(errors="surrogateescape")

    def line(self, node: Node) -> int:
        """The line, from 1, that a node starts in."""
        return self.line_at(node.start_byte)

    def fields(self, node: Node, state: State) -> list[Field]:
        """What a word gives to a command: none, one or several fields."""
        line = self.line(node)
        several = self._several(node, state)
        if several is not None:
            return several
        atoms = self.atoms(node, state)
        if not atoms and _has_quotes(node):
            return [Field((), line, (node.start_byte, node.end_byte))]
        found = split(atoms, line, self.line_at)
        if len(found) == 1:
            return [Field(found[0].atoms, line, (node.start_byte, node.end_byte))]
        return found

    def text(self, node: Node, state: State) -> str | None:
        """A word's text without splitting, None where it is unknown."""
        return text_of(self.atoms(node, state))

    def atoms(self, node: Node, state: State) -> Atoms:
        """A word's atoms, before splitting."""
        kind = node.type
        if kind in ("word", "number", "extglob_pattern", "regex", "variable_name", "test_operator"):
            return self._plain(node)
        if kind == "string":
            return guard(self._double_quoted(node, state))
        if kind == "raw_string":
            return chars(self.source, node.start_byte + 1, node.end_byte - 1, Quoting.SINGLE, True)
        if kind == "ansi_c_string":
            return self._ansi(node)
        if kind == "concatenation":
            return self._concatenation(node, state)
        if kind in ("command_name", "parenthesized_expression"):
            return tuple(a for child in node.named_children for a in self.atoms(child, state))
        if kind == "simple_expansion":
            return self._value(self.raw(node).lstrip()[1:], node, state)
        if kind == "expansion":
            return self._expansion(node, state)
        if kind == "arithmetic_expansion":
            number = calculate(node, lambda name: self._integer(name, state), self.raw)
            return self._hole(node) if number is None else computed(str(number))
        if kind == "command_substitution":
            return self._substitution(node, state)
        return self._hole(node)

    # -- plain text

    def _plain(self, node: Node) -> Atoms:
        text = self.raw(node)
        if text.startswith("~") and node.type == "word":
            home = self.environ.get("HOME")
            if home is None or text[1:2] not in ("", "/"):
                return self._hole(node)
            return computed(home + text[1:])
        if node.type == "word" and ("*" in text or "?" in text):
            return self._hole(node)
        return escaped(self.source, node.start_byte, node.end_byte, Quoting.BARE, None)

    def _double_quoted(
        self,
        node: Node,
        state: State,
        quoting: Quoting = Quoting.DOUBLE,
        special: bytes = _ESCAPED_IN_DOUBLE,
    ) -> Atoms:
        """The grammar leaves some blanks out of `string_content`, so gaps are read as text.

        Others it takes into the expansion that follows.
        """
        atoms: list[Atoms] = []
        at = node.start_byte + 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            begins = child.start_byte + len(self.raw(child)) - len(self.raw(child).lstrip())
            atoms.append(escaped(self.source, at, begins, quoting, special))
            joined = self._joined(child, state)
            given = self.atoms(child, state) if joined is None else joined
            if quoting is Quoting.DOCUMENT:
                given = given_by(given, begins, child.end_byte)
            atoms.append(given)
            at = child.end_byte
        atoms.append(escaped(self.source, at, node.end_byte - 1, quoting, special))
        return tuple(a for part in atoms for a in part)

    def _ansi(self, node: Node) -> Atoms:
        body = self.raw(node)[2:-1]
        if "\\" in body:
            try:
                body = body.encode().decode("unicode_escape")
            except UnicodeError:
                return self._hole(node)
        return guard(computed(body))

    def _concatenation(self, node: Node, state: State) -> Atoms:
        text = self.raw(node)
        words = [self.raw(child) for child in node.named_children if child.type == "word"]
        if "{" in words and any(mark in text for mark in _BRACE_LIST):
            return self._hole(node)
        return tuple(a for child in node.named_children for a in self.atoms(child, state))

    def _hole(self, node: Node, *, unassigned: bool = False) -> Atoms:
        return (Hole(self.raw(node), self.line(node), unassigned),)

    # -- heredocs

    def document(self, redirect: Node, state: State) -> Atoms:
        """The text that a heredoc gives to its command."""
        parts = {child.type: child for child in redirect.children}
        opening, end = parts["heredoc_start"], parts["heredoc_end"]
        body = parts.get("heredoc_body")
        inner = body if body is not None else end
        before = [c.end_byte for c in redirect.children if c.end_byte <= inner.start_byte]
        first = self.source.index(b"\n", max(before)) + 1
        last = line_start(self.source, end.start_byte)
        if set(self.raw(opening)) & set("'\"\\"):
            atoms = chars(self.source, first, last, Quoting.VERBATIM, True)
        else:
            quoted = as_quoted(self.source, first, last) if first < last else None
            if quoted is None:
                return () if first >= last else (Hole(WHOLE, self.line(redirect)),)
            special = _ESCAPED_IN_DOCUMENT
            atoms = guard(self._double_quoted(quoted, state, Quoting.DOCUMENT, special))
        return without_tabs(atoms, first, last) if "<<-" in parts else atoms

    # -- variables

    def _several(self, node: Node, state: State) -> list[Field] | None:
        """The fields of a word that is exactly `"${A[@]}"` or `"$@"`, quoted or not."""
        inner = node
        if node.type == "string":
            if len(node.named_children) != 1 or inner.named_children[0].type == "string_content":
                return None
            inner = node.named_children[0]
            if inner.end_byte - inner.start_byte != node.end_byte - node.start_byte - 2:
                return None
        text = self.raw(inner)
        if text in ("$@", "${@}") or (text in ("$*", "${*}") and inner is node):
            if state.positional is None:
                return [Field(self._hole(inner), self.line(inner))]
            return list(state.positional)
        name = _all_elements(inner)
        if name is None:
            return None
        variable = state.variables.get(name)
        if variable is None:
            unassigned = not state.sourced
            return [Field(self._hole(inner, unassigned=unassigned), self.line(inner))]
        if variable.elements is None:
            return None if variable.atoms is None else self._single(variable.atoms, inner, node)
        if inner is node:
            return [f for element in variable.elements for f in self._resplit(element)]
        return list(variable.elements)

    def _resplit(self, element: Field) -> list[Field]:
        """An element of an array that is expanded without quotes: split, and dropped if empty."""
        found = split(unguard(element.atoms), element.line, self.line_at)
        if len(found) == 1 and found[0].text == element.text:
            return [element]
        condition = element.forced_condition
        return [replace(f, forced_condition=condition) for f in found] if condition else found

    def _single(self, atoms: Atoms, inner: Node, node: Node) -> list[Field]:
        if inner is node:
            return split(atoms, self.line(inner), self.line_at)
        return [Field(guard(atoms), self.line(inner))]

    def _joined(self, node: Node, state: State) -> Atoms | None:
        """`${A[*]}` or `$*` inside a longer string: the elements with blanks between."""
        text = self.raw(node)
        name = _all_elements(node)
        elements: tuple[Field, ...] | None = None
        if text in ("$@", "$*", "${@}", "${*}"):
            elements = state.positional
        elif name is not None and name in state.variables:
            elements = state.variables[name].elements
        if elements is None:
            return None
        joined: list[Atoms] = []
        for index, element in enumerate(elements):
            if index:
                joined.append(computed(" "))
            joined.append(unguard(element.atoms))
        return tuple(a for part in joined for a in part)

    def lookup(self, name: str, state: State) -> Atoms | None:
        """A variable's atoms, None where nothing sets it."""
        if name == "0" or name == "BASH_SOURCE":
            return computed(self.path)
        if name.isdigit():
            if state.positional is None:
                return (Hole(f"${name}", 0),)
            index = int(name) - 1
            return unguard(state.positional[index].atoms) if index < len(state.positional) else None
        if name == "#":
            known = state.positional
            return (Hole("$#", 0),) if known is None else computed(str(len(known)))
        if name == "PWD":
            return self._folder(state)
        variable = state.variables.get(name)
        if variable is not None:
            return variable.scalar
        if name in self.environ and name not in state.unset:
            return computed(self.environ[name])
        if state.sourced and name not in state.unset and not name.isdigit():
            return (Hole(f"${name}, which {state.sourced} may set", 0),)
        return None

    def _folder(self, state: State) -> Atoms:
        if state.cwd is None:
            return (Hole("$PWD", 0),)
        return computed(self.folders.absolute(state.cwd))

    def _value(self, name: str, node: Node, state: State) -> Atoms:
        found = self.lookup(name, state)
        if found is not None:
            return found
        if name in state.unset or name.isdigit() or (name in self.own and not state.sourced):
            return ()
        special = not (name[:1].isalpha() or name[:1] == "_")
        return self._hole(node, unassigned=not special)

    def _integer(self, name: str, state: State) -> int | None:
        text = text_of(self.lookup(name, state) or ())
        try:
            return int(text) if text else None
        except ValueError:
            return None

    def _expansion(self, node: Node, state: State) -> Atoms:
        children = node.children[1:-1]
        if not children:
            return self._hole(node)
        first, rest = children[0], children[1:]
        if first.type == "#" and len(rest) == 1 and rest[0].type == "variable_name":
            text = text_of(self._value(self.raw(rest[0]), node, state))
            return self._hole(node) if text is None else computed(str(len(text)))
        if first.type == "#" and len(rest) == 1 and rest[0].type == "subscript":
            return self._number_of_elements(rest[0], node, state)
        if first.type == "subscript":
            element = self._element(first, state)
            return element if element is not None and not rest else self._hole(node)
        if first.type not in ("variable_name", "special_variable_name"):
            return self._hole(node)
        name = self.raw(first)
        if not rest:
            return self._value(name, node, state)
        return self._modified(name, self.raw(rest[0]), rest[1:], node, state)

    def _modified(
        self, name: str, operator: str, words: list[Node], node: Node, state: State
    ) -> Atoms:
        """`${X:-w}` and its relatives; what stands in a default cannot be edited in place."""
        value = self.lookup(name, state)
        is_set = value is not None and (bool(value) or not operator.startswith(":"))
        known = text_of(value or ())
        argument = tuple(a for word in words for a in self._default_word(word, state))
        if operator in (":-", "-", ":=", "="):
            if is_set:
                return value or ()
            if operator in (":=", "="):
                line = self.line(node)
                atoms = unguard(argument)
                exported = name in state.exported
                state.variables[name] = Variable(atoms, None, self.raw(node), line, exported)
            return argument
        if operator in (":+", "+"):
            return argument if is_set else ()
        if operator in (":?", "?"):
            return value if value else self._hole(node)
        pattern = text_of(argument)
        if operator in ("/", "//") and known is not None and words:
            return self._replaced(known, operator, words, node, state)
        if operator in ("%", "%%", "#", "##") and known is not None and pattern is not None:
            raw_pattern = "".join(self.raw(word) for word in words)
            return computed(
                trimmed(known, operator, raw_pattern if "*" in raw_pattern else pattern)
            )
        return self._hole(node)

    def _replaced(
        self, known: str, operator: str, words: list[Node], node: Node, state: State
    ) -> Atoms:
        """`${X//a/b}` of plain text."""
        old = self.raw(words[0])
        after = self.raw(node)[: -len("}")].partition(f"{operator}{old}")[2]
        new = "".join(self.text(w, state) or "" for w in words[1:] if w.is_named)
        if not _PLAIN.fullmatch(old) or not re.fullmatch(r"(/[\w ,.:-]*)?", after):
            return self._hole(node)
        new = after[1:] if after else new
        return computed(known.replace(old, new, -1 if operator == "//" else 1))

    def _number_of_elements(self, subscript: Node, node: Node, state: State) -> Atoms:
        """`${#A[@]}`, where every element is certain."""
        name = self.raw(subscript.named_children[0])
        variable = state.variables.get(name)
        if self.raw(subscript) not in (f"{name}[@]", f"{name}[*]") or variable is None:
            return self._hole(node)
        elements = variable.elements
        if elements is None or any(e.condition or e.hole for e in elements):
            return self._hole(node)
        return computed(str(len(elements)))

    def _default_word(self, node: Node, state: State) -> Atoms:
        return tuple(
            a._replace(start=-1, end=-1, quoting=Quoting.COMPUTED) if isinstance(a, Char) else a
            for a in self.atoms(node, state)
        )

    def _element(self, node: Node, state: State) -> Atoms | None:
        name, index = node.named_children[0], node.named_children[-1]
        if self.raw(name) == "BASH_SOURCE":
            return computed(self.path)
        variable = state.variables.get(self.raw(name))
        text = self.text(index, state)
        if variable is None or variable.elements is None or not (text or "").isdigit():
            return None
        position = int(text or "0")
        if any(e.condition or e.hole for e in variable.elements[: position + 1]):
            return None
        inside = position < len(variable.elements)
        return unguard(variable.elements[position].atoms) if inside else ()

    # -- $( ... )

    def _substitution(self, node: Node, state: State) -> Atoms:
        """The idioms that name folders: dirname, basename, pwd, `cd x && pwd`, realpath, echo."""
        statements = node.named_children
        if len(statements) != 1:
            return self._hole(node)
        inside = state.copy()
        body = statements[0]
        written = self._printed_heredoc(body, inside)
        if written is not None:
            return written
        counted = self._counted(body, inside)
        if counted is not None:
            return computed(counted)
        parts = body.named_children if body.type == "list" else [body]
        for part in parts[:-1]:
            if not self._change_folder(part, inside):
                return self._hole(node)
        last = parts[-1]
        if last.type == "redirected_statement":
            last = last.named_children[0]
        words = self._words(last, inside)
        if words is None:
            return self._hole(node)
        answer = self.folders.answer(words, inside.cwd)
        return self._hole(node) if answer is None else computed(answer)

    def _printed_heredoc(self, node: Node, state: State) -> Atoms | None:
        """What `$(cat <<EOF` gives: the heredoc without the newlines at its end."""
        redirects = node.children_by_field_name("redirect")
        body = node.child_by_field_name("body")
        if body is None or self.raw(body) != "cat" or len(redirects) != 1:
            return None
        if redirects[0].type != "heredoc_redirect":
            return None
        atoms = self.document(redirects[0], state)
        while atoms and isinstance(atoms[-1], Char) and atoms[-1].text == "\n":
            atoms = atoms[:-1]
        return unguard(atoms)

    def _counted(self, node: Node, state: State) -> str | None:
        """What counts the parts of a list: `echo $X | awk -F, '{print NF}'` and its like."""
        parts = node.named_children if node.type == "pipeline" else [node]
        given: str | None = None
        if node.type == "command":
            herestring = node.children_by_field_name("redirect")
            if len(herestring) != 1 or herestring[0].type != "herestring_redirect":
                return None
            given = self.text(herestring[0].named_children[0], state)
        elif node.type == "pipeline":
            first = self._words(parts[0], state)
            given = " ".join(first[1:]) if first is not None and first[0] == "echo" else None
            parts = parts[1:]
        if given is None:
            return None
        given += "\n"
        for part in parts:
            words = self._words(part, state)
            after = None if words is None else filtered(words, given)
            if after is None:
                return None
            given = after
        return given.rstrip("\n")

    def _words(self, node: Node, state: State) -> list[str] | None:
        if node.type != "command":
            return None
        words = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                return None
            if child.type == "herestring_redirect":
                continue
            fields = self.fields(child, state)
            for found in fields:
                if found.text is None:
                    return None
                words.append(found.text)
        return words or None

    def _change_folder(self, node: Node, state: State) -> bool:
        if node.type == "redirected_statement":
            node = node.named_children[0]
        words = self._words(node, state)
        if words is None or words[0] != "cd" or len(words) < 2:
            return False
        state.cwd = self.folders.resolve(words[-1], state.cwd)
        return state.cwd is not None


def _all_elements(node: Node) -> str | None:
    """The name of `${NAME[@]}` or `${NAME[*]}`."""
    if node.type != "expansion" or len(node.children) != 3:
        return None
    subscript = node.children[1]
    if subscript.type != "subscript":
        return None
    text = (subscript.text or b"").decode(errors="surrogateescape")
    return text[:-3] if text.endswith(("[@]", "[*]")) else None


def _has_quotes(node: Node) -> bool:
    if node.type in ("string", "raw_string", "ansi_c_string"):
        return True
    return node.type == "concatenation" and any(_has_quotes(child) for child in node.children)
