"""The arguments that a program defines: argparse and click calls, and reads of the environment."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from infrarsi.contract import Scalar
from infrarsi.draft.sources import PythonFile, Sources, dotted

_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "bool"}
_BARE_ACTIONS = ("store_true", "store_false")
_ENVIRON = "os.environ"
_BOOL_WORDS = ("str2bool", "strtobool", "boolean", "str_to_bool", "parse_bool")


class Unknown:
    """A value that cannot be read without running the program."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Definition:
    """One argument (or, with `is_env`, one variable of the environment) that a program reads.

    `kind` is int, float, str, bool (a word such as `true`), or other. `action` is `store`,
    `store_true`, `store_false`, `optional` (`--x` and `--no-x`), or another name of argparse.
    """

    names: tuple[str, ...]
    dest: str
    place: str
    kind: str = "str"
    action: str = "store"
    default: Scalar | Unknown | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""
    is_env: bool = False

    @property
    def flag(self) -> str:
        """The name to write it with: the longest, of `--x` and `-x` the former."""
        return max(self.names, key=lambda name: (name.startswith("--"), len(name)))

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.action in (*_BARE_ACTIONS, "optional")


def definitions(
    sources: Sources, environment: Mapping[str, str | None] | None = None
) -> tuple[Definition, ...]:
    """Every argument that the files define, wherever the parser is built; the first one counts.

    `environment` is what the program will see, for defaults that come from there; a value of None
    is not known.
    """
    found: dict[str, Definition] = {}
    later: dict[str, Scalar | Unknown] = {}
    for file in sources.files:
        constants = module_constants(file, environment)
        for node, names in _calls(file.tree, constants):
            called = dotted(node.func).rpartition(".")[2]
            if called in ("add_argument", "option"):
                definition = _definition(file, node, names, called == "option")
                if definition is not None:
                    found.setdefault(definition.names[0], definition)
            elif called == "set_defaults":
                for keyword in node.keywords:
                    later[keyword.arg or ""] = constant(keyword.value, names)
        for definition in _environment(file, constants):
            found.setdefault(definition.names[0], definition)
    return tuple(
        replace(d, default=later[d.dest]) if d.dest in later and not d.is_env else d
        for d in found.values()
    )


def module_constants(
    file: PythonFile, environment: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """The top-level names of a file that are bound to a constant, and `os.environ`."""
    constants: dict[str, Any] = {_ENVIRON: dict(environment or {})}
    for node in file.tree.body:
        if isinstance(node, ast.Assign):
            value = constant(node.value, constants)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    constants[target.id] = value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            constants[node.target.id] = constant(node.value, constants)
    return constants


def constant(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The value of an expression of literals and known names, else UNKNOWN."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = [constant(item, names) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = constant(node.operand, names)
        return -value if isinstance(value, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, names)
    if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float", "str") and node.args:
        return _converted(constant(node.args[0], names), dotted(node.func))
    name, default = _environment_read(node, names)
    if name is None:
        return UNKNOWN
    seen = names.get(_ENVIRON, {})
    if name in seen:
        return UNKNOWN if seen[name] is None else seen[name]
    return UNKNOWN if default is None else default


def _arithmetic(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    a, b = constant(node.left, names), constant(node.right, names)
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return a + b if isinstance(a, str) and isinstance(b, str) else UNKNOWN
    if isinstance(node.op, ast.Add):
        return a + b
    if isinstance(node.op, ast.Sub):
        return a - b
    if isinstance(node.op, ast.Mult):
        return a * b
    if isinstance(node.op, ast.FloorDiv) and b:
        return a // b
    if isinstance(node.op, ast.Div) and b:
        return a / b
    if isinstance(node.op, ast.Pow) and abs(b) < 64 and abs(a) < 1000:
        return a**b
    return UNKNOWN


def _converted(value: Any, kind: str) -> Any:
    try:
        return {"int": int, "float": float, "str": str}[kind](value)
    except (TypeError, ValueError):
        return UNKNOWN


def _calls(tree: ast.AST, names: dict[str, Any]) -> Iterator[tuple[ast.Call, dict[str, Any]]]:
    """Every call with the names known there; loops over literals are unrolled."""
    for child in ast.iter_child_nodes(tree):
        rounds = [names]
        if isinstance(child, ast.For):
            rounds = _rounds(child, names) or [names]
        for known in rounds:
            if isinstance(child, ast.Call):
                yield child, known
            yield from _calls(child, known)


def _rounds(loop: ast.For, names: dict[str, Any]) -> list[dict[str, Any]]:
    items = constant(loop.iter, names)
    if not isinstance(items, list) or not any(
        dotted(n.func).endswith("add_argument") for n in ast.walk(loop) if isinstance(n, ast.Call)
    ):
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


def _definition(
    file: PythonFile, node: ast.Call, names: dict[str, Any], is_click: bool
) -> Definition | None:
    flags = [constant(arg, names) for arg in node.args]
    written = [flag for flag in flags if isinstance(flag, str) and flag.startswith("-")]
    if not written:
        return None
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    action = _action(keywords, is_click, written)
    if "/" in written[0]:
        written = written[0].split("/")[:1]
    default = constant(keywords["default"], names) if "default" in keywords else None
    if action in _BARE_ACTIONS and default is None:
        default = action == "store_false"
    longest = max(written, key=lambda flag: (flag.startswith("--"), len(flag)))
    dest = constant(keywords["dest"], names) if "dest" in keywords else None
    if not isinstance(dest, str):
        dest = longest.lstrip("-").replace("-", "_")
    choices = constant(keywords["choices"], names) if "choices" in keywords else []
    text = constant(keywords["help"], names) if "help" in keywords else ""
    return Definition(
        names=tuple(written),
        dest=dest,
        place=file.place(node),
        kind=_kind(keywords.get("type"), default),
        action=action,
        default=default if isinstance(default, Scalar | Unknown | None) else UNKNOWN,
        choices=tuple(choices) if isinstance(choices, list) else (),
        help=text if isinstance(text, str) else "",
    )


def _action(keywords: Mapping[str, ast.expr], is_click: bool, written: list[str]) -> str:
    if is_click:
        if "/" in written[0]:
            return "optional"
        is_flag = "is_flag" in keywords and constant(keywords["is_flag"], {}) is True
        return "store_true" if is_flag else "store"
    node = keywords.get("action")
    if node is None:
        return "store"
    if dotted(node).endswith("BooleanOptionalAction"):
        return "optional"
    value = constant(node, {})
    return value if isinstance(value, str) else "other"


def _kind(node: ast.expr | None, default: object) -> str:
    if node is None:
        return "str"
    name = dotted(node).rpartition(".")[2]
    if name.lower() in _BOOL_WORDS:
        return "bool"
    if isinstance(node, ast.Lambda) and isinstance(default, bool):
        return "bool"
    return "str" if name == "Path" else _KINDS.get(name, "other")


def _environment(file: PythonFile, constants: Mapping[str, Any]) -> Iterator[Definition]:
    """Reads of `os.environ` with a name that is written out."""
    kinds: dict[int, str] = {}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float") and node.args:
            kinds[id(node.args[0])] = dotted(node.func)
        name, default = _environment_read(node, constants)
        if name is None:
            continue
        kind = kinds.get(id(node), "str")
        if kind != "str" and isinstance(default, str):
            default = _converted(default, kind)
        place = file.place(node)
        yield Definition((name,), name, place, kind=kind, default=default, is_env=True)


def _environment_read(node: ast.AST, constants: Mapping[str, Any]) -> tuple[str | None, Any]:
    if isinstance(node, ast.Call) and dotted(node.func) in (
        "os.environ.get",
        "os.getenv",
        "environ.get",
        "getenv",
    ):
        name = constant(node.args[0], constants) if node.args else UNKNOWN
        default = constant(node.args[1], constants) if len(node.args) > 1 else None
        return (name, default) if isinstance(name, str) else (None, None)
    if isinstance(node, ast.Subscript) and dotted(node.value) in ("os.environ", "environ"):
        name = constant(node.slice, constants)
        if isinstance(name, str) and isinstance(node.ctx, ast.Load):
            return name, UNKNOWN
    return None, None
