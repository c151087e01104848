"""Every call of a file with the names that are known where it stands."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infrarsi.configs.constants import ENVIRON, UNKNOWN, constant, dotted
from infrarsi.draft.sources import PythonFile, Sources

_MAX_ROUNDS = 500


@dataclass(frozen=True)
class Call:
    """A call, the names known there, and the name that its result is bound to."""

    node: ast.Call
    names: Mapping[str, Any]
    bound: str = ""

    @property
    def name(self) -> str:
        """The last part of what is called."""
        return called(self.node)

    @property
    def owner(self) -> str:
        """What it is called on: `parser` in `parser.add_argument(...)`.

        The parameter of a helper function goes by the name of what it was called with.
        """
        owner = dotted(self.node.func).rpartition(".")[0]
        return str(self.names.get("@" + owner, owner))

    def keyword(self, name: str) -> ast.expr | None:
        """The expression of a keyword."""
        return next((k.value for k in self.node.keywords if k.arg == name), None)

    def value(self, name: str, otherwise: Any = None) -> Any:
        """The constant of a keyword, UNKNOWN where it is computed, `otherwise` where it is not."""
        node = self.keyword(name)
        return otherwise if node is None else constant(node, self.names)


def called(node: ast.Call) -> str:
    """The last name of what is called, also behind another call (`sub.add_parser("x").add_...`)."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return dotted(node.func).rpartition(".")[2]


def module_constants(
    file: PythonFile, environment: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """The top-level names of a file that are bound to a constant, and `os.environ`."""
    constants: dict[str, Any] = {ENVIRON: dict(environment or {})}
    for node in file.tree.body:
        if isinstance(node, ast.Assign):
            value = constant(node.value, constants)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    constants[target.id] = value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            constants[node.target.id] = constant(node.value, constants)
    return constants


def live_files(sources: Sources, *names: str) -> Iterator[tuple[PythonFile, ast.Module]]:
    """The files that hold one of the names, as they run: what another file than the entry does only
    as a program is left out of it.
    """
    for file in sources.holding(*names):
        if file is sources.entry:
            yield file, file.tree
            continue
        body = [node for node in file.tree.body if not _is_main_guard(node)]
        yield file, ast.Module(body, [])


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test)


@dataclass
class Walker:
    """Walks a tree; loops over literals are unrolled, helper functions entered per call."""

    tree: ast.Module
    names: dict[str, Any]
    wanted: tuple[str, ...]
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    calls_of: dict[str, list[ast.Call]] = field(default_factory=dict)
    making: set[ast.AST] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._mark(self.tree)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node in self.making:
                self.functions[node.name] = node
        for node in ast.walk(self.tree) if self.functions else ():
            if isinstance(node, ast.Call) and dotted(node.func) in self.functions:
                self.calls_of.setdefault(dotted(node.func), []).append(node)

    def _mark(self, node: ast.AST) -> bool:
        """Note the nodes with a wanted call in them; all others need no look."""
        found = isinstance(node, ast.Call) and called(node) in self.wanted
        for child in ast.iter_child_nodes(node):
            found = self._mark(child) or found
        if found:
            self.making.add(node)
        return found

    def calls(self) -> Iterator[Call]:
        """Every wanted call, in the order of the file; its names hold until the next is taken."""
        if self.making:
            yield from self._below(self.tree, self.names)

    def _below(self, tree: ast.AST, names: dict[str, Any]) -> Iterator[Call]:
        local = dict(names)
        for child in ast.iter_child_nodes(tree):
            if child in self.making:
                yield from self._within(child, local)
            if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
                local[child.targets[0].id] = constant(child.value, local)

    def _within(self, child: ast.AST, local: dict[str, Any]) -> Iterator[Call]:
        rounds = [local]
        if isinstance(child, ast.For):
            rounds = self._rounds(child, local) or [local]
        elif isinstance(child, ast.FunctionDef):
            rounds = self._entries(child, local)
        bound = ""
        inner: ast.AST = child
        if isinstance(child, ast.Assign) and len(child.targets) == 1:
            bound = dotted(child.targets[0])
            inner = child.value
        for known in rounds:
            if isinstance(inner, ast.Call) and called(inner) in self.wanted:
                yield Call(inner, known, bound)
            yield from self._below(inner, known)

    def _entries(self, node: ast.FunctionDef, names: dict[str, Any]) -> list[dict[str, Any]]:
        """The names inside a function, once for each call of it that gives constants."""
        arguments = [*node.args.posonlyargs, *node.args.args]
        parameters = [a.arg for a in arguments] + [a.arg for a in node.args.kwonlyargs]
        inside = {**names, **dict.fromkeys(parameters, UNKNOWN)}
        defaults = node.args.defaults
        if defaults:
            for argument, default in zip(arguments[-len(defaults) :], defaults, strict=True):
                inside[argument.arg] = constant(default, names)
        for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if value is not None:
                inside[argument.arg] = constant(value, names)
        uses = self.calls_of.get(node.name, [])
        if not uses or len(uses) > _MAX_ROUNDS:
            return [inside]
        rounds = []
        for use in uses:
            given = {n: constant(a, names) for n, a in zip(parameters, use.args, strict=False)}
            given |= {k.arg: constant(k.value, names) for k in use.keywords if k.arg}
            own = {f"@{n}": dotted(a) for n, a in zip(parameters, use.args, strict=False)}
            one = {**inside, **given, **own}
            if one not in rounds:
                rounds.append(one)
        return rounds

    def _rounds(self, loop: ast.For, names: dict[str, Any]) -> list[dict[str, Any]]:
        items = _items(loop.iter, names)
        if items is None or len(items) > _MAX_ROUNDS:
            return []
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        rounds = []
        for item in items:
            values = item if isinstance(loop.target, ast.Tuple) else [item]
            if not isinstance(values, list) or len(values) != len(targets):
                return []
            bound = {dotted(t): v for t, v in zip(targets, values, strict=True)}
            rounds.append({**names, **bound})
        return rounds


def _items(node: ast.expr, names: Mapping[str, Any]) -> list[Any] | None:
    """What a loop goes through: a literal list, or the items of a literal dictionary."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("items", "keys") and isinstance(node.func.value, ast.Dict):
            table = node.func.value
            keys = [constant(key, names) if key else UNKNOWN for key in table.keys]
            if any(key is UNKNOWN for key in keys):
                return None
            if node.func.attr == "keys":
                return keys
            return [[k, constant(v, names)] for k, v in zip(keys, table.values, strict=True)]
        return None
    if isinstance(node, ast.List | ast.Tuple):
        return [_item(item, names) for item in node.elts]
    items = constant(node, names)
    return items if isinstance(items, list) else None


def _item(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """One item of a list: a tuple whose parts may each be unknown."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_item(part, names) for part in node.elts]
    return constant(node, names)
