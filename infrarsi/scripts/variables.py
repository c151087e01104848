"""Where a script reads and writes a variable, as far as an edit of it depends on that."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from infrarsi.scripts.interpreter import SETS_UP, Invocation, assignments_of
from infrarsi.scripts.launching import Launched
from infrarsi.scripts.reading import Reading

Files = Callable[[str], str | None]
_NAMING = ("read", "mapfile", "readarray", "getopts", "let", "printf", "eval", "declare", "unset")
_COMPUTED = ("simple_expansion", "expansion", "command_substitution", "process_substitution")
_LOOPS = ("for_statement", "c_style_for_statement", "while_statement")
_COMPARING = ("==", "!=", "<=", ">=")
_SOURCES = ("source", ".")
_SOURCING = re.compile(r"(^|[\s;&|])(source|\.)\s+\S", re.M)
_SETTING_BY_NAME = re.compile(r"\beval\b|\b(export|declare|typeset|readonly)\s+(-\w+\s+)*[\"']?\$")


@dataclass(frozen=True)
class Use:
    """One place of a script, with what it does there for messages."""

    start: int
    line: int
    raw: str


@dataclass(frozen=True)
class Variable:
    """One variable of a script as it is up to the training command.

    `reads` may use its value; `writes` are assignments that can be rewritten, those in front of
    the training command and of functions included; `lost` are writes that cannot be rewritten,
    and `unread` files that are read in and cannot be looked into; either may undo an edit.
    """

    reading: Reading
    launched: Launched
    name: str
    files: Files | None

    @cached_property
    def mentions(self) -> tuple[Node, ...]:
        """Every place outside comments where the name stands, in the order of the text."""
        pattern = re.compile(rb"(?<!\w)" + self.name.encode() + rb"(?!\w)")
        root = self.reading.tree.root_node
        found = []
        for match in pattern.finditer(self.reading.expander.source):
            node = root.descendant_for_byte_range(match.start(), match.end())
            if node is not None and not any(n.type == "comment" for n in _upwards(node)):
                found.append(node)
        return tuple(found)

    @cached_property
    def writes(self) -> tuple[Node, ...]:
        """Assignments that can decide what the training command gets, in the order of the text.

        Branches that are not taken today count, since another value may take them; `X=1` in front
        of another command does not.
        """
        return tuple(
            node.parent
            for node in self.mentions
            if node.parent is not None
            and node.parent.type == "variable_assignment"
            and node.parent.children[0] == node
            and not self._is_foreign(node.parent)
        )

    @cached_property
    def in_front(self) -> tuple[tuple[int, int], ...]:
        """The spans of `X=...` in front of the launcher, `env X=...` included."""
        prefix = [s.node for s in self.launched.invocation.prefix if s.name == self.name]
        return tuple((n.start_byte, n.end_byte) for n in prefix) + self.words

    @cached_property
    def words(self) -> tuple[tuple[int, int], ...]:
        """Those that are words of a command such as `env`."""
        fields = self.launched.invocation.fields[: self.launched.launcher_end]
        start = f"{self.name}="
        return tuple(f.word for f in fields if f.word and f.known_prefix.startswith(start))

    @property
    def is_special(self) -> bool:
        """Whether `export X=1` may do something else, since it is readonly, an array or a name."""
        declarations = [
            self.reading.expander.raw(above).split()
            for node in self.mentions
            for above in _upwards(node)
            if above.type == "declaration_command"
        ]
        options = {word for words in declarations for word in words if word.startswith("-")}
        readonly = any(words[0] == "readonly" for words in declarations)
        arrays = any(not is_scalar(node) for node in self.writes)
        return readonly or arrays or any(set(option) & set("rAan") for option in options)

    @cached_property
    def reads(self) -> tuple[Use, ...]:
        """Places that may use the value; an assignment that rewrites itself is none."""
        spans = [(node.start_byte, node.end_byte) for node in self.writes]
        spans += self.in_front
        found = [
            self._use(node)
            for node in self.mentions
            if not any(start <= node.start_byte < end for start, end in spans)
            and not self._only_declares(node)
            and not self._is_written(node)
        ]
        return tuple(sorted([*found, *self._sourced[0]], key=lambda use: use.start))

    @cached_property
    def lost(self) -> tuple[Use, ...]:
        """Writes that no edit can be put in place of."""
        found = [self._use(node) for node in self.mentions if self._is_written(node)]
        found += [self._use(node) for node in self.writes if not _is_plain(node, self.name)]
        return tuple(found) + self._sourced[1]

    @cached_property
    def unread(self) -> tuple[Use, ...]:
        """Files that are read in, whose text is not known and may set or use any variable."""
        return self._sourced[2]

    def set_by_name(self, start: int) -> Use | None:
        """A statement between `start` and the training command that may set any variable."""
        end = self.launched.invocation.node.start_byte
        for node in _descend(self.reading.tree.root_node):
            inside = any(n.type == "function_definition" for n in _upwards(node))
            if (start <= node.start_byte < end or inside) and self._sets_any(node):
                return self._use(node)
        return next((use for use in self._sourced[3] if use.start >= start), None)

    def first(self) -> Node | None:
        """The first statement of the script itself that has to do with the variable."""
        starts = [node.start_byte for node in self.mentions] + [r.start for r in self._sourced[0]]
        if not starts:
            return None
        at = min(starts)
        statements = self.reading.tree.root_node.named_children
        return next((n for n in statements if n.start_byte <= at < n.end_byte), None)

    def _use(self, node: Node) -> Use:
        raw = " ".join(self.reading.expander.raw(_statement(node)).split())
        return Use(node.start_byte, self.reading.expander.line(node), raw[:60])

    def _only_declares(self, node: Node) -> bool:
        """`export X` and the like, and `X=1` in front of some other command."""
        parent = node.parent
        if node.type != "variable_name" or parent is None:
            return False
        if parent.type == "variable_assignment" and parent.children[0] == node:
            return True
        return parent.type == "declaration_command"

    def _is_foreign(self, assignment: Node) -> bool:
        """Whether an assignment stands in front of a command that is not the training command."""
        command = assignment.parent
        if command is None or command.type != "command":
            return False
        if assignment in assignments_of(command, self.reading.expander.source)[0]:
            return False
        name = command.child_by_field_name("name")
        if command.start_byte == self.launched.invocation.node.start_byte or name is None:
            return False
        return self.reading.expander.raw(name) not in self._functions

    @cached_property
    def _functions(self) -> frozenset[str]:
        names = [
            node.child_by_field_name("name")
            for node in _descend(self.reading.tree.root_node)
            if node.type == "function_definition"
        ]
        return frozenset(self.reading.expander.raw(name) for name in names if name is not None)

    def _is_written(self, node: Node) -> bool:
        """Whether a mention writes the variable other than by an assignment of one value."""
        parent = node.parent
        if parent is None or any(above.is_error for above in _upwards(node)):
            return True
        is_first = parent.children[0] == node
        sign = self.reading.expander.raw(parent.children[1]) if parent.child_count > 1 else ""
        if parent.type == "binary_expression" and is_first:
            return sign.endswith("=") and sign not in _COMPARING and node.type == "variable_name"
        if parent.type in ("postfix_expression", "unset_command", "subscript"):
            return parent.type != "subscript" or _is_target(parent)
        if parent.type == "unary_expression":
            return self.reading.expander.raw(parent).startswith(("++", "--"))
        if parent.type == "for_statement":
            return parent.child_by_field_name("variable") == node
        if parent.type == "variable_assignment" and is_first:
            return parent.parent is not None and parent.parent.type == "c_style_for_statement"
        if parent.type == "declaration_command" and node.type == "variable_name":
            words = self.reading.expander.raw(parent).split()
            return "-n" in words or (words[0] not in ("export", "readonly") and "-x" not in words)
        return node.type != "variable_name" and self._is_named(node)

    def _is_named(self, node: Node) -> bool:
        """Whether a name that stands as text is given to a command that sets variables."""
        for above in _upwards(node):
            if above.type in ("declaration_command", "unset_command"):
                return True
            if above.type == "command":
                name = above.child_by_field_name("name")
                own = above.start_byte == self.launched.invocation.node.start_byte
                return not own and name is not None and self.reading.expander.raw(name) in _NAMING
        return False

    def _sets_any(self, node: Node) -> bool:
        if node.type == "declaration_command":
            return any(
                child.type not in ("variable_assignment", "variable_name")
                and any(inner.type in _COMPUTED for inner in _descend(child))
                for child in node.named_children
            )
        if node.type != "command" or node.start_byte == self.launched.invocation.node.start_byte:
            return False
        name = node.child_by_field_name("name")
        command = "" if name is None else self.reading.expander.raw(name)
        words = node.children_by_field_name("argument")
        if command == "printf":
            texts = [self.reading.expander.raw(word) for word in words]
            target = words[texts.index("-v") + 1 :][:1] if "-v" in texts else []
            return any(n.type in _COMPUTED for word in target for n in _descend(word))
        if command not in ("eval", "read", "mapfile", "readarray", "getopts", "let"):
            return False
        return any(n.type in _COMPUTED for word in words for n in _descend(word))

    @cached_property
    def _sourced(self) -> tuple[tuple[Use, ...], tuple[Use, ...], tuple[Use, ...], tuple[Use, ...]]:
        """Files read in: those that use the variable, set it, are not known, may set any."""
        uses: tuple[list[Use], list[Use], list[Use], list[Use]] = ([], [], [], [])
        for invocation in self.reading.invocations:
            if len(invocation.fields) < 2 or invocation.fields[0].text not in _SOURCES:
                continue
            use = self._use(invocation.node)
            text = self._text_of(invocation)
            if text is None:
                if not SETS_UP.search(use.raw):
                    uses[2].append(use)
                continue
            name = re.escape(self.name)
            text = re.sub(r"(^|\s)#.*", "", text)
            rest = re.sub(rf"\$(\{{{name}(?!\w|:?=|\[)|{name}(?!\w))", "", text)
            if re.search(rf"(?<!\w){name}(?!\w)", rest):
                uses[1].append(use)
            elif rest != text:
                uses[0].append(use)
            if any(not SETS_UP.search(m.group(0)) for m in _SOURCING.finditer(text)):
                uses[2].append(use)
            if _SETTING_BY_NAME.search(text):
                uses[3].append(use)
        return tuple(uses[0]), tuple(uses[1]), tuple(uses[2]), tuple(uses[3])

    def _text_of(self, invocation: Invocation) -> str | None:
        path = invocation.fields[1].text
        if path is None or self.files is None:
            return None
        inside = self.reading.expander.folders.resolve(path, invocation.state.cwd)
        return None if inside is None else self.files(inside)


def is_default(write: Node, name: str) -> bool:
    """Whether an assignment keeps a value that is there already: `X=${X:-2}`."""
    value = write.child_by_field_name("value")
    text = b"" if value is None else (value.text or b"").strip(b'"')
    return re.match(rb"\$\{" + name.encode() + rb":?-", text) is not None


def keeps(write: Node, name: str) -> bool:
    """Whether an assignment gives a variable what it holds: `X=$X`, or a default."""
    value = write.child_by_field_name("value")
    text = b"" if value is None else (value.text or b"").strip(b'"')
    return is_default(write, name) or text in (b"$%b" % name.encode(), b"${%b}" % name.encode())


def _is_plain(write: Node, name: str) -> bool:
    """An assignment `X=...` of one value that no loop lives on."""
    value = write.child_by_field_name("value")
    appends = any(child.type == "+=" for child in write.children)
    return is_scalar(write) and not appends and not _in_changing_loop(write, value, name)


def is_scalar(write: Node) -> bool:
    """Whether an assignment is that of one value, and not of an array or its element."""
    target, value = write.child_by_field_name("name"), write.child_by_field_name("value")
    is_array = value is not None and value.type == "array"
    return target is not None and target.type == "variable_name" and not is_array


def _in_changing_loop(write: Node, value: Node | None, name: str) -> bool:
    loop = next((n for n in _upwards(write) if n.type in _LOOPS), None)
    if loop is None:
        return False
    outside = (loop.text or b"").replace(write.text or b"", b"")
    inside = b"" if value is None else value.text or b""
    return re.search(rb"(?<!\w)" + name.encode() + rb"(?!\w)", outside + b" " + inside) is not None


def _is_target(subscript: Node) -> bool:
    above = subscript.parent
    return above is not None and above.type == "variable_assignment"


def _upwards(node: Node) -> Iterator[Node]:
    above: Node | None = node
    while above is not None:
        yield above
        above = above.parent


def _descend(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _descend(child)


def _statement(node: Node) -> Node:
    """The smallest whole command around a node, for messages."""
    kinds = (
        "command",
        "declaration_command",
        "unset_command",
        "variable_assignment",
        "test_command",
    )
    return next((n for n in _upwards(node) if n.type in kinds), node)
