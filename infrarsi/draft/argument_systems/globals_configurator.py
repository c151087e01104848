"""Scripts whose settings are the names at their top, overridden by words of the command line.

The script runs a second file (`exec(open("configurator.py").read())`), or has a loop of its own,
that takes `--name=value` and configuration files in Python from `sys.argv` and puts them into
`globals()`. A value must be of the type that the name has already.
"""

import ast
import posixpath
from pathlib import Path

from infrarsi.configs import Config
from infrarsi.configs.constants import UNKNOWN, Unknown, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.job import Job
from infrarsi.draft.sources import PythonFile, Sources
from infrarsi.errors import UserError


def read(sources: Sources, job: Job) -> Found:
    """One argument for each name that the entry sets before the configurator runs."""
    found = Found()
    at = _configurator(sources.entry, job)
    if at is None:
        return found
    names = _names(sources.entry, at)
    for position, argument in enumerate(job.arguments):
        if argument.name:
            continue
        if not isinstance(argument.value, str) or not argument.static:
            found.miss(sources.entry.place(at), f"which file `{argument.raw}` is, is not known")
            names = {name: (UNKNOWN, place) for name, (_, place) in names.items()}
            continue
        given = [a.name.lstrip("-") for a in job.arguments[:position] if a.name]
        _file(argument.value, sources.entry, job, names, given, found)
    for name, (value, place) in names.items():
        found.definitions.append(
            Definition(
                names=(f"--{name}",),
                dest=name,
                place=place,
                kind=kind_of(value),
                default=value,
                system="globals",
                words=("False", "True"),
                is_joined=True,
            )
        )
    return found


def _configurator(entry: PythonFile, job: Job) -> ast.stmt | None:
    """The top-level statement of the entry that takes the command line into its globals."""
    for node in entry.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and dotted(inner.func) == "exec" and inner.args:
                text = _executed(inner.args[0], entry, job)
                if text is not None and _takes_over(text):
                    return node
        if isinstance(node, ast.For) and _takes_over(ast.unparse(node)):
            return node
    return None


def _takes_over(text: str) -> bool:
    return "sys.argv" in text and "globals()" in text


def _executed(node: ast.expr, entry: PythonFile, job: Job) -> str | None:
    """The text of the file that `exec` is given; None where it cannot be known."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            for folder in (job.cwd, posixpath.dirname(entry.path)):
                place = job.place(inner.value, folder)
                if place is not None and job.exists(place):
                    try:
                        if place in job.documents:
                            return job.documents[place].text
                        return (Path(job.root) / place).read_text(encoding="utf-8")
                    except (OSError, UnicodeDecodeError):
                        return None
    return None


_Names = dict[str, tuple[Scalar | Unknown | None, str]]


def _names(entry: PythonFile, until: ast.stmt) -> _Names:
    """The names set before that statement, with their values and places."""
    found: _Names = {}
    known: dict[str, object] = {}
    for node in entry.tree.body:
        if node is until:
            break
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Name) or target.id.startswith("_"):
            continue
        value = constant(node.value, known)
        known[target.id] = value
        if isinstance(value, Scalar) or value is UNKNOWN:
            found[target.id] = (value, entry.place(node))
    return found


def _file(
    path: str, entry: PythonFile, job: Job, names: _Names, given: list[str], found: Found
) -> None:
    """What a configuration file on the command line sets."""
    place = job.place(path)
    config: Config | None = None
    if place is not None and path.endswith(".py"):
        try:
            config = job.config(place)
        except UserError as error:
            found.miss(error.where, error.what)
    if config is None:
        found.miss(entry.path, f"the configuration file {path!r} cannot be read")
        for name, (_, at) in list(names.items()):
            names[name] = (UNKNOWN, at)
        return
    found.unknowns += config.notes
    for entry_ in config.entries:
        name = entry_.key[0]
        if name not in names or len(entry_.key) > 1:
            continue
        at = f"{config.path}:{entry_.line}"
        names[name] = (UNKNOWN if entry_.why else entry_.value, at)
        if name in given:
            del names[name]
            found.miss(at, f"`{name}` is set again by this file, after `--{name}`")
