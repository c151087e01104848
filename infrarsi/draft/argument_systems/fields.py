"""The fields of data classes: names, types, defaults and help, bases of the project included."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infrarsi.configs.constants import UNKNOWN, Unknown, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.annotations import Annotation, read_annotation
from infrarsi.draft.argument_systems.scopes import module_constants
from infrarsi.draft.sources import PythonFile, Sources

_ENUMS = ("Enum", "StrEnum", "IntEnum")


@dataclass(frozen=True)
class Field:
    """One field. `nested` is the data class that it holds, `default` UNKNOWN where it is computed.

    `is_required`: it has no default. `aliases` are further flags from its metadata.
    """

    name: str
    annotation: Annotation
    place: str
    default: Scalar | Unknown | None = None
    is_required: bool = False
    help: str = ""
    choices: tuple[Scalar, ...] = ()
    aliases: tuple[str, ...] = ()
    nested: "ClassAt | None" = None


@dataclass(frozen=True)
class ClassAt:
    """A class and the file that defines it."""

    file: PythonFile
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The class's name."""
        return self.node.name


class Classes:
    """The classes of a job, by name."""

    def __init__(self, sources: Sources, environment: Mapping[str, str | None] | None) -> None:
        self._sources = sources
        self._environment = environment
        self._constants: dict[str, dict[str, Any]] = {}
        self._known: dict[str, list[ClassAt]] = {}

    def _named(self, name: str) -> list[ClassAt]:
        """Every class of that name."""
        if name not in self._known:
            self._known[name] = [
                ClassAt(file, node)
                for file, node in self._sources.of(ast.ClassDef, name)
                if node.name == name
            ]
        return self._known[name]

    def base(
        self, node: ast.expr, file: PythonFile, below: ast.ClassDef | None = None
    ) -> ClassAt | None:
        """The class that an expression names; None for a library's.

        `below` is the class that is derived from it: a job's own class often has the name of the
        library's that it extends.
        """
        name = dotted(node)
        first, _, last = name.rpartition(".")
        if first.partition(".")[0] in self._sources.external:
            return None
        found = self.find(last, file)
        return None if found is not None and found.node is below else found

    def find(self, name: str, file: PythonFile) -> ClassAt | None:
        """The class that a name means in a file; None for one from elsewhere, or one of several."""
        found = self._named(original(name, file))
        own = [at for at in found if at.file is file]
        if own:
            return own[-1]
        return found[0] if len(found) == 1 else None

    def constants(self, file: PythonFile) -> dict[str, Any]:
        """The names of a file that are bound to constants."""
        if file.path not in self._constants:
            self._constants[file.path] = module_constants(file, self._environment)
        return self._constants[file.path]

    def fields(self, at: ClassAt) -> tuple[list[Field], list[str]]:
        """(fields, bases first, a later one of a name in place of the earlier; foreign bases)."""
        found: dict[str, Field] = {}
        foreign: list[str] = []
        self._collect(at, found, foreign, set())
        return list(found.values()), foreign

    def _collect(
        self, at: ClassAt, found: dict[str, Field], foreign: list[str], seen: set[str]
    ) -> None:
        if at.name in seen:
            return
        seen.add(at.name)
        for base in reversed(at.node.bases):
            name = original(dotted(base).rpartition(".")[2], at.file)
            inner = self.base(base, at.file, at.node)
            if inner is not None:
                self._collect(inner, found, foreign, seen)
            elif name not in ("object", "Generic", "Protocol", "ABC", "Serializable", ""):
                foreign.append(name)
        names = self.constants(at.file)
        for node, following in zip(at.node.body, [*at.node.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            annotation = read_annotation(node.annotation, names)
            if "ClassVar" in ast.dump(node.annotation) or node.target.id.startswith("_"):
                continue
            made = self._field(at, node, annotation, names)
            if made is None:
                found.pop(node.target.id, None)
                continue
            if not made.help and isinstance(following, ast.Expr):
                text = constant(following.value, {})
                made = _with_help(made, text if isinstance(text, str) else "")
            found[made.name] = made

    def _field(
        self, at: ClassAt, node: ast.AnnAssign, annotation: Annotation, names: dict[str, Any]
    ) -> Field | None:
        assert isinstance(node.target, ast.Name)
        default, options = _default(node.value, names)
        if options.get("init") is False:
            return None
        nested = self.find(annotation.name, at.file) if annotation.name else None
        choices = annotation.choices
        if nested is not None and _is_enum(nested):
            members = _members(nested, self.constants(nested.file))
            default = _member(node.value, members, names, default)
            choices, nested = tuple(members), None
        given = options.get("choices")
        if isinstance(given, list):
            choices = tuple(given)
        if nested is not None and annotation.kind == "other":
            default = UNKNOWN
        text = options.get("help", "")
        aliases = options.get("alias", options.get("aliases", []))
        return Field(
            name=node.target.id,
            annotation=annotation,
            place=at.file.place(node),
            default=default,
            is_required=node.value is None,
            help=text if isinstance(text, str) else "",
            choices=choices,
            aliases=tuple(aliases) if isinstance(aliases, list) else (str(aliases),),
            nested=nested,
        )

    def members(self, at: ClassAt) -> dict[str, Any]:
        """The names of an enumeration with their values."""
        return _members(at, self.constants(at.file))


def parameters(
    node: ast.FunctionDef | ast.AsyncFunctionDef, file: PythonFile, classes: Classes
) -> list[Field]:
    """The parameters of a function as fields; `self`, `*args` and `**kwargs` are left out."""
    names = classes.constants(file)
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults: dict[str, ast.expr] = {}
    if node.args.defaults:
        for argument, value in zip(
            positional[-len(node.args.defaults) :], node.args.defaults, strict=True
        ):
            defaults[argument.arg] = value
    for argument, inner in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if inner is not None:
            defaults[argument.arg] = inner
    found = []
    for argument in (*positional, *node.args.kwonlyargs):
        if argument.arg in ("self", "cls"):
            continue
        annotation = read_annotation(argument.annotation, names)
        written = defaults.get(argument.arg)
        default, _ = _default(written, names)
        nested = classes.find(annotation.name, file) if annotation.name else None
        choices = annotation.choices
        if nested is not None and _is_enum(nested):
            members = classes.members(nested)
            default = _member(written, members, names, default)
            choices, nested = tuple(members), None
        found.append(
            Field(
                name=argument.arg,
                annotation=annotation,
                place=f"{file.path}:{argument.lineno}",
                default=default,
                is_required=written is None,
                choices=choices,
                nested=nested,
            )
        )
    return found


def original(name: str, file: PythonFile) -> str:
    """The name under which something that is imported `as` another was defined."""
    for node in file.nodes if re.search(rf"\bas\s+{re.escape(name)}\b", file.text) else ():
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname == name:
                    return alias.name
    return name


def _with_help(field: Field, text: str) -> Field:
    return replace(field, help=" ".join(text.split()))


def _default(
    node: ast.expr | None, names: Mapping[str, Any]
) -> tuple[Scalar | Unknown | None, dict[str, Any]]:
    """(default, options such as help) of what stands behind the equals sign of a field."""
    if node is None:
        return None, {}
    if not isinstance(node, ast.Call):
        return _scalar(constant(node, names)), {}
    name = dotted(node.func).rpartition(".")[2]
    if name not in ("field", "choice", "flag", "HfArg", "arg", "mutable_field"):
        return _scalar(constant(node, names)), {}
    options: dict[str, Any] = {}
    default: Scalar | Unknown | None = UNKNOWN
    for keyword in node.keywords:
        if keyword.arg == "default":
            default = _scalar(constant(keyword.value, names))
        elif keyword.arg in ("default_factory", "factory"):
            default = _made_by(keyword.value, names)
        elif keyword.arg == "metadata" and isinstance(keyword.value, ast.Dict):
            options |= _metadata(keyword.value, names)
        elif keyword.arg is not None:
            options[keyword.arg] = constant(keyword.value, names)
    if name == "choice":
        options["choices"] = [constant(argument, names) for argument in node.args]
    elif name == "flag" and node.args:
        default = _scalar(constant(node.args[0], names))
    return default, {key: value for key, value in options.items() if value is not UNKNOWN}


def _made_by(node: ast.expr, names: Mapping[str, Any]) -> Scalar | Unknown | None:
    """`lambda: 8` makes 8; a list or an object is no one word."""
    if isinstance(node, ast.Lambda):
        return _scalar(constant(node.body, names))
    return UNKNOWN


def _metadata(node: ast.Dict, names: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is not None and isinstance(name := constant(key, names), str):
            found[name] = constant(value, names)
    return found


def _scalar(value: Any) -> Scalar | Unknown | None:
    return value if isinstance(value, Scalar | Unknown | None) else UNKNOWN


def _is_enum(at: ClassAt) -> bool:
    return any(dotted(base).rpartition(".")[2] in _ENUMS for base in at.node.bases)


def _members(at: ClassAt, names: Mapping[str, Any]) -> dict[str, Any]:
    return {
        target.id: constant(node.value, names)
        for node in at.node.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _member(
    node: ast.expr | None,
    members: Mapping[str, Any],
    names: Mapping[str, Any],
    otherwise: Scalar | Unknown | None,
) -> Scalar | Unknown | None:
    """The name of the member that a default is."""
    if isinstance(node, ast.Call):
        node = next((k.value for k in node.keywords if k.arg == "default"), None)
    if isinstance(node, ast.Attribute) and node.attr in members:
        return node.attr
    value = UNKNOWN if node is None else constant(node, names)
    return next((name for name, own in members.items() if own == value), otherwise)


def uses(sources: Sources, names: Sequence[str]) -> list[tuple[PythonFile, ast.Call]]:
    """Every call of something with one of these last names."""
    return list(sources.calls(*names))
