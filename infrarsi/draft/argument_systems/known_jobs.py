"""Jobs whose arguments lie in a library: Megatron-LM, torchtitan, DeepSpeed."""

import posixpath
import re
from dataclasses import replace

from infrarsi.configs.constants import UNKNOWN
from infrarsi.draft.argument_systems import field_groups
from infrarsi.draft.argument_systems.dataclass_parsers import tyro_flags
from infrarsi.draft.argument_systems.definition import Definition, Found
from infrarsi.draft.argument_systems.fields import Classes
from infrarsi.draft.argument_systems.job import Job
from infrarsi.draft.argument_systems.known_parsers import known
from infrarsi.draft.sources import Sources
from infrarsi.errors import UserError

_CONFIG_FILE = "--job.config_file"
_REGISTRY = ("--module", "--config")


def read(sources: Sources, job: Job, so_far: Found) -> Found:
    """The arguments of Megatron-LM or torchtitan, and those that DeepSpeed adds to a parser."""
    found = Found()
    fields = field_groups.read(sources, job.environment)
    found.add(fields)
    made = (*so_far.definitions, *found.definitions)
    names = {name for definition in made for name in definition.names}
    if _is_megatron(sources) and "--micro-batch-size" not in names:
        found.definitions += [d for d in known("megatron") or [] if d.flag not in names]
        found.is_open = True
    if _calls(sources, "add_config_arguments") and "deepspeed" in sources.external:
        found.definitions += [d for d in known("deepspeed") or [] if d.flag not in names]
    if fields.is_open and names:  # a data class that is installed elsewhere
        found.definitions += [
            replace(d, default=UNKNOWN) if d.action == "store" else d
            for d in known("megatron") or []
            if d.flag not in names
        ]
    if _is_torchtitan(sources):
        found.add(_torchtitan(sources, job))
    return found


def _is_megatron(sources: Sources) -> bool:
    """A `pretrain_*.py`, or another entry, that starts Megatron's own training loop."""
    imports = {name.partition(".")[0] for name in sources.external}
    if "megatron" not in imports:
        return False
    starts = ("pretrain(", "initialize_megatron(", "megatron.training")
    named = posixpath.basename(sources.entry.path).startswith("pretrain_")
    return named or any(word in file.text for file in sources.files for word in starts)


def _calls(sources: Sources, name: str) -> bool:
    return any(True for _ in sources.calls(name))


def _is_torchtitan(sources: Sources) -> bool:
    own = any("torchtitan" in posixpath.dirname(file.path).split("/") for file in sources.files)
    if own:
        return any("ConfigManager" in file.text for file in sources.files)
    imports = {name.partition(".")[0] for name in sources.external}
    text = sources.entry.text
    return "torchtitan" in imports and ("ConfigManager" in text or "torchtitan.train" in text)


def _torchtitan(sources: Sources, job: Job) -> Found:
    found = Found()
    classes = Classes(sources, job.environment)
    at = classes.find("JobConfig", sources.entry)
    if at is not None:
        fields, _ = classes.fields(at)
        found.definitions += [
            replace(d, system="torchtitan") for d in tyro_flags(fields, "", classes, found, 0)
        ]
    else:
        found.definitions += known("torchtitan") or []
    found.is_open = True
    given = {argument.name: argument for argument in job.arguments}
    for name in _REGISTRY:
        if name in given:
            found.miss(
                f"`{given[name].raw}`", "the configuration is made by a function of Python code"
            )
            found.definitions = [
                replace(d, default=UNKNOWN) for d in found.definitions if _is_there(d, sources)
            ]
            return found
    argument = given.get(_CONFIG_FILE) or given.get("--job.config-file")
    if argument is None:
        return found
    place = job.place(argument.value) if isinstance(argument.value, str) else None
    try:
        config = None if place is None else job.config(place)
    except UserError as error:
        found.miss(error.where, error.what)
        config = None
    if config is None:
        found.miss(f"`{argument.raw}`", "this configuration file cannot be read")
        found.definitions = [replace(d, default=UNKNOWN) for d in found.definitions]
        return found
    values = {entry.name: entry for entry in config.entries}
    found.definitions = [
        _from_file(d, values[key].value, f"{config.path}:{values[key].line}")
        if (key := d.names[0].lstrip("-")) in values
        else d
        for d in found.definitions
    ]
    return found


def _is_there(definition: Definition, sources: Sources) -> bool:
    """Whether torchtitan's own source, where it is in the repository, has such a field."""
    own = [f.text for f in sources.files if "torchtitan" in posixpath.dirname(f.path).split("/")]
    parts = definition.names[0].lstrip("-").split(".")
    return not own or all(
        any(re.search(rf"^\s+{part}\s*:", text, re.MULTILINE) for text in own) for part in parts
    )


def _from_file(definition: Definition, value: object, place: str) -> Definition:
    default = value if isinstance(value, bool | int | float | str) else UNKNOWN
    return replace(definition, default=default, place=place)
