"""argparse: `add_argument` wherever it is called, sub-parsers, later defaults."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infrarsi.configs.constants import UNKNOWN, TypeName, Unknown, constant, dotted
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.argument_systems.definition import BARE_ACTIONS, Definition, Found
from infrarsi.draft.argument_systems.scopes import (
    Call,
    Walker,
    live_files,
    module_constants,
)
from infrarsi.draft.sources import PythonFile, Sources

_KINDS = {"int": "int", "float": "float", "str": "str", "bool": "truthy", "Path": "str"}
_BOOL_WORDS = ("str2bool", "strtobool", "boolean", "str_to_bool", "parse_bool", "string_to_bool")
_MADE = (
    *("add_argument", "set_defaults", "add_parser", "add_argument_group"),
    "add_mutually_exclusive_group",
)
_OPEN = ("parse_known_args", "parse_known_intermixed_args")


def read(sources: Sources, environment: Mapping[str, str | None] | None = None) -> Found:
    """The arguments of every parser of the job; of one name the first counts."""
    reader = _Reader()
    for file, tree in live_files(sources, *_MADE, *_OPEN):
        names = module_constants(file, environment)
        for call in Walker(tree, names, (*_MADE, *_OPEN)).calls():
            reader.take(file, call)
    return reader.found()


class _Reader:
    def __init__(self) -> None:
        self.all = Found()
        self.later: dict[str, Scalar | Unknown | None] = {}
        self.commands: dict[str, str] = {}  # the variable of a sub-parser: its name
        self.groups: dict[str, str] = {}  # the variable of a group: that of its parser
        self.has_commands = False

    def take(self, file: PythonFile, call: Call) -> None:
        if call.name == "add_argument":
            self._argument(file, call)
        elif call.name == "set_defaults":
            for keyword in call.node.keywords:
                if keyword.arg is not None:
                    self.later[keyword.arg] = _scalar(constant(keyword.value, call.names))
        elif call.name == "add_parser" and call.node.args:
            name = constant(call.node.args[0], call.names)
            self.has_commands = True
            if isinstance(name, str) and call.bound:
                self.commands[call.bound] = name
            else:
                self.all.is_open = True
        elif call.name in ("add_argument_group", "add_mutually_exclusive_group") and call.bound:
            self.groups[call.bound] = call.owner
        elif call.name in _OPEN:
            self.all.is_open = True

    def _argument(self, file: PythonFile, call: Call) -> None:
        flags = [constant(arg, call.names) for arg in call.node.args]
        starred = any(isinstance(arg, ast.Starred) for arg in call.node.args)
        if starred or UNKNOWN in flags:
            written = ast.unparse(call.node.args[0])
            self.all.miss(
                file.place(call.node), f"the name of an argument is computed (`{written}`)"
            )
            return
        written_flags = [flag for flag in flags if isinstance(flag, str) and flag.startswith("-")]
        if not written_flags:
            return
        if any(keyword.arg is None for keyword in call.node.keywords):
            self.all.miss(file.place(call.node), f"`{flags[0]}` is made with computed options")
        owner = self.groups.get(call.owner, call.owner)
        command = self.commands.get(owner, "")
        self.all.definitions.append(_definition(file, call, written_flags, command))

    def found(self) -> Found:
        definitions: dict[tuple[str, str], Definition] = {}
        for one in self.all.definitions:
            if one.dest in self.later:
                one = replace(one, default=self.later[one.dest])
            if self.has_commands and not one.command:
                one = replace(one, is_before_command=True)
            definitions.setdefault((one.names[0], one.command), one)
        self.all.definitions = list(definitions.values())
        return self.all


def _definition(file: PythonFile, call: Call, flags: list[str], command: str) -> Definition:
    action = _action(call)
    default = _scalar(call.value("default"))
    if action in BARE_ACTIONS and default is None:
        default = action == "store_false"
    longest = max(flags, key=lambda flag: (flag.startswith("--"), len(flag)))
    dest = call.value("dest")
    if not isinstance(dest, str):
        dest = longest.lstrip("-").replace("-", "_")
    choices = call.value("choices", [])
    help_text = call.value("help", "")
    negatives = tuple("--no-" + flag[2:] for flag in flags if flag.startswith("--"))
    several = call.keyword("nargs") is not None and call.value("nargs") != "?"
    return Definition(
        names=tuple(flags),
        dest=dest,
        place=file.place(call.node),
        kind="other" if several else _kind(call.keyword("type"), default, call.names),
        action=action,
        default=default,
        choices=tuple(choices) if isinstance(choices, list) else (),
        help=help_text if isinstance(help_text, str) else "",
        negatives=negatives if action == "optional" else (),
        command=command,
    )


def _scalar(value: Any) -> Scalar | Unknown | None:
    return value if isinstance(value, Scalar | Unknown | None) else UNKNOWN


def _action(call: Call) -> str:
    node = call.keyword("action")
    if node is None:
        return "store"
    if dotted(node).endswith("BooleanOptionalAction"):
        return "optional"
    value = constant(node, call.names)
    return value if isinstance(value, str) else "other"


def _kind(node: ast.expr | None, default: object, names: Mapping[str, Any]) -> str:
    if node is None:
        return "str"
    given = names.get(dotted(node))
    name = given.name if isinstance(given, TypeName) else dotted(node).rpartition(".")[2]
    if given is UNKNOWN:
        return "other"
    if name.lower() in _BOOL_WORDS:
        return "bool"
    if isinstance(node, ast.Lambda):
        return _lambda_kind(node.body, default)
    if isinstance(node, ast.Call) and dotted(node.func) == "type" and len(node.args) == 1:
        return kind_of(constant(node.args[0], names))
    return _KINDS.get(name, "other")


def _lambda_kind(body: ast.expr, default: object) -> str:
    """`lambda s: s.lower() == "true"` is a truth value, `lambda s: int(float(s))` a number."""
    if isinstance(body, ast.Call) and dotted(body.func) in _BOOL_WORDS:
        return "bool"
    if isinstance(body, ast.Call) and dotted(body.func) in ("int", "float", "str"):
        return dotted(body.func)
    words = [n.value for n in ast.walk(body) if isinstance(n, ast.Constant)]
    if isinstance(body, ast.Compare) and {"true", "True", "1", 1} & set(map(_hashable, words)):
        return "bool"
    return "bool" if isinstance(default, bool) and isinstance(body, ast.Compare) else "other"


def _hashable(value: Any) -> Any:
    return value if isinstance(value, Scalar) else repr(value)
