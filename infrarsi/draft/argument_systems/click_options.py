"""click and typer: options of decorated functions."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infrarsi.configs.constants import UNKNOWN, Unknown, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import Classes, Field, parameters, uses
from infrarsi.draft.argument_systems.scopes import Call, Walker, live_files, module_constants
from infrarsi.draft.sources import PythonFile, Sources

_KINDS = {
    "int": "int",
    "INT": "int",
    "IntRange": "int",
    "float": "float",
    "FLOAT": "float",
    "FloatRange": "float",
    "str": "str",
    "STRING": "str",
    "Path": "str",
    "File": "str",
    "bool": "bool",
    "BOOL": "bool",
}
_OPEN = ("ignore_unknown_options", "allow_extra_args")
_Environment = Mapping[str, str | None] | None


def read_click(sources: Sources, environment: _Environment = None) -> Found:
    """Every `@click.option(...)`."""
    found = Found()
    for file, tree in live_files(sources, "option("):
        if any(word in file.text for word in _OPEN):
            found.is_open = True
        names = module_constants(file, environment)
        groups = _commands(tree)
        found.is_open = found.is_open or len(groups) > 1
        for call in Walker(tree, names, ("option",)).calls():
            if call.name == "option":
                made = _option(file, call, groups, found)
                if made is not None:
                    found.definitions.append(made)
    return found


def _commands(tree: ast.Module) -> dict[int, str]:
    """The command that each option's line belongs to, where there are several."""
    lines: dict[int, str] = {}
    commands = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(_last(d) in ("command", "group") for d in node.decorator_list)
    ]
    if len(commands) < 2:
        return lines
    for node in commands:
        for decorator in node.decorator_list:
            is_group = any(_last(d) == "group" for d in node.decorator_list)
            name = "" if is_group else node.name.replace("_", "-")
            lines[decorator.lineno] = name
    return lines


def _last(node: ast.expr) -> str:
    return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _option(
    file: PythonFile, call: Call, commands: Mapping[int, str], found: Found
) -> Definition | None:
    declared = [constant(argument, call.names) for argument in call.node.args]
    place = file.place(call.node)
    if UNKNOWN in declared:
        found.miss(place, "the name of an option is computed")
        return None
    words = [word for word in declared if isinstance(word, str)]
    flags = [word for word in words if word.startswith("-")]
    if not flags:
        return None
    negatives = [part.strip() for flag in flags for part in flag.split("/")[1:]]
    flags = [flag.split("/")[0].strip() for flag in flags]
    default = _scalar(call.value("default"))
    action = "optional" if negatives else "store"
    if call.value("is_flag") is True and not negatives:
        action, default = "store_true", False if default is None else default
    if call.keyword("flag_value") is not None or call.value("multiple") is True:
        action = "other"
    kind, choices = _type(call, default)
    longest = max(flags, key=lambda flag: (flag.startswith("--"), len(flag)))
    own = next((word for word in words if not word.startswith("-")), None)
    text = call.value("help", "")
    command = commands.get(call.node.lineno, "")
    return Definition(
        names=tuple(flags),
        dest=own or longest.lstrip("-").replace("-", "_"),
        place=place,
        kind=kind,
        action=action,
        default=False if negatives and default is None else default,
        choices=choices,
        help=text if isinstance(text, str) else "",
        system="click",
        negatives=tuple(negatives),
        command=command,
        is_before_command=bool(commands) and not command,
    )


def _type(call: Call, default: object) -> tuple[str, tuple[Scalar, ...]]:
    node = call.keyword("type")
    if node is None:
        return kind_of(default) if isinstance(default, Scalar) else "str", ()
    if isinstance(node, ast.Call) and dotted(node.func).endswith("Choice") and node.args:
        choices = constant(node.args[0], call.names)
        return "str", tuple(choices) if isinstance(choices, list) else ()
    if isinstance(node, ast.List | ast.Tuple):
        choices = constant(node, call.names)
        return "str", tuple(choices) if isinstance(choices, list) else ()
    target = node.func if isinstance(node, ast.Call) else node
    return _KINDS.get(dotted(target).rpartition(".")[2], "other"), ()


def _scalar(value: Any) -> Scalar | Unknown | None:
    return value if isinstance(value, Scalar | Unknown | None) else UNKNOWN


def read_typer(sources: Sources, environment: _Environment = None) -> Found:
    """`typer.run(main)` and `@app.command()`: one option a parameter that has a default."""
    found = Found()
    classes = Classes(sources, environment)
    for file in sources.holding("typer"):
        commands = list(_functions(file, sources))
        for node in commands:
            command = node.name.replace("_", "-") if len(commands) > 1 else ""
            for field, raw in zip(parameters(node, file, classes), _raw(node), strict=True):
                made = _typer_option(file, field, raw, classes)
                if made is not None:
                    found.definitions.append(replace(made, command=command))
    return found


def _functions(file: PythonFile, sources: Sources) -> Iterator[ast.FunctionDef]:
    run = {
        dotted(call.args[0])
        for at, call in uses(sources, ("run",))
        if at is file and dotted(call.func) in ("typer.run", "run") and call.args
    }
    for node in file.tree.body:
        if isinstance(node, ast.FunctionDef) and (
            node.name in run
            or any(
                _last(d) == "command"
                and "click" not in dotted(d.func if isinstance(d, ast.Call) else d)
                for d in node.decorator_list
            )
        ):
            yield node


def _raw(node: ast.FunctionDef) -> list[tuple[ast.expr | None, ast.expr | None]]:
    """(annotation, default) of every parameter as written."""
    positional = [*node.args.posonlyargs, *node.args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(node.args.defaults))
    defaults = [*missing, *node.args.defaults, *node.args.kw_defaults]
    arguments = [*positional, *node.args.kwonlyargs]
    return [(a.annotation, d) for a, d in zip(arguments, defaults, strict=True)]


def _typer_option(
    file: PythonFile,
    field: Field,
    raw: tuple[ast.expr | None, ast.expr | None],
    classes: Classes,
) -> Definition | None:
    names = classes.constants(file)
    option = next((m for m in field.annotation.metadata if isinstance(m, ast.Call)), None)
    default: Scalar | Unknown | None = UNKNOWN if field.is_required else field.default
    written = raw[1]
    is_option = not field.is_required
    if isinstance(written, ast.Call) and _last(written) in ("Option", "Argument"):
        option = written
        first = [*written.args[:1], *(k.value for k in written.keywords if k.arg == "default")]
        is_required = not first or (isinstance(first[0], ast.Constant) and first[0].value is ...)
        default = UNKNOWN if is_required else _scalar(constant(first[0], names))
        declared = written.args[1:]
    else:
        declared = option.args if option is not None else []
    if option is not None:
        is_option = _last(option) == "Option"
    if not is_option:
        return None
    flags = [f for f in (constant(node, names) for node in declared) if isinstance(f, str)]
    negatives = [part for flag in flags for part in flag.split("/")[1:]]
    flags = [flag.split("/")[0] for flag in flags] or [f"--{field.name.replace('_', '-')}"]
    help_node = (
        next((k.value for k in option.keywords if k.arg == "help"), None) if option else None
    )
    text = constant(help_node, names) if help_node is not None else ""
    is_bool = field.annotation.kind == "bool"
    if is_bool and not negatives and not any("/" in f for f in flags):
        negatives = [f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")]
        if declared:  # a name of one's own has no negative
            negatives = []
    choices = field.choices
    if field.annotation.name and choices:
        at = classes.find(field.annotation.name, file)
        members = classes.members(at) if at is not None else {}
        choices = tuple(v for v in members.values() if isinstance(v, Scalar)) or choices
        default = members.get(str(default), default)
    return Definition(
        names=tuple(flags),
        dest=field.name,
        place=field.place,
        kind="str" if choices else field.annotation.kind,
        action=("optional" if negatives else "store_true") if is_bool else "store",
        default=default,
        choices=choices,
        help=text if isinstance(text, str) else "",
        system="typer",
        negatives=tuple(negatives),
    )
