"""One Python file as recipes see it: parsed once, names resolved, edited by spans of its text.

A recipe looks at the libcst tree and changes the text: an `Edit` replaces exactly the characters
of a node, so that untouched code, comments and formatting stay as they are. Offsets count
characters of `Source.text`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import (
    Assignment,
    ByteSpanPositionProvider,
    CodeRange,
    CodeSpan,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedName,
    QualifiedNameProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from infrarsi.workspace.recipes.base import Declined

Node = TypeVar("Node", bound=cst.CSTNode)
Function = cst.FunctionDef | cst.Lambda


@dataclass(frozen=True)
class Edit:
    """Replace `text[start:end]` of a file by `new`."""

    start: int
    end: int
    new: str


class Source:
    """A file that parses. Nodes given to its methods must come from its own `module`."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._ranges = cast(Mapping[cst.CSTNode, CodeRange], wrapper.resolve(PositionProvider))
        self._spans = cast(
            Mapping[cst.CSTNode, CodeSpan], wrapper.resolve(ByteSpanPositionProvider)
        )
        self._parents = cast(Mapping[cst.CSTNode, cst.CSTNode], wrapper.resolve(ParentNodeProvider))
        self._scopes = cast(Mapping[cst.CSTNode, Scope | None], wrapper.resolve(ScopeProvider))
        self._names = wrapper.resolve(QualifiedNameProvider)
        self._walks: dict[cst.CSTNode, list[cst.CSTNode]] = {}
        self._bytes = None if text.isascii() else text.encode()

    # Places

    def line(self, node: cst.CSTNode) -> int:
        """The 1-based line where the node starts."""
        return self._ranges[node].start.line

    def where(self, node: cst.CSTNode) -> str:
        """The place for a message: `model.py:41`."""
        return f"{self.path}:{self.line(node)}"

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Start and end offset of the node in `text`, surrounding white space left out."""
        span = self._spans[node]
        start, end = span.start, span.start + span.length
        if self._bytes is not None:
            start, end = (len(self._bytes[:at].decode()) for at in (start, end))
        return start, end

    def outer_span(self, node: cst.BaseExpression) -> tuple[int, int]:
        """Like `span`, with the node's own brackets where only white space is inside them."""
        start, end = self.span(node)
        for _ in node.lpar:
            before, after = self.text[:start].rstrip(), self.text[end:].lstrip()
            if not before.endswith("(") or not after.startswith(")"):
                break
            start, end = len(before) - 1, len(self.text) - len(after) + 1
        return start, end

    def code(self, node: cst.CSTNode) -> str:
        """The node as it is written."""
        start, end = self.span(node)
        return self.text[start:end]

    def indent(self, node: cst.CSTNode) -> str:
        """The white space at the start of the line where the node starts."""
        start = self._line_start(self.span(node)[0])
        line = self.text[start:]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    # The tree

    def nodes(self, kind: type[Node], under: cst.CSTNode | None = None) -> list[Node]:
        """All nodes of a kind at or under a node, in the order of the text."""
        return [node for node in self._below(under or self.module) if isinstance(node, kind)]

    def _below(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """The node and all below it; kept, since a recipe asks for many kinds in one place."""
        if node not in self._walks:
            self._walks[node] = list(walk(node))
        return self._walks[node]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The parent, None for the module."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Parent, grandparent and so on, the module last."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def enclosing(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """The nearest ancestor of one of the kinds."""
        return next((a for a in self.ancestors(node) if isinstance(a, kinds)), None)

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The innermost function around a node; None in a module, class body or lambda."""
        around = self.enclosing(node, cst.FunctionDef, cst.Lambda, cst.ClassDef)
        return around if isinstance(around, cst.FunctionDef) else None

    def statement(self, node: cst.CSTNode) -> cst.SimpleStatementLine | cst.BaseCompoundStatement:
        """The innermost statement line or compound statement that holds the node (or is it)."""
        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        if isinstance(node, kinds):
            return node
        return next(a for a in self.ancestors(node) if isinstance(a, kinds))

    # Names

    def qualified(self, node: cst.CSTNode) -> str | None:
        """The dotted name an expression has by import or built-in, whatever its alias.

        `F.softmax` under `import torch.nn.functional as F` is `torch.nn.functional.softmax`. None
        for local things, and where a name may be bound more than one way.
        """
        if not dotted(node):  # libcst names `torch.ones(2).view` as if it were `torch.ones.view`
            return None
        found = self._names.get(node)
        found = found() if callable(found) else found  # libcst computes names lazily
        names: set[QualifiedName] = set(cast(Iterable[QualifiedName], found or ()))
        if len(names) != 1:
            return None
        name = names.pop()
        if name.source is QualifiedNameSource.LOCAL:
            return None
        return name.name.removeprefix("builtins.")

    def calls(self, *names: str, under: cst.CSTNode | None = None) -> list[cst.Call]:
        """Calls of functions with one of these qualified names, in the order of the text."""
        return [c for c in self.nodes(cst.Call, under) if self.qualified(c.func) in names]

    def method_calls(self, *names: str, under: cst.CSTNode | None = None) -> list[cst.Call]:
        """Calls `something.name(...)` whose `something` is not an imported module."""
        return [
            c
            for c in self.nodes(cst.Call, under)
            if isinstance(c.func, cst.Attribute)
            and c.func.attr.value in names
            and self.qualified(c.func) is None
        ]

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """The scope in which the node's names are looked up."""
        return self._scopes.get(node)

    def assignments(self, name: cst.Name) -> list[cst.CSTNode]:
        """Every node that binds the name as seen from there (imports, parameters, targets)."""
        scope = self.scope(name)
        if scope is None:
            return []
        bound = [a for a in scope[name.value] if isinstance(a, Assignment | ImportAssignment)]
        return sorted((a.node for a in bound), key=self.line)

    def uses(self, name: cst.Name) -> list[cst.CSTNode]:
        """Every node that reads the name, as bound where it is seen from, in text order."""
        scope = self.scope(name)
        if scope is None:
            return []
        found = {access.node for a in scope[name.value] for access in a.references}
        return sorted(found, key=lambda node: self.span(node))

    def value_of(self, name: cst.Name) -> cst.BaseExpression | None:
        """The expression of the only plain assignment `name = expression` that binds the name.

        None where it is bound more than once, by anything else, or not at all.
        """
        bound = self.assignments(name)
        if len(bound) != 1:
            return None
        target = self.parent(bound[0])
        assign = self.parent(target) if isinstance(target, cst.AssignTarget) else None
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
            return assign.value
        return None

    def assigned_values(self, name: cst.Name) -> list[cst.BaseExpression]:
        """The values of all assignments to a name; empty where anything else binds it."""
        values = []
        for node in self.assignments(name):
            target = self.parent(node)
            assign = self.parent(target) if isinstance(target, cst.AssignTarget) else None
            if not isinstance(assign, cst.Assign):
                return []
            values.append(assign.value)
        return values

    def reach(self, qualified: str, at: cst.CSTNode) -> str | None:
        """How existing imports spell a qualified name at a node, the shortest; None if they do not.

        Sub-modules of torch that `import torch` loads (`torch.nn.functional`) count as reachable.
        """
        scope = self.scope(at)
        if scope is None:
            return None
        found = []
        for spelled in self._imported(self.module):
            target, name = spelled
            rest = qualified.removeprefix(target)
            if rest == qualified or (rest and not rest.startswith(".")):
                continue
            if all(isinstance(a, ImportAssignment) for a in scope[name]) and scope[name]:
                found.append(name + rest)
        return min(found, key=lambda text: (len(text), text), default=None)

    def _imported(self, module: cst.Module) -> list[tuple[str, str]]:
        """(qualified, local name) for every import at the top level of the module."""
        pairs: list[tuple[str, str]] = []
        for statement in module.body:
            for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                if isinstance(small, cst.Import):
                    pairs += [_import_pair(alias, "") for alias in small.names]
                elif isinstance(small, cst.ImportFrom) and not small.relative and small.module:
                    if isinstance(small.names, cst.ImportStar):
                        continue
                    prefix = dotted(small.module) + "."
                    pairs += [_import_pair(alias, prefix) for alias in small.names]
        return pairs

    # Edits

    def replace(self, node: cst.CSTNode, new: str) -> Edit:
        """Replace the characters of a node."""
        start, end = self.span(node)
        return Edit(start, end, new)

    def insert_after(self, statement: cst.CSTNode, lines: str) -> Edit:
        """Insert whole lines, indented like the statement, after it (and its trailing comment)."""
        at = self._line_end(self.span(statement)[1])
        text = self._indented(lines, self.indent(statement))
        return Edit(at, at, text if self.text[:at].endswith("\n") else self.newline + text)

    def remove_lines(self, statement: cst.CSTNode) -> Edit:
        """Remove a statement with the whole lines it stands on, its trailing comment included."""
        start, end = self.span(statement)
        return Edit(self._line_start(start), self._line_end(end), "")

    def add_import(self, line: str) -> Edit | None:
        """Add an import line after the last top-level import; None if it is there already.

        It stays below the docstring and `from __future__` lines.
        """
        body = self.module.body
        if any(self.code(s).split("#")[0].strip() == line for s in body):
            return None
        last: cst.CSTNode | None = None
        for index, statement in enumerate(body):
            small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
            is_docstring = index == 0 and isinstance(small, cst.Expr) and _is_string(small.value)
            if is_docstring or isinstance(small, cst.Import | cst.ImportFrom):
                last = statement
        if last is not None:
            return self.insert_after(last, line)
        at = self.span(body[0])[0] if body else len(self.text)
        return Edit(self._line_start(at), self._line_start(at), line + self.newline)

    @property
    def newline(self) -> str:
        """The line ending of the file."""
        return self.module.default_newline

    def _line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def _indented(self, lines: str, indent: str) -> str:
        return "".join(
            (indent + line if line else "") + self.newline for line in lines.splitlines()
        )

    def edited(self, edits: Iterable[Edit | None]) -> str:
        """The text after the edits (None is skipped); they must not overlap and must parse."""
        text = self.text
        ordered = sorted((e for e in edits if e is not None), key=lambda e: (e.start, e.end))
        for before, after in pairwise(ordered):
            if before.end > after.start:
                raise ValueError(f"edits overlap at {self.path}:{after.start}")
        for edit in reversed(ordered):
            text = text[: edit.start] + edit.new + text[edit.end :]
        cst.parse_module(text)
        return text


def rewritten(source: Source, edits: Iterable[Edit | None]) -> str | Declined:
    """`Source.edited`, or why the edits do not fit together: a recipe never raises."""
    try:
        return source.edited(edits)
    except (ValueError, cst.ParserSyntaxError):
        return Declined(f"{source.path}:1: the changed file would not parse, it is left as it is")


@lru_cache(maxsize=64)
def _parse(path: str, text: str) -> Source | Declined:
    try:
        ast.parse(text)
        return Source(path, text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        return Declined(f"{path}:{line}: the file does not parse as Python")
    except (cst.ParserSyntaxError, RecursionError, MemoryError) as error:
        line = getattr(error, "raw_line", 1)
        return Declined(f"{path}:{line}: the file does not parse as Python")


def parse(path: str, text: str) -> Source | Declined:
    """One file, or the reason that it does not parse; cached by content."""
    return _parse(path, text)


def parse_all(files: Mapping[str, str]) -> list[Source] | Declined:
    """The Python files in the order of their paths, or why one of them does not parse."""
    sources: list[Source] = []
    for path in sorted(files):
        if not path.endswith(".py"):
            continue
        source = parse(path, files[path])
        if isinstance(source, Declined):
            return source
        sources.append(source)
    return sources


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all below it, in the order of the text."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(top.children))


def dotted(node: cst.CSTNode) -> str:
    """`a.b.c` for a chain of names and attributes, "" for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return f"{head}.{node.attr.value}" if head else ""
    return ""


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """The argument given by keyword, or by position (0 is the first); None if it is not given.

    Positions after a starred argument are not known and give None.
    """
    for index, arg in enumerate(call.args):
        if arg.keyword is not None:
            if arg.keyword.value == name:
                return arg.value
        elif arg.star:
            position = None
        elif index == position:
            return arg.value
    return None


def is_starred(call: cst.Call) -> bool:
    """Whether a call has `*args` or `**kwargs`, so that its arguments are not all known."""
    return any(arg.star for arg in call.args)


def literal(node: cst.CSTNode | None) -> object:
    """The value of a literal expression (`-1`, `"x"`, `True`); `...` for anything else."""
    if not isinstance(node, cst.BaseExpression):
        return ...
    try:
        return ast.literal_eval(cst.Module(()).code_for_node(node).strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return ...


def same(first: cst.CSTNode, second: cst.CSTNode) -> bool:
    """Whether two nodes are the same code, white space and brackets around them left out."""
    return _bare(first) == _bare(second)


def _bare(node: cst.CSTNode) -> str:
    text = cst.Module(()).code_for_node(node)
    try:
        return ast.dump(ast.parse(text.strip(), mode="eval"))
    except SyntaxError:
        return text


def _is_string(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString | cst.ConcatenatedString)


def _import_pair(alias: cst.ImportAlias, prefix: str) -> tuple[str, str]:
    name = dotted(alias.name)
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return prefix + name, alias.asname.name.value
    if prefix:
        return prefix + name, name
    return name.split(".")[0], name.split(".")[0]
