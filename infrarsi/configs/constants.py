"""Python expressions of literals and known names, computed without running anything."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENVIRON = "os.environ"
"""Under this name the variables of the environment are among the known names."""


class Unknown:
    """A value that cannot be read without running the program."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class TypeName:
    """A type that is handed about as a value, as in a list of arguments."""

    name: str


_TYPES = {name: TypeName(name) for name in ("int", "float", "str", "bool")}


def dotted(node: ast.AST) -> str:
    """`torch.save` for the expression of that name; the last names only, behind a call."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else node.attr
    return ""


def constant(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """The value of an expression of literals and known names, else UNKNOWN."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, _TYPES.get(node.id, UNKNOWN))
    if isinstance(node, ast.Attribute):
        return names.get(dotted(node), UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = [constant(item, names) for item in node.elts]
        return UNKNOWN if any(item is UNKNOWN for item in items) else items
    if isinstance(node, ast.JoinedStr):
        return _joined(node, names)
    if isinstance(node, ast.UnaryOp):
        return _unary(node, names)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, names)
    if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float", "str") and node.args:
        return converted_by(constant(node.args[0], names), dotted(node.func))
    name, default = environment_read(node, names)
    if name is None:
        return UNKNOWN
    seen = names.get(ENVIRON, {})
    if name in seen:
        return UNKNOWN if seen[name] is None else seen[name]
    return UNKNOWN if default is None else default


def converted_by(value: Any, kind: str) -> Any:
    """What `int`, `float` or `str` makes of a value, UNKNOWN where it would raise."""
    try:
        return {"int": int, "float": float, "str": str}[kind](value)
    except (TypeError, ValueError):
        return UNKNOWN


def environment_read(node: ast.AST, names: Mapping[str, Any]) -> tuple[str | None, Any]:
    """(name, default) of a read of the environment; the default is UNKNOWN where there is none."""
    if isinstance(node, ast.Call) and dotted(node.func) in (
        "os.environ.get",
        "os.getenv",
        "environ.get",
        "getenv",
    ):
        name = constant(node.args[0], names) if node.args else UNKNOWN
        default = constant(node.args[1], names) if len(node.args) > 1 else None
        return (name, default) if isinstance(name, str) else (None, None)
    if isinstance(node, ast.Subscript) and dotted(node.value) in ("os.environ", "environ"):
        name = constant(node.slice, names)
        if isinstance(name, str) and isinstance(node.ctx, ast.Load):
            return name, UNKNOWN
    return None, None


def _joined(node: ast.JoinedStr, names: Mapping[str, Any]) -> Any:
    parts = []
    for part in node.values:
        plain = isinstance(part, ast.FormattedValue)
        if isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion != -1):
            return UNKNOWN
        value = constant(part.value if isinstance(part, ast.FormattedValue) else part, names)
        if value is UNKNOWN or (plain and not isinstance(value, str | int)):
            return UNKNOWN
        parts.append(str(value))
    return "".join(parts)


def _unary(node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
    value = constant(node.operand, names)
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    if isinstance(node.op, ast.UAdd) and isinstance(value, int | float):
        return value
    if isinstance(node.op, ast.Not) and isinstance(value, bool):
        return not value
    return UNKNOWN


def _arithmetic(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    a, b = constant(node.left, names), constant(node.right, names)
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        is_text = isinstance(node.op, ast.Add) and isinstance(a, str) and isinstance(b, str)
        return a + b if is_text else UNKNOWN
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
    if isinstance(node.op, ast.Mod) and b:
        return a % b
    if isinstance(node.op, ast.Pow) and abs(b) < 64 and abs(a) < 1000:
        return a**b
    return UNKNOWN
