"""What a Python file does that no honest change needs: hooks, frames, clocks, other processes.

Each finding is keyed by what it is and by its code, layout left out, so that code which a patch
only moved is not held against it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from infrarsi.workspace.patch_audit import rules
from infrarsi.workspace.patch_audit.names import GLOBALS, Names


@dataclass(frozen=True)
class Finding:
    """One thing that is refused: where, the statement, and why.

    `key` is the same for code that was only moved or laid out anew.
    """

    line: int
    code: str
    why: str
    key: tuple[str, str]


def findings(tree: ast.AST, imported_before: dict[str, set[str]] | None = None) -> list[Finding]:
    """Everything refused in a module, in the order of lines.

    `imported_before` are the imported names of the file as it was: a clock that the patch takes
    the import of and defines itself counts as replaced.
    """
    found: dict[tuple[int, tuple[str, str]], Finding] = {}
    for finding in _Search(Names(tree), imported_before or {}).run():
        found.setdefault((finding.line, finding.key), finding)
    return sorted(found.values(), key=lambda finding: finding.line)


class _Search:
    def __init__(self, names: Names, imported_before: dict[str, set[str]]) -> None:
        self._names = names
        self._docstrings = {
            id(node.value)
            for node in names.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        clocks = {**imported_before}
        for name, paths in names.imported.items():
            clocks[name] = clocks.get(name, set()) | paths
        self._clocks = {
            name
            for name, paths in clocks.items()
            if any(path.split(".")[0] in rules.CLOCKS for path in paths)
        }

    def run(self) -> Iterator[Finding]:
        for node in self._names.nodes:
            line = getattr(node, "lineno", None)
            if line is None:
                continue
            for why in self._reasons(node):
                code = ast.unparse(self._statement(node)).partition("\n")[0]
                yield Finding(line, code, why, (self._key(node, code), why))

    def _reasons(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._import(node)
        if isinstance(node, ast.Name | ast.Attribute):
            yield from self._named(node)
        if isinstance(node, ast.Subscript):
            yield from self._looked_up(node)
        if isinstance(node, ast.Call):
            yield from self._call(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in self._clocks and not self._in_class_body(node):
                yield rules.CLOCK
            if rules.REFUSED_NAME.search(node.name):
                yield rules.WITNESS
        if isinstance(node, ast.arg | ast.keyword) and rules.REFUSED_NAME.search(node.arg or ""):
            yield rules.WITNESS
        if isinstance(node, ast.keyword) and _detaches(node):
            yield rules.DETACHED
        if isinstance(node, ast.keyword) and (why := rules.refused_text(node.arg or "")):
            yield why  # dict(os.environ, PYTHONPATH="")
        if isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr | ast.Call | ast.Subscript):
            yield from self._text(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        else:
            module = node.module or ""
            paths = [f"{module}.{alias.name}" for alias in node.names]
            starred = any(alias.name == "*" for alias in node.names)
            if starred and module in rules.KEPT_WHOLE - {"time", "os"}:
                yield rules.UNREADABLE
        for path in paths:
            if not getattr(node, "level", 0) and (why := rules.refused_path(path)):
                yield why
            if any(rules.REFUSED_NAME.search(part) for part in path.split(".")):
                yield rules.WITNESS if "infrarsi" in path.lower() else rules.HOOKS
        for alias in node.names:
            bound = alias.asname or alias.name
            origin = f"{getattr(node, 'module', None) or alias.name}".split(".")[0]
            if bound in self._clocks and origin not in rules.CLOCKS:
                yield rules.CLOCK

    def _named(self, node: ast.Name | ast.Attribute) -> Iterator[str]:
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in rules.REFUSED_ATTRIBUTES:
            yield rules.REFUSED_ATTRIBUTES[name]
        if rules.REFUSED_NAME.search(name):
            yield rules.WITNESS if "infrarsi" in name.lower() else rules.HOOKS
        paths = self._names.paths(node)
        for path in paths:
            if why := rules.refused_path(path):
                yield why
        if isinstance(node.ctx, ast.Load):
            yield from self._carried(node, paths)
        elif isinstance(node, ast.Attribute):
            bases = self._names.paths(node.value)
            if any(rules.protected(f"{base}.{node.attr}") for base in bases):
                yield rules.REPLACED
        elif name in self._clocks and not (self._is_clock_still(node) or self._in_class_body(node)):
            yield rules.CLOCK

    def _carried(self, node: ast.AST, paths: frozenset[str]) -> Iterator[str]:
        """A module or a setter that goes where it cannot be followed."""
        parent = self._names.parents.get(id(node))
        if paths & rules.SETTERS and not (isinstance(parent, ast.Call) and parent.func is node):
            if not isinstance(parent, ast.Assign | ast.Attribute):
                yield rules.HANDED_ON
        elif paths & rules.NOT_HANDED_ON and self._is_handed_on(node, parent):
            yield rules.HANDED_ON

    def _is_handed_on(self, node: ast.AST, parent: ast.AST | None) -> bool:
        if isinstance(parent, ast.Call):
            called = self._names.paths(parent.func)
            known = rules.LOOKERS | rules.SETTERS | {"builtins.vars", "builtins.dir"}
            return node is not parent.func and not called & known
        carriers = ast.List | ast.Dict | ast.Set | ast.Return | ast.Yield | ast.keyword | ast.Lambda
        return isinstance(parent, carriers)

    def _is_clock_still(self, node: ast.Name) -> bool:
        """Whether the name is bound to a clock by this very statement."""
        parent = self._names.parents.get(id(node))
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            paths = self._names.paths(parent.value) if parent.value is not None else ()
            return any(path.split(".")[0] in rules.CLOCKS for path in paths)
        return False

    def _in_class_body(self, node: ast.AST) -> bool:
        """Whether a name is an attribute of a class, which shadows nothing."""
        if not isinstance(node, ast.stmt):
            node = self._names.parents.get(id(node), node)
        return isinstance(self._names.parents.get(id(node)), ast.ClassDef)

    def _looked_up(self, node: ast.Subscript) -> Iterator[str]:
        bases = self._names.paths(node.value)
        key = self._names.text(node.slice)
        stored = not isinstance(node.ctx, ast.Load)
        for base in bases:
            if base == "sys.modules" and (stored or key is None):
                if stored or not _is_dunder_name(node.slice):
                    yield rules.IMPORTS
            elif base == GLOBALS and (
                self._names.is_pieced(node.slice) or (stored and key is None)
            ):
                yield rules.PIECED
            elif base == "os.environ" and stored and key is None:
                yield rules.UNREADABLE
            elif base.endswith(".__dict__"):
                owner = base.removesuffix(".__dict__")
                if stored and rules.protected(f"{owner}.{key or '?'}"):
                    yield rules.REPLACED
                elif key is None and owner in rules.KEPT_WHOLE:
                    yield rules.UNREADABLE
        for path in self._names.paths(node):
            if why := rules.refused_path(path):
                yield why
            if stored and rules.protected(path):
                yield rules.REPLACED

    def _call(self, node: ast.Call) -> Iterator[str]:
        called = self._names.paths(node.func)
        first = node.args[0] if node.args else None
        second = node.args[1] if len(node.args) > 1 else None
        for path in self._names.paths(node):
            if why := rules.refused_path(path):
                yield why
        for path in called:
            head, _, last = path.rpartition(".")
            if path in rules.SETTERS:
                yield from self._set(first, second)
            elif last in rules.MUTATORS:
                yield from self._mutated(head, last, first)
            elif path in rules.LOOKERS or last == "__getattribute__":
                yield from self._looked_at(first, second)
            elif path == "importlib.import_module" and (
                self._names.text(first) is None or self._names.is_pieced(first)
            ):
                yield rules.UNREADABLE
            elif head == "sys.modules" and last in ("values", "items", "copy"):
                yield rules.TOLD_OF
            elif path in ("os.unsetenv", "os.putenv") and self._names.text(first) is None:
                yield rules.UNREADABLE
        yield from self._descriptor(node, called)
        yield from self._written(node)

    def _set(self, owner: ast.expr | None, name: ast.expr | None) -> Iterator[str]:
        text = self._names.text(name)
        if self._names.is_pieced(name):
            yield rules.PIECED
        if text and (why := rules.REFUSED_ATTRIBUTES.get(text)):
            yield why
        for base in self._names.paths(owner):
            if base == "sys.modules":
                yield rules.IMPORTS
            if rules.protected(f"{base.removesuffix('.__dict__')}.{text or '?'}"):
                yield rules.REPLACED

    def _mutated(self, base: str, method: str, first: ast.expr | None) -> Iterator[str]:
        if base == "sys.modules":
            yield rules.IMPORTS
        elif base == "os.environ":
            if method in ("clear", "popitem"):
                yield rules.PYTHON_START
            elif method in ("pop", "__delitem__") and self._names.text(first) is None:
                yield rules.UNREADABLE
        elif rules.protected(f"{base}.?") and (
            base.endswith(".__dict__") or method in ("__setattr__", "__delattr__")
        ):
            yield rules.REPLACED

    def _looked_at(self, owner: ast.expr | None, name: ast.expr | None) -> Iterator[str]:
        text = self._names.text(name)
        if self._names.is_pieced(name):
            yield rules.PIECED
        if text and (why := rules.REFUSED_ATTRIBUTES.get(text)):
            yield why
        computed = text is None and name is not None
        if computed and self._names.paths(owner) & rules.KEPT_WHOLE:
            yield rules.UNREADABLE

    def _descriptor(self, node: ast.Call, called: frozenset[str]) -> Iterator[str]:
        wanted = {"os.write", "os.read", "os.close", "os.fdopen", "os.dup", "builtins.open",
                  "io.open", "io.FileIO", "os.sendfile", "os.pwrite", "os.ftruncate"}  # fmt: skip
        number = node.args[0] if called & wanted and node.args else None
        if isinstance(number, ast.Constant) and number.value in range(3, 1 << 16):
            yield rules.DESCRIPTOR

    def _written(self, node: ast.Call) -> Iterator[str]:
        name = _last(node.func)
        places: list[ast.expr] = []
        if name in rules.OPENERS:
            if not self._opens_to_write(node):
                return
            places = [*node.args[:1], *_owner(node)]
        elif name in rules.WRITERS:
            places = [*node.args, *(k.value for k in node.keywords), *_owner(node)]
        if name == "replace" and len(node.args) == 2 and not self._names.paths(node.func):
            return  # a text's
        if any(rules.lies_outside(self._names.begins(place)) for place in places):
            yield rules.OUTSIDE

    def _opens_to_write(self, node: ast.Call) -> bool:
        modes = [k.value for k in node.keywords if k.arg in ("mode", "flag")]
        by_path = isinstance(node.func, ast.Attribute) and not self._names.paths(node.func)
        modes += node.args[:1] if by_path and len(node.args) < 2 else node.args[1:3]
        texts = [self._names.text(mode) or "" for mode in modes]
        return any(len(text) < 5 and set(text) & set("wax+") for text in texts)

    def _text(self, node: ast.AST) -> Iterator[str]:
        if id(node) in self._docstrings:
            return
        if not isinstance(node, ast.Constant) and not self._names.is_pieced(node):
            return
        text = self._names.text(node)
        why = rules.refused_text(text) if text else None
        if why is not None and not (why == rules.PYTHON_START and self._is_read(node)):
            yield why

    def _is_read(self, node: ast.AST) -> bool:
        """Whether a name of the environment is only asked for."""
        parent = self._names.parents.get(id(node))
        if isinstance(parent, ast.Subscript):
            return isinstance(parent.ctx, ast.Load)
        if isinstance(parent, ast.Call):
            return _last(parent.func) in ("get", "getenv")
        return isinstance(parent, ast.Compare)

    def _key(self, node: ast.AST, statement: str) -> str:
        """What makes two findings the same: the whole statement where something is stored."""
        if isinstance(node, ast.stmt) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return statement
        parent = self._names.parents.get(id(node))
        if isinstance(parent, ast.Call) and parent.func is node:
            node = parent
        return statement if isinstance(node, ast.keyword) else ast.unparse(node)

    def _statement(self, node: ast.AST) -> ast.AST:
        """The simple statement around a node, or the largest expression."""
        while not isinstance(node, _SIMPLE):
            parent = self._names.parents.get(id(node))
            if not isinstance(parent, ast.expr | ast.keyword | _SIMPLE):
                break
            node = parent
        return node


_SIMPLE = (
    ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete | ast.Expr | ast.Return | ast.Import
    | ast.ImportFrom
)  # fmt: skip


def _detaches(node: ast.keyword) -> bool:
    never = isinstance(node.value, ast.Constant) and not node.value.value
    return node.arg in ("start_new_session", "preexec_fn") and not never


def _is_dunder_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "__name__"


def _owner(node: ast.Call) -> list[ast.expr]:
    return [node.func.value] if isinstance(node.func, ast.Attribute) else []


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
