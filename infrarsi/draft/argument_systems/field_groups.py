"""Megatron-LM's arguments that are made from the fields of data classes (`ArgumentGroupFactory`).

Newer versions write `ArgumentGroupFactory(TrainingConfig, exclude=[...]).build_group(parser)`: one
argument for each field, named after it, and what `metadata={"argparse_meta": {...}}` says instead.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from infrarsi.configs.constants import UNKNOWN, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import Classes, Field, uses
from infrarsi.draft.sources import PythonFile, Sources

_FACTORY = "ArgumentGroupFactory"
_META = "argparse_meta"


def read(sources: Sources, environment: Mapping[str, str | None] | None = None) -> Found:
    """The arguments of every factory whose data class can be found."""
    found = Found()
    if not any(f"class {_FACTORY}" in file.text for file in sources.files):
        return found
    classes = Classes(sources, environment)
    metas = _metas(sources)
    for file, call in uses(sources, (_FACTORY,)):
        name = dotted(call.args[0]).rpartition(".")[2] if call.args else ""
        at = classes.find(name, file)
        if at is None:
            found.miss(file.place(call), "the data class given here cannot be read")
            continue
        fields, foreign = classes.fields(at)
        for base in foreign:
            found.miss(file.place(call), f"the fields of `{base}` are defined elsewhere")
        left_out = _left_out(file, call)
        if left_out is None:
            found.miss(file.place(call), "which fields are left out cannot be read")
        for field in fields:
            if field.name in (left_out or ()):
                continue
            made = _flag(field, metas.get(field.place, {}))
            found.definitions.append(made if left_out is not None else _unsure(made))
    return found


def _unsure(made: Definition) -> Definition:
    return replace(made, default=UNKNOWN)


def _flag(field: Field, meta: Mapping[str, Any]) -> Definition:
    """The argument of one field; what its metadata says counts."""
    dashed = field.name.replace("_", "-")
    names: Sequence[str] = (f"--{dashed}",)
    kind, action, choices = field.annotation.kind, "store", field.choices
    default = UNKNOWN if field.is_required else field.default
    if kind == "bool":
        action = "store_true" if default is False else "store_false"
        if action == "store_false":
            names = (f"--no-{dashed}", f"--disable-{dashed}")
    if choices and kind == "other":
        kind = "str"
    kind = getattr(meta.get("type"), "name", kind)  # the metadata names a type by itself
    given = meta.get("choices")
    written = meta.get("default", default)
    return Definition(
        names=tuple(_words(meta.get("arg_names")) or names),
        dest=str(meta.get("dest", field.name)),
        place=field.place,
        kind=kind,
        action=str(meta.get("action", action)),
        default=written if isinstance(written, Scalar | None) else UNKNOWN,
        choices=tuple(given) if isinstance(given, list) else choices,
        help=field.help,
    )


def _words(value: Any) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _metas(sources: Sources) -> dict[str, dict[str, Any]]:
    """What the metadata of fields says, by the place of the field."""
    found: dict[str, dict[str, Any]] = {}
    for file, node in sources.of(ast.AnnAssign, _META):
        meta = None if node.value is None else _meta(node.value)
        if meta is not None:
            found[file.place(node)] = meta
    return found


def _meta(node: ast.expr) -> dict[str, Any] | None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            for key, value in zip(inner.keys, inner.values, strict=True):
                if _is_text(key, _META) and isinstance(value, ast.Dict):
                    return {
                        str(constant(name, {})): constant(each, {})
                        for name, each in zip(value.keys, value.values, strict=True)
                        if name is not None
                    }
    return None


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _left_out(file: PythonFile, call: ast.Call) -> list[str] | None:
    """The names that a factory leaves out; None where they cannot be read."""
    given = next((k.value for k in call.keywords if k.arg == "exclude"), None)
    given = call.args[1] if given is None and len(call.args) > 1 else given
    if given is None:
        return []
    if isinstance(given, ast.Name):
        values = [
            node.value
            for node in file.of(ast.Assign)
            if any(isinstance(t, ast.Name) and t.id == given.id for t in node.targets)
            and node.lineno < call.lineno
        ]
        given = max(values, key=lambda node: node.lineno, default=given)
    value = constant(given, {})
    return _words(value) if isinstance(value, list) else None
