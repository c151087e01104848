"""Which flags a program takes, where that can be read completely, and which it is given besides."""

import ast
import difflib
from collections.abc import Iterator, Sequence

from infrarsi.contract import PlaceKind
from infrarsi.draft.arguments import Definition
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.target import Target
from infrarsi.errors import UserError

_OWN_PARSERS = (
    *("hydra", "fire", "absl", "tyro", "jsonargparse", "simple_parsing", "configargparse"),
    *("draccus", "typer", "cyclopts", "docopt"),
)
_OPEN_CALLS = (
    *("parse_known_args", "parse_known_intermixed_args", "add_subparsers", "add_parser"),
    *("HfArgumentParser", "add_arguments", "add_argument_group_from"),
)
_ANY = ("ignore_unknown_options", "allow_extra_args", "sys.argv")


def known_flags(sources: Sources, definitions: Sequence[Definition]) -> frozenset[str] | None:
    """Every flag that the program takes, None where some may not have been seen."""
    flags = [definition for definition in definitions if not definition.is_env]
    if not flags or set(_OWN_PARSERS) & set(sources.external):
        return None
    for _, node in sources.walk():
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func).rpartition(".")[2]
        if name in _OPEN_CALLS:
            return None
        is_plain = all(isinstance(argument, ast.Constant) for argument in node.args)
        if name in ("add_argument", "option") and not is_plain:
            return None
    if any(word in file.text for file in sources.files for word in _ANY):
        return None
    found = {name for definition in flags for name in definition.names}
    found |= {
        "--no-" + name[2:]
        for definition in flags
        if definition.action == "optional"
        for name in definition.names
        if name.startswith("--")
    }
    return frozenset(found)


def is_taken(flag: str, known: frozenset[str]) -> bool:
    """Whether a flag as written is one of the program's; argparse takes a beginning as well."""
    if flag in known:
        return True
    if flag.startswith("--"):
        return sum(name.startswith(flag) for name in known) == 1
    return flag.startswith("-") and flag[:2] in known  # `-b8`


def nearest_flag(flag: str, known: frozenset[str]) -> str | None:
    """The flag that may have been meant."""
    near = difflib.get_close_matches(flag, sorted(known), n=1)
    return near[0] if near else None


def insist_on_known(target: Target, sources: Sources, definitions: Sequence[Definition]) -> None:
    """Raise UserError for a flag of the launch that the program would refuse."""
    known = known_flags(sources, definitions)
    if known is None:
        return
    for argument in target.training.arguments:
        name = argument.name
        if name.startswith("-") and not is_taken(name, known):
            near = nearest_flag(name, known)
            raise UserError(
                f"`{name}` is passed, but {target.entry} defines no such argument",
                where=f"{target.where}:{argument.line}",
                fix=f"did you mean `{near}`?" if near else "remove it, or define it in the program",
            )


def undefined(settings: Sequence[Setting]) -> Iterator[Setting]:
    """Flags that the launch passes and no definition was found of, where there are definitions."""
    if any(s.definition is not None and not s.definition.is_env for s in settings):
        for setting in settings:
            if setting.definition is None and setting.place.kind is PlaceKind.FLAG:
                yield setting
