"""The arguments that a program defines, and the variables of the environment that it reads."""

from collections.abc import Mapping

from infrarsi.configs.constants import UNKNOWN, Unknown, constant
from infrarsi.draft.argument_systems import Arguments, Definition, Job, read
from infrarsi.draft.argument_systems.scopes import module_constants
from infrarsi.draft.sources import Sources

__all__ = [
    "UNKNOWN",
    "Arguments",
    "Definition",
    "Job",
    "Unknown",
    "constant",
    "definitions",
    "module_constants",
    "read",
]


def definitions(
    sources: Sources, environment: Mapping[str, str | None] | None = None
) -> tuple[Definition, ...]:
    """Every argument that the files define, wherever the parser is built; the first one counts.

    `environment` is what the program will see, for defaults that come from there; a value of None
    is not known.
    """
    return read(sources, environment).definitions
