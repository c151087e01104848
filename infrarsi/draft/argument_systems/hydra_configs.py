"""Hydra and OmegaConf: the keys of the composed configuration, set by `key=value` words."""

import ast
import posixpath
from collections.abc import Mapping
from dataclasses import replace

from infrarsi.configs.constants import UNKNOWN, Unknown, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import ClassAt, Classes, uses
from infrarsi.draft.argument_systems.hydra_compose import Composer, Composition, Leaf, resolved
from infrarsi.draft.argument_systems.job import Job
from infrarsi.draft.sources import PythonFile, Sources
from infrarsi.errors import UserError
from infrarsi.scripts import Argument

_NAME_FLAGS = ("--config-name", "-cn")
_PATH_FLAGS = ("--config-path", "-cp")
_OTHER_FLAGS = ("--config-dir", "-cd", "--multirun", "-m", "--experimental-rerun", "--package")


def read_hydra(sources: Sources, job: Job) -> Found:
    """The configuration of `@hydra.main(...)`, each key as an argument."""
    found = Found()
    mains = [
        (file, call)
        for file, call in uses(sources, ("main",))
        if dotted(call.func) in ("hydra.main", "main") and "hydra" in file.text
    ]
    if not mains:
        return found
    file, call = mains[0]
    given = {k.arg: constant(k.value, {}) for k in call.keywords if k.arg}
    for keyword, node in zip(("config_path", "config_name"), call.args, strict=False):
        given.setdefault(keyword, constant(node, {}))
    path: object = given.get("config_path")
    name: object = given.get("config_name")
    folder = posixpath.dirname(file.path)
    for argument in job.arguments:
        if argument.name in _OTHER_FLAGS:
            place = f"`{argument.raw}`"
            found.miss(file.place(call), f"{place} on the command line is not followed")
        if argument.name in _NAME_FLAGS:
            name = argument.value if argument.static else UNKNOWN
        if argument.name in _PATH_FLAGS:
            path = argument.value if argument.static else UNKNOWN
    if name is None:
        found.miss(file.place(call), "`hydra.main` is given no configuration name")
        return found
    if not isinstance(name, str) or not isinstance(path, str | None):
        found.miss(file.place(call), "which configuration `hydra.main` takes is computed")
        return found
    at = folder if path is None else job.place(path, folder)
    if at is None or str(path).startswith("pkg://"):
        found.miss(file.place(call), f"the configurations in {path!r} lie outside the project")
        return found
    chosen = _chosen(job, at)
    made = Composer(job, at, chosen, _stored(sources, job)).compose(name)
    found.add(_definitions(made, job, at, "hydra"))
    found.definitions += _added(job.arguments, found.definitions)
    return found


def _chosen(job: Job, folder: str) -> dict[str, str | None]:
    """The groups that words of the command choose from, `~group` for none of it."""
    chosen: dict[str, str | None] = {}
    for argument in job.arguments:
        name = argument.name.lstrip("+")
        group = name.partition("@")[0]
        if argument.raw.startswith("~") or name.startswith("~"):
            chosen[(name or argument.raw).lstrip("~").partition("=")[0]] = None
        elif name and not name.startswith("-") and (job.root / folder / group).is_dir():
            chosen[name] = argument.value if isinstance(argument.value, str) else None
    return chosen


def _stored(sources: Sources, job: Job) -> dict[str, dict[str, Leaf]]:
    """Classes that `cs.store(group=..., name=..., node=...)` registers."""
    classes = Classes(sources, job.environment)
    found: dict[str, dict[str, Leaf]] = {}
    for file, call in uses(sources, ("store",)):
        given = {k.arg: k.value for k in call.keywords if k.arg}
        name = constant(given["name"], {}) if "name" in given else None
        group = constant(given["group"], {}) if "group" in given else ""
        node = given.get("node")
        at = _class_of(node, file, classes)
        if isinstance(name, str) and isinstance(group, str) and at is not None:
            path = f"{group}/{name}" if group else name
            found[path] = dict(_class_leaves(at, "", classes, 0))
    return found


def _class_of(node: ast.expr | None, file: PythonFile, classes: Classes) -> ClassAt | None:
    if isinstance(node, ast.Call):
        node = node.func if not node.args and not node.keywords else None
    return None if node is None else classes.find(dotted(node).rpartition(".")[2], file)


def _class_leaves(at: ClassAt, prefix: str, classes: Classes, depth: int) -> list[tuple[str, Leaf]]:
    leaves: list[tuple[str, Leaf]] = []
    fields, _ = classes.fields(at)
    for field in fields:
        if field.nested is not None and depth < 8:
            leaves += _class_leaves(field.nested, f"{prefix}{field.name}.", classes, depth + 1)
            continue
        is_known = not isinstance(field.default, Unknown) and not field.is_required
        value = field.default if is_known and not isinstance(field.default, Unknown) else None
        why = "" if is_known else "it has no default that can be read"
        leaves.append((prefix + field.name, Leaf(value, field.place, why)))
    return leaves


def _definitions(made: Composition, job: Job, folder: str, system: str) -> Found:
    found = Found()
    for key, leaf in made.leaves.items():
        if leaf.is_reference and leaf.why == "":
            continue  # it follows another key
        if key.rpartition(".")[2].isdigit():
            continue  # an item of a list is not set by itself
        value: Scalar | Unknown | None = UNKNOWN if leaf.why else leaf.value
        found.definitions.append(_definition(key, value, leaf.place, system))
    for group, (choice, place) in made.choices.items():
        directory = job.root / folder / group.partition("@")[0]
        names = sorted(path.stem for path in directory.glob("*.yaml"))
        made_choice = _definition(group, choice, place, system)
        found.definitions.append(replace(made_choice, choices=tuple(names)))
    for unknown in made.unknowns:
        found.unknowns.append(unknown)
    found.is_open = True  # `+key=value` adds any
    if made.unknowns:  # what could not be followed may set any key again
        found.definitions = [replace(d, default=UNKNOWN) for d in found.definitions]
    return found


def _definition(key: str, value: Scalar | Unknown | None, place: str, system: str) -> Definition:
    return Definition(
        names=(key,),
        dest=key.rpartition(".")[2],
        place=place,
        kind=kind_of(value),
        default=value,
        system=system,
        is_joined=True,
    )


def _added(arguments: tuple[Argument, ...], known: list[Definition]) -> list[Definition]:
    """Keys that `+key=value` adds."""
    names = {definition.names[0] for definition in known}
    return [
        Definition(
            names=(argument.name,),
            dest=argument.name.lstrip("+").rpartition(".")[2],
            place=f"`{argument.raw}`",
            kind="other",
            default=UNKNOWN,
            system="hydra",
            is_joined=True,
        )
        for argument in arguments
        if argument.name.startswith("+") and argument.name.lstrip("+") not in names
    ]


def read_omegaconf(sources: Sources, job: Job) -> Found:
    """`OmegaConf.load(file)` merged with `OmegaConf.from_cli()`: `key=value` without Hydra."""
    found = Found()
    clis = [
        (file, call)
        for file, call in uses(sources, ("from_cli", "from_dotlist"))
        if "OmegaConf" in dotted(call.func) or "OmegaConf" in file.text
    ]
    if not clis:
        return found
    loads = [
        (file, call)
        for file, call in uses(sources, ("load",))
        if dotted(call.func) in ("OmegaConf.load", "omegaconf.OmegaConf.load") and call.args
    ]
    leaves: dict[str, Leaf] = {}
    classes = Classes(sources, job.environment)
    for file, call in uses(sources, ("structured",)):
        at = _class_of(call.args[0] if call.args else None, file, classes)
        if at is not None:
            leaves |= dict(_class_leaves(at, "", classes, 0))
    for file, call in loads:
        place = _loaded(call.args[0], file, job)
        try:
            config = None if place is None else job.config(place)
        except UserError as error:
            found.miss(error.where, error.what)
            continue
        if config is None:
            found.miss(file.place(call), "which file `OmegaConf.load` reads is only known later")
            continue
        for entry in config.entries:
            leaves[entry.name] = Leaf(entry.value, f"{config.path}:{entry.line}", entry.why)
        found.unknowns += config.notes
    made = Composition(leaves, unknowns=list(found.unknowns))
    _follow(made, job.environment)
    found.unknowns.clear()
    found.add(_definitions(made, job, "", "omegaconf"))
    return found


def _follow(made: Composition, environment: Mapping[str, str | None]) -> None:
    for key, leaf in made.leaves.items():
        if isinstance(leaf.value, str) and "${" in leaf.value:
            value, why = resolved(leaf.value, key, made.leaves, environment, 0)
            made.leaves[key] = Leaf(value, leaf.place, why, True)


def _loaded(node: ast.expr, file: PythonFile, job: Job) -> str | None:
    """The file that a load names: written out, or a word `config=...` of the command."""
    value = constant(node, {})
    if isinstance(value, str):
        return job.place(value)
    name = dotted(node).rpartition(".")[2]
    if isinstance(node, ast.Call) and dotted(node.func).endswith(".pop") and node.args:
        name = str(constant(node.args[0], {}))
    for argument in job.arguments:
        if name and argument.name.lstrip("-") == name and isinstance(argument.value, str):
            return job.place(argument.value)
    return None
