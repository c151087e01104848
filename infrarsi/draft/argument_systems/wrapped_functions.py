"""Parsers that a library makes of a function or a data class: jsonargparse, draccus, cyclopts.

Read are the flags with a default. What these libraries take from configuration files of their own
is not followed, so there may always be more; docopt's usage texts are not read at all.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from infrarsi.configs.constants import dotted
from infrarsi.draft.argument_systems.dataclass_parsers import function_named, tyro_flags
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import Classes, Field, parameters
from infrarsi.draft.sources import PythonFile, Sources

_MAKERS = {
    "jsonargparse": ("CLI", "auto_cli"),
    "draccus": ("parse", "wrap"),
    "cyclopts": ("run", "default"),
}
_NAMED = (*_MAKERS, "docopt")


def read(sources: Sources, environment: Mapping[str, str | None] | None = None) -> Found:
    """The flags of every such parser; the library is named where none could be read."""
    found = Found()
    classes = Classes(sources, environment)
    for library, makers in _MAKERS.items():
        if library not in sources.external:
            continue
        for file, target in _targets(sources, library, makers):
            fields = _fields(target, file, classes, sources)
            for made in tyro_flags(fields, "", classes, found, 0):
                found.definitions.append(_flag(made, library))
        found.is_open = True
    read_of = {definition.system for definition in found.definitions}
    for library in _NAMED:
        if library in sources.external and library not in read_of:
            place = sources.external[library]
            found.miss(place, f"the arguments are read by {library}, which is not understood here")
    return found


def _targets(
    sources: Sources, library: str, makers: tuple[str, ...]
) -> Iterator[tuple[PythonFile, str]]:
    """The names of the functions and classes that a library is given."""
    for file in sources.holding(library):
        for name in makers:
            for call in file.calls.get(name, ()):
                given = [*call.args[:1], *(k.value for k in call.keywords if k.arg in _GIVEN)]
                if given and dotted(given[0]):
                    yield file, dotted(given[0]).rpartition(".")[2]
        for node in file.of(ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if dotted(called).rpartition(".")[2] not in makers:
                    continue
                first = node.args.args[0].annotation if node.args.args else None
                wraps = library == "draccus" and first is not None
                yield file, dotted(first).rpartition(".")[2] if wraps and first else node.name


_GIVEN = ("config_class", "components")


def _fields(target: str, file: PythonFile, classes: Classes, sources: Sources) -> list[Field]:
    """The fields of a class, or the parameters of a function, that have a default."""
    at = classes.find(target, file)
    if at is not None:
        found, _ = classes.fields(at)
    else:
        function = function_named(target, sources)
        found = [] if function is None else parameters(function[1], function[0], classes)
    return [field for field in found if not field.is_required or field.nested is not None]


def _flag(made: Definition, library: str) -> Definition:
    """A flag as the library spells it; only cyclopts has switches, and writes `-` for `_`."""
    if library == "cyclopts":
        return replace(made, system=library)
    names = tuple(name for name in made.names if "-" not in name[2:])
    return replace(made, names=names or made.names, system=library, action="store", negatives=())
