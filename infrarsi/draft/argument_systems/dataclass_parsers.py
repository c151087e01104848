"""Parsers made from data classes and functions: HfArgumentParser, tyro, simple-parsing, fire."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from infrarsi.configs.constants import UNKNOWN, dotted
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import Classes, Field, original, parameters, uses
from infrarsi.draft.argument_systems.known_parsers import known
from infrarsi.draft.sources import PythonFile, Sources

_HF = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_WITH_CONFIG = ("TrlParser",)  # these take a YAML file by a flag of their own
_OF_TRL = ("ModelConfig", "ScriptArguments")  # names that others give to their classes too
_Environment = Mapping[str, str | None] | None


def _config_flag(place: str) -> Definition:
    return Definition(names=("--config",), dest="config", place=place, system="HfArgumentParser")


def read_hf(sources: Sources, environment: _Environment = None) -> Found:
    """`HfArgumentParser((ModelArguments, TrainingArguments))`: one flag a field."""
    found = Found()
    classes = Classes(sources, environment)
    for file, call in uses(sources, (*_HF, *_derived(sources))):
        if dotted(call.func).rpartition(".")[2] in _WITH_CONFIG:
            found.definitions.append(_config_flag(file.place(call)))
        given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "dataclass_types")]
        node = _bound(given[0], file) if given else None
        if node is None:
            found.miss(file.place(call), "the data classes of this parser cannot be read")
            continue
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        for part in parts:
            _hf_class(part, file, call, classes, found)
    return found


def _derived(sources: Sources) -> tuple[str, ...]:
    """Classes of the project that are such parsers too."""
    classes = (n for file in sources.holding(*_HF) for n in file.of(ast.ClassDef))
    return tuple(
        node.name
        for node in classes
        if any(dotted(base).rpartition(".")[2] in _HF for base in node.bases)
    )


def _hf_class(
    part: ast.expr, file: PythonFile, call: ast.Call, classes: Classes, found: Found
) -> None:
    at = classes.base(part, file)
    if at is None:
        name = original(dotted(part).rpartition(".")[2], file)
        is_other = name in _OF_TRL and "trl" not in file.text
        _foreign(name, file.place(call), found, is_other=is_other)
        return
    fields, foreign = classes.fields(at)
    own = {field.name for field in fields}
    for field in fields:
        if field.nested is None:
            found.definitions.append(_hf_flag(field))
    for base in foreign:
        inherited = Found()
        _foreign(base, at.file.place(at.node), inherited)
        inherited.definitions = [d for d in inherited.definitions if d.dest not in own]
        found.add(inherited)


def _foreign(name: str, place: str, found: Found, *, is_other: bool = False) -> None:
    """A class of a library: its fields are known by name, or they are not (`is_other`: it only has
    the name of a known one)."""
    definitions = None if is_other else known(name)
    if definitions is None:
        found.miss(place, f"the fields of `{name}` are defined elsewhere and cannot be read")
        return
    there = {definition.flag for definition in found.definitions}
    found.definitions += [d for d in definitions if d.flag not in there]
    found.is_open = True  # another version of the library may have more


def _hf_flag(field: Field) -> Definition:
    flags = [f"--{field.name}"]
    if "_" in field.name:
        flags.append(f"--{field.name.replace('_', '-')}")
    made = _plain(field, (*flags, *field.aliases), "HfArgumentParser")
    if field.annotation.kind == "bool":
        default = False if field.is_required else field.default
        negatives = (f"--no_{field.name}",) if default is True else ()
        return replace(made, kind="bool", default=default, negatives=negatives)
    return made


def read_tyro(sources: Sources, environment: _Environment = None) -> Found:
    """`tyro.cli(Config)` or of a function: `--group.field-name`, `--x` and `--no-x`."""
    found = Found()
    classes = Classes(sources, environment)
    calls = uses(sources, ("cli",)) if any("tyro" in f.text for f in sources.files) else []
    for file, call in calls:
        if dotted(call.func) not in ("tyro.cli", "cli") or "tyro" not in file.text:
            continue
        default = next((k.value for k in call.keywords if k.arg == "default"), None)
        if default is not None:
            found.miss(file.place(call), "defaults come from the object given to `tyro.cli`")
        fields = _of_target(call.args[0] if call.args else None, file, classes, found)
        if fields is None:
            found.miss(file.place(call), "what `tyro.cli` is given cannot be read")
            continue
        made = list(tyro_flags(fields, "", classes, found, 0))
        if default is not None:
            made = [replace(definition, default=UNKNOWN) for definition in made]
        found.definitions += made
    return found


def tyro_flags(
    fields: list[Field], prefix: str, classes: Classes, found: Found, depth: int
) -> Iterator[Definition]:
    """The flags of fields, those of data classes in them behind the name of their field."""
    for field in fields:
        if field.nested is not None and depth < 6:
            inner, foreign = classes.fields(field.nested)
            for base in foreign:
                found.miss(field.place, f"the fields of `{base}` are defined elsewhere")
            yield from tyro_flags(inner, f"{prefix}{field.name}.", classes, found, depth + 1)
            continue
        dashed = (prefix + field.name).replace("_", "-")
        names = tuple(dict.fromkeys((f"--{prefix}{field.name}", f"--{dashed}")))
        made = _plain(field, (*names, *field.aliases), "tyro")
        if field.annotation.kind == "bool" and not field.is_required:
            group, _, last = dashed.rpartition(".")
            start = f"--{group}." if group else "--"
            negative = (f"{start}no-{last}", f"{start}no_{last.replace('-', '_')}")
            made = replace(made, action="optional", negatives=negative)
        yield made


def read_simple_parsing(sources: Sources, environment: _Environment = None) -> Found:
    """`parser.add_arguments(Config, ...)` and `simple_parsing.parse(Config)`: one flag a field."""
    found = Found()
    classes = Classes(sources, environment)
    if not any("simple_parsing" in file.text for file in sources.files):
        return found
    calls = uses(sources, ("add_arguments",)) + [
        (file, call)
        for file, call in uses(sources, ("parse",))
        if dotted(call.func) in ("simple_parsing.parse", "sp.parse", "parse")
    ]
    for file, call in calls:
        fields = _of_target(call.args[0] if call.args else None, file, classes, found)
        if fields is None:
            found.miss(file.place(call), "the data class given here cannot be read")
            continue
        for field in _flattened(fields, classes, found, 0):
            made = _plain(field, (f"--{field.name}", *field.aliases), "simple-parsing")
            if field.annotation.kind == "bool":
                made = replace(made, negatives=(f"--no{field.name}",), is_joined=True)
            found.definitions.append(made)
    names = [definition.names[0] for definition in found.definitions]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.definitions = [d for d in found.definitions if d.names[0] != name]
        found.miss(sources.entry.path, f"`{name}` is a field of several data classes")
    return found


def _flattened(fields: list[Field], classes: Classes, found: Found, depth: int) -> Iterator[Field]:
    for field in fields:
        if field.nested is None or depth > 6:
            yield field
            continue
        inner, foreign = classes.fields(field.nested)
        for base in foreign:
            found.miss(field.place, f"the fields of `{base}` are defined elsewhere")
        yield from _flattened(inner, classes, found, depth + 1)


def read_fire(sources: Sources, environment: _Environment = None) -> Found:
    """`fire.Fire(main)`: one flag a parameter, whose value is read as a Python literal."""
    found = Found()
    classes = Classes(sources, environment)
    for file, call in uses(sources, ("Fire",)):
        target = dotted(call.args[0]) if call.args else ""
        function = function_named(target, sources)
        at = classes.find(target, file) if target else None
        if function is not None:
            fields = parameters(function[1], function[0], classes)
            if function[1].args.kwarg is not None:
                found.miss(function[0].place(function[1]), f"`{target}` takes any other flag")
        elif at is not None:
            made = next((n for n in at.node.body if getattr(n, "name", "") == "__init__"), None)
            if not isinstance(made, ast.FunctionDef):
                found.miss(file.place(call), f"the arguments of `{target}` cannot be read")
                continue
            fields = parameters(made, at.file, classes)
            found.is_open = True  # a method's own flags follow
        else:
            found.miss(file.place(call), "what `fire.Fire` is given cannot be read")
            continue
        found.definitions += [_fire_flag(field) for field in fields]
    return found


def _fire_flag(field: Field) -> Definition:
    names = tuple(dict.fromkeys((f"--{field.name}", f"--{field.name.replace('_', '-')}")))
    kind = field.annotation.kind
    if not field.is_required and field.default not in (None, UNKNOWN):  # a literal decides
        kind = type(field.default).__name__
    made = replace(_plain(field, names, "fire"), kind=kind, choices=())
    return replace(made, words=("False", "True"), negatives=(f"--no{field.name}",), is_joined=True)


def _plain(field: Field, names: tuple[str, ...], system: str) -> Definition:
    return Definition(
        names=tuple(dict.fromkeys(names)),
        dest=field.name,
        place=field.place,
        kind="str" if field.choices and field.annotation.kind == "other" else field.annotation.kind,
        default=UNKNOWN if field.is_required else field.default,
        choices=field.choices,
        help=field.help,
        system=system,
    )


def _of_target(
    node: ast.expr | None, file: PythonFile, classes: Classes, found: Found
) -> list[Field] | None:
    """The fields of a data class, or the parameters of a function, that a parser is given."""
    name = "" if node is None else dotted(node).rpartition(".")[2]
    at = classes.find(name, file) if name else None
    if at is not None:
        fields, foreign = classes.fields(at)
        for base in foreign:
            found.miss(at.file.place(at.node), f"the fields of `{base}` are defined elsewhere")
        return fields
    function = _in_file(name, file)
    return None if function is None else parameters(function, file, classes)


def _in_file(name: str, file: PythonFile) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
    return None


def function_named(
    name: str, sources: Sources
) -> tuple[PythonFile, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The first function of a name, and its file."""
    last = name.rpartition(".")[2]
    for file in sources.holding(last) if last else ():
        node = _in_file(last, file)
        if node is not None:
            return file, node
    return None


def _bound(node: ast.expr, file: PythonFile) -> ast.expr | None:
    """What a name stands for, where the parser is given a name for a tuple of classes."""
    if isinstance(node, ast.Tuple | ast.List):
        return node
    name = dotted(node)
    if not name:
        return None
    for inner in file.nodes:
        if isinstance(inner, ast.Assign) and dotted(inner.targets[0]) == name:
            return inner.value if isinstance(inner.value, ast.Tuple | ast.List) else None
    return node
