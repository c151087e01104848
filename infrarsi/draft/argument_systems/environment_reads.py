"""Variables of the environment that the program reads by a name that is written out."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from infrarsi.configs.constants import converted_by, dotted, environment_read
from infrarsi.draft.argument_systems.definition import Definition
from infrarsi.draft.argument_systems.scopes import module_constants
from infrarsi.draft.sources import PythonFile, Sources


def read(sources: Sources, environment: Mapping[str, str | None] | None = None) -> list[Definition]:
    """One definition a name; the first read of it counts."""
    found: dict[str, Definition] = {}
    for file in sources.holding("environ", "getenv"):
        for definition in _reads(file, module_constants(file, environment)):
            found.setdefault(definition.names[0], definition)
    return list(found.values())


def _reads(file: PythonFile, constants: Mapping[str, Any]) -> Iterator[Definition]:
    kinds: dict[int, str] = {}
    for node in file.nodes:
        if not isinstance(node, ast.Call | ast.Subscript):
            continue
        if isinstance(node, ast.Call) and dotted(node.func) in ("int", "float") and node.args:
            kinds[id(node.args[0])] = dotted(node.func)
        name, default = environment_read(node, constants)
        if name is None:
            continue
        kind = kinds.get(id(node), "str")
        if kind != "str" and isinstance(default, str):
            default = converted_by(default, kind)
        place = file.place(node)
        yield Definition((name,), name, place, kind=kind, default=default, is_env=True)
