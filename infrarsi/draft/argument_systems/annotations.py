"""Types as they are written: what kind of word an annotation takes, and which words."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infrarsi.configs.constants import UNKNOWN, constant, dotted
from infrarsi.contract import Scalar

_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "bool", "Path": "str"}
_UNIONS = ("Optional", "Union")
_WRAPPERS = ("Annotated", "ClassVar", "Final", "Required", "Suppress", "Positional", "Fixed")


@dataclass(frozen=True)
class Annotation:
    """What an annotation says: `kind`, `choices`, the class that it names, and its metadata."""

    kind: str
    choices: tuple[Scalar, ...] = ()
    name: str = ""
    is_optional: bool = False
    metadata: tuple[ast.expr, ...] = ()


def read_annotation(node: ast.expr | None, names: Mapping[str, Any] | None = None) -> Annotation:
    """An annotation; `other` for what is not one word on a command line."""
    names = names or {}
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return Annotation("other")
    if node is None:
        return Annotation("other")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([node.left, node.right], names)
    if isinstance(node, ast.Subscript):
        return _subscript(node, names)
    name = dotted(node).rpartition(".")[2]
    return Annotation(_KINDS.get(name, "other"), name=name)


def _subscript(node: ast.Subscript, names: Mapping[str, Any]) -> Annotation:
    outer = dotted(node.value).rpartition(".")[2]
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Optional":
        return _union([*inner, ast.Constant(None)], names)
    if outer == "Union":
        return _union(inner, names)
    if outer == "Literal":
        values = [constant(item, names) for item in inner]
        if any(value is UNKNOWN or not isinstance(value, Scalar | None) for value in values):
            return Annotation("other")
        choices = tuple(value for value in values if value is not None)
        return Annotation(_kind_of(choices), choices, is_optional=None in values)
    if outer in _WRAPPERS and inner:
        first = read_annotation(inner[0], names)
        metadata = (*first.metadata, *inner[1:])
        return Annotation(first.kind, first.choices, first.name, first.is_optional, metadata)
    return Annotation("other", name=outer)


def _union(parts: list[ast.expr], names: Mapping[str, Any]) -> Annotation:
    found = [read_annotation(part, names) for part in parts if not _is_none(part)]
    optional = any(_is_none(part) for part in parts) or any(a.is_optional for a in found)
    if len(found) == 1:
        one = found[0]
        return Annotation(one.kind, one.choices, one.name, optional, one.metadata)
    kinds = {annotation.kind for annotation in found}
    if kinds == {"int", "float"}:
        return Annotation("float", is_optional=optional)
    return Annotation("other", is_optional=optional)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _kind_of(values: tuple[Scalar, ...]) -> str:
    kinds = {type(value).__name__ for value in values}
    return kinds.pop() if len(kinds) == 1 else "other"


def kind_of(value: object) -> str:
    """The kind of a value: bool, int, float, str or other."""
    name = type(value).__name__
    return name if name in ("bool", "int", "float", "str") else "other"
