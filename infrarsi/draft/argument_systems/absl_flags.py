"""absl: `flags.DEFINE_integer("batch_size", 8, "help")`."""

import re
from collections.abc import Mapping

from infrarsi.configs.constants import UNKNOWN, Unknown, constant
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.scopes import Call, Walker, live_files, module_constants
from infrarsi.draft.sources import PythonFile, Sources

_KINDS = {
    "DEFINE_integer": "int",
    "DEFINE_float": "float",
    "DEFINE_string": "str",
    "DEFINE_bool": "bool",
    "DEFINE_boolean": "bool",
    "DEFINE_enum": "str",
}
_DEFINE = re.compile(r"DEFINE_\w+")


def read(sources: Sources, environment: Mapping[str, str | None] | None = None) -> Found:
    """Every flag that a call of `DEFINE_...` makes."""
    found = Found()
    made = {word for file in sources.files for word in _DEFINE.findall(file.text)}
    for file, tree in live_files(sources, *sorted(made)):
        names = module_constants(file, environment)
        wanted = tuple(sorted({*_KINDS, *_DEFINE.findall(file.text)}))
        for call in Walker(tree, names, wanted).calls():
            if _DEFINE.fullmatch(call.name):
                _take(file, call, found)
    return found


def _take(file: PythonFile, call: Call, found: Found) -> None:
    place = file.place(call.node)
    arguments = [constant(argument, call.names) for argument in call.node.args]
    for keyword in ("name", "default", "help"):
        if call.keyword(keyword) is not None:
            arguments.append(call.value(keyword))
    name = arguments[0] if arguments else UNKNOWN
    if not isinstance(name, str):
        found.miss(place, "the name of a flag is computed")
        return
    kind = _KINDS.get(call.name, "other")
    if call.name == "DEFINE_config_file" or call.name == "DEFINE_config_dict":
        found.miss(place, f"`--{name}` takes a whole configuration; its fields are not read")
        return
    default = arguments[1] if len(arguments) > 1 else None
    is_enum = call.name == "DEFINE_enum"
    rest = arguments[2:]
    choices = rest.pop(0) if is_enum and rest else []
    text = rest[0] if rest and isinstance(rest[0], str) else ""
    is_bool = kind == "bool"
    value: Scalar | Unknown | None = (
        default if isinstance(default, Scalar | Unknown | None) else UNKNOWN
    )
    found.definitions.append(
        Definition(
            names=(f"--{name}", f"-{name}"),
            dest=name,
            place=place,
            kind=kind,
            default=value,
            choices=tuple(choices) if isinstance(choices, list) else (),
            help=text,
            system="absl",
            negatives=(f"--no{name}", f"-no{name}") if is_bool else (),
            is_joined=is_bool,
        )
    )
