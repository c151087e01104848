"""What names in a file stand for: dotted paths through imports and aliases, and constant text.

The reading does not follow the flow of control: a name stands for everything that the file binds
it to anywhere. It errs towards seeing too much, which suits an audit.
"""

import ast
import builtins
from collections.abc import Iterator
from functools import cached_property

from infrarsi.workspace.patch_audit.folding import Fold

BUILTINS = frozenset(dir(builtins))
GLOBALS = "<globals>"
_ROUNDS = 4  # an alias of an alias of an alias of an alias
_STARS = {
    "time": ("time", "perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns"),
    "gc": ("get_objects", "get_referrers", "get_referents", "callbacks"),
    "sys": ("modules", "meta_path", "settrace", "setprofile", "_getframe"),
    "os": ("_exit", "environ", "kill", "fork", "execv", "closerange", "system"),
}

Paths = frozenset[str]
NONE: Paths = frozenset()


class Names:
    """The names of one module."""

    def __init__(self, tree: ast.AST) -> None:
        self.nodes = list(ast.walk(tree))
        self.imported: dict[str, set[str]] = {}
        self._aliases: dict[str, set[str]] = {}
        self._bound: set[str] = set()
        self._fold = Fold(self.nodes)
        self._seen: dict[int, Paths] = {}
        for node in self.nodes:
            self._bind(node)
        assigned = [pair for node in self.nodes for pair in _assignments(node)]
        for _ in range(_ROUNDS):
            self._seen.clear()
            before = sum(map(len, self._aliases.values()))
            for name, value in assigned:
                paths = self.paths(value)
                if paths:
                    self._aliases.setdefault(name, set()).update(paths)
            if sum(map(len, self._aliases.values())) == before:
                break
        self._seen.clear()

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The node that holds each node, by `id`."""
        return {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def text(self, node: ast.AST | None) -> str | None:
        """The text that an expression always has, however it is put together; None if not known."""
        return self._fold.text(node)

    def begins(self, node: ast.AST | None) -> str:
        """How a path or text surely begins, as far as it can be told."""
        return self._fold.begins(node)

    def is_pieced(self, node: ast.AST | None) -> bool:
        """Whether a known text is put together although it could have been written out."""
        return self._fold.is_pieced(node)

    def paths(self, node: ast.AST | None) -> Paths:
        """The dotted paths that an expression may stand for: `time.perf_counter`.

        Names of the project's own have none. A call has none either, unless it looks something up.
        """
        if node is None:
            return NONE
        known = self._seen.get(id(node))
        if known is None:
            self._seen[id(node)] = NONE  # an alias of itself
            known = self._seen[id(node)] = frozenset(self._look_up(node))
        return known

    def _look_up(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield from self._of_name(node.id)
        elif isinstance(node, ast.Attribute):
            for base in self.paths(node.value):
                yield f"{base}.{node.attr}"
            if "." in _key(node):
                yield from self._aliases.get(_key(node), ())
        elif isinstance(node, ast.Call):
            yield from self._of_call(node)
        elif isinstance(node, ast.Subscript):
            yield from self._of_item(node)
        elif isinstance(node, ast.IfExp):
            yield from self.paths(node.body) | self.paths(node.orelse)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.paths(value)
        elif isinstance(node, ast.NamedExpr):
            yield from self.paths(node.value)

    def _of_name(self, name: str) -> Iterator[str]:
        yield from self._aliases.get(name, ())
        if name == "__builtins__":
            yield "builtins"
        elif name in BUILTINS and name not in self._bound:
            yield f"builtins.{name}"

    def _of_call(self, node: ast.Call) -> Iterator[str]:
        called = self.paths(node.func)
        first = node.args[0] if node.args else None
        second = node.args[1] if len(node.args) > 1 else None
        for path in called:
            head, _, last = path.rpartition(".")
            unbound = last == "__getattribute__" and second is not None
            if path == "builtins.getattr" or unbound:
                yield from self._attributes(self.paths(first), self.text(second))
            elif last == "__getattribute__":
                yield from self._attributes(frozenset([head]), self.text(first))
            elif path in ("builtins.__import__", "importlib.import_module", "importlib.__import__"):
                name = self.text(first)
                if name:
                    yield name.split(".")[0] if path.endswith("__import__") else name
            elif path == "importlib.reload":
                yield from self.paths(first)
            elif path in ("builtins.globals", "builtins.locals"):
                yield GLOBALS
            elif path == "builtins.vars":
                yield from (f"{base}.__dict__" for base in self.paths(first))
                if first is None:
                    yield GLOBALS
            elif last in ("get", "pop", "setdefault", "__getitem__"):
                yield from self._items(frozenset([head]), self.text(first))

    def _attributes(self, bases: Paths, name: str | None) -> Iterator[str]:
        if name is not None:
            yield from (f"{base}.{name}" for base in bases)

    def _of_item(self, node: ast.Subscript) -> Iterator[str]:
        yield from self._items(self.paths(node.value), self.text(node.slice))
        if isinstance(node.value, ast.List | ast.Tuple):
            for item in node.value.elts:
                yield from self.paths(item)
        elif isinstance(node.value, ast.Dict):
            for value in node.value.values:
                yield from self.paths(value)

    def _items(self, bases: Paths, key: str | None) -> Iterator[str]:
        if key is None:
            return
        for base in bases:
            if base == GLOBALS:
                yield from self._of_name(key)
            elif base == "sys.modules":
                yield key
            elif base.endswith(".__dict__"):
                yield f"{base.removesuffix('.__dict__')}.{key}"

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                self._import(name, alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names if node.level == 0 else ():
                if alias.name == "*":
                    for name in _STARS.get(node.module or "", ()):
                        self._import(name, f"{node.module}.{name}")
                else:
                    self._import(alias.asname or alias.name, f"{node.module}.{alias.name}")
            self._bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._bound.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self._bound.add(node.id)
        elif isinstance(node, ast.arg):
            self._bound.add(node.arg)

    def _import(self, name: str, path: str) -> None:
        self.imported.setdefault(name, set()).add(path)
        self._aliases.setdefault(name, set()).add(path)
        self._bound.add(name)


def _key(node: ast.AST) -> str:
    """The text of a plain chain of names, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and the expressions that they are bound to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield from _unpacked(node.target, node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        if isinstance(node.iter, ast.Tuple | ast.List | ast.Set):
            for item in node.iter.elts:
                yield from _unpacked(node.target, item)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _unpacked(node.optional_vars, node.context_expr)
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        for argument, default in zip(reversed(positional), reversed(node.defaults), strict=False):
            yield argument.arg, default
        for argument, given in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            if given is not None:
                yield argument.arg, given


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for part, item in zip(target.elts, value.elts, strict=False):
            yield from _unpacked(part, item)
    elif isinstance(target, ast.Name | ast.Attribute) and _key(target):
        yield _key(target), value
