"""Path expressions of Python code, as far as they can be told without running it."""

import ast
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infrarsi.contract import PlaceKind
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import PythonFile, Sources, dotted, walked

PROJECT = "@project@"
"""Begins a path that is built from `__file__`; what follows is relative to the project."""

_DEPTH = 8
_SAME = ("str", "Path", "pathlib.Path", "os.fspath", "PurePath", "pathlib.PurePath", "PosixPath")
_SAME_PATH = ("os.path.abspath", "os.path.realpath", "os.path.normpath", "os.path.expanduser")
_SAME_METHODS = ("resolve", "absolute", "expanduser", "as_posix", "rstrip", "strip")
_HERE = ("os.getcwd", "Path.cwd", "pathlib.Path.cwd")
_HOME = ("Path.home", "pathlib.Path.home")
_OF_TEXTS = frozenset(name for name in dir(str) if not name.startswith("_"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Told:
    """One way a path can come out.

    `text` is its known beginning, `is_whole` whether that is all of it. `control` is the setting
    that decides where it begins; `is_temporary` says that the program makes a fresh folder itself.
    Neither a text nor a control: nothing is known.
    """

    text: str = ""
    is_whole: bool = False
    control: Setting | None = None
    is_temporary: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether nothing at all is known of where it begins."""
        return not self.text and self.control is None and not self.is_temporary


_UNKNOWN = Told()


class Reader:
    """Reads path expressions of a job's files."""

    def __init__(self, sources: Sources, settings: Sequence[Setting]) -> None:
        self.sources = sources
        kinds = (PlaceKind.CONFIG, PlaceKind.FLAG)  # a flag comes last, and counts
        known = [s for s in settings if s.place.kind in kinds and not s.is_ambiguous]
        self.by_dest = {s.dest: s for s in sorted(known, key=lambda s: kinds.index(s.place.kind))}
        self.by_name = {
            s.dest: s for s in settings if s.definition and s.definition.system == "globals"
        }
        self.by_env = {s.place.name: s for s in settings if s.place.kind is PlaceKind.ENV}
        self._calls: dict[str, list[tuple[PythonFile, ast.Call]]] = {}
        self._functions: dict[str, list[tuple[PythonFile, ast.AST]]] = {}
        self._bindings: dict[ast.AST, list[tuple[ast.expr, ast.expr]]] = {}
        self._known: dict[tuple[ast.AST, int], list[Told]] = {}

    def read(self, file: PythonFile, node: ast.AST, depth: int = _DEPTH) -> list[Told]:
        """Every way an expression can come out, at least one."""
        if depth <= 0:
            return [_UNKNOWN]
        if (node, depth) not in self._known:  # calls that pass each other's parameters meet often
            found = self._read(file, node, depth - 1)
            self._known[node, depth] = list(dict.fromkeys(found))[:8] or [_UNKNOWN]
        return self._known[node, depth]

    def _read(self, file: PythonFile, node: ast.AST, depth: int) -> list[Told]:
        if isinstance(node, ast.Constant):
            return [Told(node.value, True)] if isinstance(node.value, str) else [_UNKNOWN]
        if isinstance(node, ast.JoinedStr):
            return self._joined(file, node, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div | ast.Mod):
            return self._operator(file, node, depth)
        if isinstance(node, ast.BoolOp):
            parts = [told for value in node.values for told in self.read(file, value, depth)]
            return [told for told in parts if not told.is_unknown]
        if isinstance(node, ast.IfExp):
            return self.read(file, node.body, depth) + self.read(file, node.orelse, depth)
        if isinstance(node, ast.Call):
            return self._call(file, node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(file, node, depth)
        if isinstance(node, ast.Subscript):
            return self._subscript(file, node, depth)
        if isinstance(node, ast.Name):
            return self._name(file, node, depth)
        return [_UNKNOWN]

    def _joined(self, file: PythonFile, node: ast.JoinedStr, depth: int) -> list[Told]:
        told = [Told("", True)]
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            told = [_add(a, b) for a in told for b in self.read(file, inner, depth)]
        return told

    def _operator(self, file: PythonFile, node: ast.BinOp, depth: int) -> list[Told]:
        left = self.read(file, node.left, depth)
        if isinstance(node.op, ast.Mod):
            return [_cut(told) for told in left]
        right = self.read(file, node.right, depth)
        join = _add if isinstance(node.op, ast.Add) else _join
        return [join(a, b) for a in left for b in right]

    def _call(self, file: PythonFile, node: ast.Call, depth: int) -> list[Told]:
        name = dotted(node.func)
        if name in _HERE:
            return [Told(".", True)]
        if name in _HOME:
            return [Told("~", True)]
        if name.startswith("tempfile.") or name in ("mkdtemp", "mkstemp", "TemporaryDirectory"):
            return [Told(is_temporary=True)]
        if name in ("os.environ.get", "os.getenv"):
            return self._environment(file, node, depth)
        if name in _SAME + _SAME_PATH and node.args:
            return self._joined_calls(file, node.args, depth)
        if name == "os.path.join" or name.endswith(".joinpath"):
            bases = [node.func.value] if name.endswith(".joinpath") else []  # type: ignore[attr-defined]  # a call of that name is an attribute
            return self._joined_calls(file, [*bases, *node.args], depth)
        if name == "os.path.dirname" and node.args:
            return [_parent(told) for told in self.read(file, node.args[0], depth)]
        if isinstance(node.func, ast.Attribute):
            base = self.read(file, node.func.value, depth)
            if node.func.attr in _SAME_METHODS:
                return base
            if node.func.attr == "format":
                return [_cut(told, "{") for told in base]
            if node.func.attr in ("with_suffix", "with_name"):
                return [_cut(_parent(told)) for told in base]
        return self._returned(file, node, depth)

    def _joined_calls(self, file: PythonFile, parts: Sequence[ast.AST], depth: int) -> list[Told]:
        told = self.read(file, parts[0], depth)
        for part in parts[1:]:
            told = [_join(a, b) for a in told for b in self.read(file, part, depth)]
        return told

    def _environment(self, file: PythonFile, node: ast.Call, depth: int) -> list[Told]:
        name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        setting = self.by_env.get(str(name))
        if setting is not None:
            return [Told(control=setting)]
        return self.read(file, node.args[1], depth) if len(node.args) > 1 else [_UNKNOWN]

    def _attribute(self, file: PythonFile, node: ast.Attribute, depth: int) -> list[Told]:
        if node.attr == "parent":
            return [_parent(told) for told in self.read(file, node.value, depth)]
        wanted = _as_store(node)
        assigned = [
            value
            for target, value in self._assignments(file.tree)
            if isinstance(target, ast.Attribute) and ast.dump(target) == wanted
        ]
        if assigned:
            return [told for value in assigned for told in self.read(file, value, depth)]
        setting = self.by_dest.get(node.attr)
        return [_UNKNOWN] if setting is None else [Told(control=setting)]

    def _subscript(self, file: PythonFile, node: ast.Subscript, depth: int) -> list[Told]:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return [_UNKNOWN]
        table = self.by_env if dotted(node.value) == "os.environ" else self.by_dest
        setting = table.get(key)
        return [_UNKNOWN] if setting is None else [Told(control=setting)]

    def _name(self, file: PythonFile, node: ast.Name, depth: int) -> list[Told]:
        if node.id == "__file__":
            return [Told(f"{PROJECT}/{file.path}", True)]
        function = _enclosing(file, node)
        while function is not None:
            values = _bound(function, node.id, self._assignments(function))
            if values:
                return [told for value in values for told in self.read(file, value, depth)]
            if node.id in _parameters(function):
                return self._argument(file, function, node.id, depth)
            function = _enclosing(file, function)
        if file is self.sources.entry and node.id in self.by_name:
            return [Told(control=self.by_name[node.id])]  # the command line sets the name
        values = _bound(file.tree, node.id, self._assignments(file.tree))
        if values:
            return [told for value in values for told in self.read(file, value, depth)]
        if not _imports(file, node.id):
            return [_UNKNOWN]
        for other in self.sources.holding(node.id):  # `from settings import OUT`
            if other is not file:
                for value in _bound(other.tree, node.id, self._assignments(other.tree)):
                    return self.read(other, value, depth)
        return [_UNKNOWN]

    def _argument(
        self, file: PythonFile, function: ast.FunctionDef, name: str, depth: int
    ) -> list[Told]:
        """What the calls of a function (or class) pass for a parameter; else its default."""
        position = (
            [arg.arg for arg in function.args.args].index(name)
            if any(arg.arg == name for arg in function.args.args)
            else None
        )
        owner = file.parents.get(function)
        called = function.name
        if isinstance(owner, ast.ClassDef) and function.name == "__init__":
            called = owner.name
        is_method = isinstance(owner, ast.ClassDef)
        told: list[Told] = []
        for other, node in self._calls_of(called):
            if not self._is_own(node, called):
                continue
            passed = [k.value for k in node.keywords if k.arg == name]
            index = None if position is None else position - is_method
            if not passed and index is not None and 0 <= index < len(node.args):
                passed = [node.args[index]]
            told += [t for value in passed for t in self.read(other, value, depth)]
        default = _default(function, name)
        if not told and name in self.by_dest:
            return [Told(control=self.by_dest[name])]  # click passes it
        if not told and default is not None:
            return self.read(file, default, depth)
        return told

    def _is_own(self, node: ast.Call, called: str) -> bool:
        """Whether a call may be of the job's own function `called` (`torch.save` is not)."""
        first, _, last = dotted(node.func).rpartition(".")
        if isinstance(node.func, ast.Attribute) and called in _OF_TEXTS:
            return False  # `name.replace("<", "_")` calls no function of the job
        return last == called and first.partition(".")[0] not in self.sources.external

    def _returned(self, file: PythonFile, node: ast.Call, depth: int) -> list[Told]:
        """What a function of the job returns."""
        called = dotted(node.func).rpartition(".")[2]
        if not self._is_own(node, called):
            return [_UNKNOWN]
        for other, function in self._functions_named(called):
            returns = [
                inner.value
                for inner in ast.walk(function)
                if isinstance(inner, ast.Return) and inner.value is not None
            ]
            return [t for value in returns for t in self.read(other, value, depth)]
        return [_UNKNOWN]

    def _calls_of(self, name: str) -> list[tuple[PythonFile, ast.Call]]:
        if name not in self._calls:
            self._calls[name] = list(self.sources.calls(name))
        return self._calls[name]

    def _functions_named(self, name: str) -> list[tuple[PythonFile, ast.AST]]:
        if name not in self._functions:
            self._functions[name] = [
                (file, node)
                for file, node in self.sources.walk(name)
                if isinstance(node, _FUNCTIONS) and node.name == name
            ]
        return self._functions[name]

    def _assignments(self, scope: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
        if scope not in self._bindings:
            self._bindings[scope] = list(_assigned(scope))
        return self._bindings[scope]


def _enclosing(file: PythonFile, node: ast.AST) -> ast.FunctionDef | None:
    """The function that a node of a file stands in."""
    at = file.parents.get(node)
    while at is not None and not isinstance(at, ast.FunctionDef):
        at = file.parents.get(at)
    return at


def _assigned(scope: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of everything that a scope binds."""
    for node in walked(scope):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    yield item.optional_vars, item.context_expr


def _bound(
    scope: ast.AST, name: str, assignments: Sequence[tuple[ast.expr, ast.expr]]
) -> list[ast.expr]:
    """The values that a name gets in a scope; an assignment from itself says nothing new."""
    return [
        value
        for target, value in assignments
        if isinstance(target, ast.Name)
        and target.id == name
        and not any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
    ]


def _parameters(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    return {arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    names = [arg.arg for arg in arguments.args]
    with_default = names[len(names) - len(arguments.defaults) :]
    defaults = dict(zip(with_default, arguments.defaults, strict=True))
    for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if value is not None:
            defaults[arg.arg] = value
    return defaults.get(name)


def _imports(file: PythonFile, name: str) -> bool:
    return any(
        (alias.asname or alias.name) == name
        for node in file.of(ast.ImportFrom)
        for alias in node.names
    )


def _as_store(node: ast.Attribute) -> str:
    return ast.dump(ast.Attribute(value=node.value, attr=node.attr, ctx=ast.Store()))


def _add(a: Told, b: Told) -> Told:
    if not a.is_whole or a.control is not None or a.is_temporary:
        return a
    if not a.text:
        return b
    known = b.control is None and not b.is_temporary
    return Told(a.text + (b.text if known else ""), b.is_whole and known)


def _join(a: Told, b: Told) -> Told:
    if b.text.startswith(("/", "~", PROJECT)):
        return b
    if not a.is_whole or a.control is not None or a.is_temporary:
        return a
    if b.control is not None and not a.text:
        return b
    text = posixpath.join(a.text, b.text)
    known = b.control is None and not b.is_temporary
    return Told(text, b.is_whole and known)


def _cut(told: Told, mark: str = "%") -> Told:
    """The part before the first place that is filled in."""
    if told.control is not None or told.is_temporary:
        return told
    return Told(told.text.partition(mark)[0], is_whole=mark not in told.text and told.is_whole)


def _parent(told: Told) -> Told:
    if told.control is not None or told.is_temporary or not told.is_whole:
        return told
    return Told(posixpath.dirname(told.text) or ".", True)
