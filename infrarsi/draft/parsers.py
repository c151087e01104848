"""Which flags a program takes, where that can be read completely, and which it is given besides."""

import difflib
from collections.abc import Iterator, Sequence

from infrarsi.contract import PlaceKind
from infrarsi.draft.arguments import Arguments
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources
from infrarsi.draft.target import Target
from infrarsi.errors import UserError

_COMPLETE = ("argparse", "click", "typer", "tyro", "simple-parsing", "HfArgumentParser")
"""Systems whose programs refuse what is not defined, and define nothing of their own."""

_OWN_PARSERS = (
    *("hydra", "fire", "absl", "jsonargparse", "configargparse"),
    *("draccus", "cyclopts", "docopt"),
)
_OPEN_CALLS = ("parse_known_args", "parse_known_intermixed_args", "add_argument_group_from")
_ANY = (
    *("ignore_unknown_options", "allow_extra_args", "sys.argv"),
    *("return_remaining_strings", "return_unknown_args", "args_filename"),
)


def known_flags(sources: Sources, arguments: Arguments) -> frozenset[str] | None:
    """Every flag that the program takes, None where some may not have been seen."""
    flags = [definition for definition in arguments.definitions if not definition.is_env]
    if not flags or arguments.is_open or set(_OWN_PARSERS) & set(sources.external):
        return None
    if set(arguments.systems) - set(_COMPLETE):
        return None
    if any(True for _ in sources.calls(*_OPEN_CALLS)):
        return None
    if any(word in file.text for file in sources.files for word in _ANY):
        return None
    found = {name for definition in flags for name in definition.names}
    return frozenset(found | {name for flag in flags for name in flag.negatives})


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


def insist_on_known(target: Target, sources: Sources, arguments: Arguments) -> None:
    """Raise UserError for a flag of the launch that the program would refuse."""
    known = known_flags(sources, arguments)
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
