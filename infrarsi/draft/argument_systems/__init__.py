"""The arguments of a program, read from whichever library takes them from the command line."""

from collections.abc import Mapping
from dataclasses import dataclass

from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems import (
    absl_flags,
    argparse_calls,
    click_options,
    dataclass_parsers,
    environment_reads,
    globals_configurator,
    hydra_configs,
    known_jobs,
    wrapped_functions,
)
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.job import Job
from infrarsi.draft.sources import Sources

__all__ = ["Arguments", "Definition", "Found", "Job", "read"]


@dataclass(frozen=True)
class Arguments:
    """All that a program can be told, as far as it can be read.

    `unknowns` are places where it cannot, each with its reason; with `is_open` there may be more
    arguments than `definitions` has.
    """

    definitions: tuple[Definition, ...]
    unknowns: tuple[str, ...] = ()
    is_open: bool = False
    systems: tuple[str, ...] = ()

    def of(self, dest: str) -> Definition | None:
        """The argument that the code knows by this name."""
        return next((d for d in self.definitions if d.dest == dest and not d.is_env), None)


def read(
    sources: Sources,
    environment: Mapping[str, str | None] | None = None,
    job: Job | None = None,
) -> Arguments:
    """Every argument and variable that the files take; without a `job`, no files of its own.

    `environment` is what the program will see, for defaults that come from there; a value of None
    is not known.
    """
    found = argparse_calls.read(sources, environment)
    for reader in (
        click_options.read_click,
        click_options.read_typer,
        dataclass_parsers.read_hf,
        dataclass_parsers.read_tyro,
        dataclass_parsers.read_simple_parsing,
        dataclass_parsers.read_fire,
        absl_flags.read,
        wrapped_functions.read,
    ):
        found.add(reader(sources, environment))
    if job is not None:
        found.add(hydra_configs.read_hydra(sources, job))
        found.add(hydra_configs.read_omegaconf(sources, job))
        found.add(globals_configurator.read(sources, job))
        found.add(known_jobs.read(sources, job, found))
        _choose_command(found, job)
    flags = _first_of_each(found)
    variables = environment_reads.read(sources, environment)
    systems = tuple(dict.fromkeys(d.system for d in flags))
    unknowns = tuple(dict.fromkeys(found.unknowns))
    return Arguments((*flags, *variables), unknowns, found.is_open, systems)


def _choose_command(found: Found, job: Job) -> None:
    """Of several sub-commands only the one that the job names counts."""
    commands = {d.command for d in found.definitions if d.command}
    if not commands:
        return
    words: list[Scalar | None] = []
    for argument in job.arguments:  # a sub-command may look like the value of a bare flag
        words += [argument.value] if argument.value is not True else []
    named = next((word for word in words if word in commands), None)
    if named is None:
        found.is_open = True
        return
    found.definitions = [d for d in found.definitions if d.command in ("", named)]


def _first_of_each(found: Found) -> list[Definition]:
    """Of one name the first definition."""
    kept: dict[tuple[str, str], Definition] = {}
    for definition in found.definitions:
        key = (definition.names[0], definition.command)
        kept.setdefault(key, definition)
    return list(kept.values())
