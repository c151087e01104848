"""Everything that a launch tells its program: arguments, files and variables, joined."""

from collections.abc import Mapping
from dataclasses import dataclass

from infrarsi.draft import configurations
from infrarsi.draft.argument_systems import Arguments, Definition, Job, read
from infrarsi.draft.dictionaries import deepspeed_settings, trainer_settings
from infrarsi.draft.documents import doubts as unknown_parts
from infrarsi.draft.settings import Setting, settings, told_apart
from infrarsi.draft.sources import Sources
from infrarsi.draft.target import Target


@dataclass(frozen=True)
class Told:
    """What the program takes, what it is told today, and what could not be read of either."""

    arguments: Arguments
    settings: tuple[Setting, ...]
    unknowns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def read_settings(
    target: Target,
    sources: Sources,
    environ: Mapping[str, str],
    config: str | None = None,
) -> Told:
    """The settings of a launch; `config` is a file of the project that the user says it reads."""
    seen: dict[str, str | None] = dict(environ)
    for name, assignment in target.training.environment.items():
        seen[name] = assignment.value
    job = Job(
        root=target.root,
        cwd=target.cwd,
        arguments=target.training.arguments,
        options=target.training.launcher_options,
        environment=seen,
        written=tuple(write.target for write in target.script.writes() if write.target),
        script_text=target.script.text,
        documents=target.written,
    )
    arguments = read(sources, seen, job)
    flags = settings(arguments.definitions, target.training, target.where, environ)
    found = configurations.find(sources, job, arguments.definitions, target.where, config)
    joined, doubts = configurations.joined(flags, found)
    joined += deepspeed_settings(sources)
    if not any(_is_of_a_trainer(definition) for definition in arguments.definitions):
        joined += trainer_settings(sources)
    return Told(
        arguments=arguments,
        settings=told_apart(joined),
        unknowns=(*arguments.unknowns, *found.unknowns, *doubts, *unknown_parts(target.written)),
        files=tuple(file.config.path for file in found.files),
    )


def _is_of_a_trainer(definition: Definition) -> bool:
    """Whether a flag is a field of a Trainer's arguments."""
    return definition.system == "HfArgumentParser"
