"""Words of a training command of which nothing can be known: they may hold any flag."""

from collections.abc import Sequence

from infrarsi.scripts import Argument

_LISTS = ("data-path", "data-paths", "train-data-path", "valid-data-path", "test-data-path")


def opaque(arguments: Sequence[Argument]) -> list[Argument]:
    """The words that may be further arguments; not those behind a flag that takes many paths."""
    found: list[Argument] = []
    last = ""
    for argument in arguments:
        last = argument.name or last
        is_list = last.lstrip("-").replace("_", "-") in _LISTS
        if not argument.name and argument.value is None and not is_list:
            found.append(argument)
    return found


def told(argument: Argument, where: str) -> str:
    """Such a word with its place."""
    return (
        f"what `{argument.raw.strip()}` gives ({where}:{argument.line}); flags in it are not seen"
    )
