"""The configuration files that a job reads: which, how they meet the flags, and their settings."""

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from infrarsi.configs import Config, Entry, Key, can_read, join_key
from infrarsi.configs.constants import constant
from infrarsi.contract import Place, PlaceKind, Scalar
from infrarsi.draft.argument_systems import Definition, Job
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.documents import Written
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources
from infrarsi.errors import UserError

Meeting = Literal["defaults", "overrides", "apart"]
"""A file gives the defaults of flags, takes their place, or is read beside them."""

_FLAG_NAMES = re.compile(
    r"--?(.*[-_.])?(config|configs|cfg|conf|yaml|recipe|deepspeed|params|hparams|settings|args)"
    r"([-_](file|path|name|yaml|json|toml))?"
)
_FILE_FLAGS = re.compile(r"--?(config|cfg|conf|config[-_]file|yaml|deepspeed([-_]config)?)")
_LOADERS = ("safe_load", "load", "full_load", "loads", "fromfile", "load_yaml", "read_yaml")
_DEFAULTS = ("TrlParser", "jsonargparse", "configargparse", "add_config_file", "config_path=")
_OVERRIDES = re.compile(
    r"setattr\(\s*(args|opt|cfg|config|hparams|self\.args)\s*,|vars\(\s*\w+\s*\)\.update\("
    r"|\.__dict__\.update\("
)
_WHOLE_FILE = ("parse_json_file(", "parse_yaml_file(", "parse_dict(")
_DATA = re.compile(r"data|train|valid|test|vocab|token|dataset|corpus|merges|index", re.I)
_READERS_OWN = ("hydra", "omegaconf", "globals", "torchtitan")


@dataclass(frozen=True)
class ReadFile:
    """One configuration file, where the job names it, and how it meets the flags."""

    config: Config
    named: str
    meeting: Meeting
    fixed: str = ""  # why a copy of it would not be read
    kept: Mapping[Key, str] = field(default_factory=dict)  # why a value cannot be changed
    written: Written | None = None

    def place(self, line: int) -> str:
        """Where a line of it stands: in the script, if a heredoc writes the file."""
        return f"{self.config.path}:{line}" if self.written is None else self.written.place(line)

    def unknowns(self) -> Iterator[str]:
        """Values that come from elsewhere in the script and are therefore not searched."""
        for key, why in self.kept.items():
            yield f"`{join_key(key)}` of {self.config.path} is not searched: {why}"


@dataclass(frozen=True)
class Configurations:
    """All files that the job reads, and what could not be read of them."""

    files: tuple[ReadFile, ...] = ()
    unknowns: tuple[str, ...] = ()


def find(
    sources: Sources, job: Job, definitions: Sequence[Definition], script: str, extra: str | None
) -> Configurations:
    """The files that the command, a default or a load in the code names; `extra` is the user's."""
    if any(definition.system in _READERS_OWN for definition in definitions):
        return Configurations()
    named = [
        *_on_the_command(job, script),
        *_in_defaults(definitions, job),
        *_in_code(sources, job),
        *([(extra, "`--config`")] if extra is not None else []),
    ]
    meeting = _meeting(sources)
    alone = _alone(sources, job)
    files: dict[str, ReadFile] = {}
    unknowns: list[str] = []
    for place, told in named:
        if place in files:
            continue
        try:
            config = job.config(place)
        except UserError as error:
            unknowns.append(f"{error.where}: {error.what}")
            continue
        if config is not None:
            how: Meeting = meeting
            if place in alone:
                how = "overrides" if len(job.arguments) == 1 else "defaults"
            elif posixpath.splitext(place)[1] == ".py":
                how = "apart"
            written = job.documents.get(place)
            kept = {} if written is None or written.fixed else written.unchangeable(config)
            file = ReadFile(config, told, how, _fixed(place, job), kept, written)
            files[place] = file
            unknowns += [*config.notes, *file.unknowns()]
    unknowns += _unnamed(job, script)
    return Configurations(tuple(files.values()), tuple(unknowns))


def _unnamed(job: Job, script: str) -> Iterator[str]:
    """Files whose names only a run can tell."""
    for argument in job.arguments:
        if _FILE_FLAGS.fullmatch(argument.name) and not argument.static:
            written = argument.expression or argument.raw
            yield (
                f"what the file of `{argument.name}` says ({script}:{argument.line}): which file "
                f"it is, `{written}`, only a run can tell"
            )


def _on_the_command(job: Job, script: str) -> Iterator[tuple[str, str]]:
    for argument in (*job.arguments, *job.options):
        value = argument.value
        if not isinstance(value, str) or not argument.static or not can_read(value):
            continue
        if argument.name and not _FLAG_NAMES.fullmatch(argument.name.lower()):
            continue
        if not argument.name and value.endswith(".py"):
            continue
        place = job.place(value)
        if place is not None:
            yield place, f"{script}:{argument.line}"


def _in_defaults(definitions: Sequence[Definition], job: Job) -> Iterator[tuple[str, str]]:
    given = {argument.name for argument in job.arguments}
    for definition in definitions:
        value = definition.default
        if definition.is_env or given & set(definition.names) or not isinstance(value, str):
            continue
        if can_read(value) and _FLAG_NAMES.fullmatch(definition.flag.lower()):
            place = job.place(value)
            if place is not None and job.exists(place):
                yield place, definition.place


def _in_code(sources: Sources, job: Job) -> Iterator[tuple[str, str]]:
    """`yaml.safe_load(open("conf.yaml"))` and the like, with the name written out."""
    for file, node in sources.calls(*_LOADERS):
        if not node.args:
            continue
        for inner in ast.walk(node):
            value = constant(inner, {}) if isinstance(inner, ast.Constant) else None
            if not isinstance(value, str) or not can_read(value) or value.endswith(".py"):
                continue
            if value.endswith(".json") and _DATA.search(value):
                continue
            for folder in (job.cwd, posixpath.dirname(file.path)):
                place = job.place(value, folder)
                if place is not None and job.exists(place):
                    yield place, file.place(node)
                    break


def _meeting(sources: Sources) -> Meeting:
    if any(True for _ in sources.holding("set_defaults(**", *_DEFAULTS)):
        return "defaults"
    return (
        "overrides"
        if any(True for file in sources.files if _OVERRIDES.search(file.text))
        else "apart"
    )


def _alone(sources: Sources, job: Job) -> tuple[str, ...]:
    """A file that is the whole command line: `parser.parse_json_file(sys.argv[1])`.

    Flags behind it are told to a parser of the project's own, and come before the file.
    """
    if not job.arguments or job.arguments[0].name:
        return ()
    value = job.arguments[0].value
    place = job.place(value) if isinstance(value, str) else None
    is_whole = any(word in f.text for f in sources.files for word in _WHOLE_FILE)
    return (place,) if place is not None and is_whole else ()


def _fixed(place: str, job: Job) -> str:
    """Why a run would read another file than its own copy."""
    if place in job.documents:
        return job.documents[place].fixed
    if any(posixpath.normpath(posixpath.join(job.cwd, path)) == place for path in job.written):
        return "the launch script writes it anew"
    if str(job.root) in job.script_text:
        return f"the launch script names {job.root} by its whole path"
    return ""


def joined(
    flags: Sequence[Setting], found: Configurations
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """(flags and variables joined with what the files say, what is not certain of them)."""
    settings = list(flags)
    passed = frozenset(setting.place.name for setting in flags if setting.is_given)
    unknowns: list[str] = []
    for file in found.files:
        is_deepspeed = any(entry.key[0] == "zero_optimization" for entry in file.config.entries)
        for entry in file.config.entries:
            if any(part.isdigit() for part in entry.key):
                continue
            if is_deepspeed and entry.value == "auto":
                continue  # transformers and accelerate fill it in from their own settings
            settings, why = _with_entry(settings, passed, file, entry)
            unknowns += [why] if why else []
    return tuple(settings), tuple(dict.fromkeys(unknowns))


def _with_entry(
    settings: list[Setting], passed: frozenset[str], file: ReadFile, entry: Entry
) -> tuple[list[Setting], str]:
    """One value of a file: a flag's default, in a flag's place, or a setting of its own.

    A default that a file gives is said by the job as much as a flag is; `passed`, the flags of the
    command, still come before it.
    """
    name = entry.key[-1].replace("-", "_")
    at = next((s for s in settings if s.dest == name and _is_flag(s)), None)
    made = _setting(file, entry, at.definition if at is not None else None)
    if at is None:
        strange = next((s for s in settings if s.definition is None and s.dest == name), None)
        if strange is None or (file.meeting == "apart" and len(entry.key) > 1):
            return [*settings, made], ""
        why = f"{strange.origin} and {made.origin} both give `{name}`; which one the program takes"
        made = replace(made, value=None, is_known=False, why="two places give it")
        return [*settings, made], why
    rest = [setting for setting in settings if setting is not at]
    if file.meeting == "defaults" and len(entry.key) == 1:
        if at.place.name in passed:
            return settings, ""
        if at.is_switch:
            return [*rest, made], ""  # no flag takes away what the file switches on
        kept = replace(at, value=made.value, origin=made.origin, is_known=made.is_known)
        return [*rest, replace(kept, is_given=True, why=made.why)], ""
    if file.meeting == "overrides" and len(entry.key) == 1:
        return [*rest, made], ""
    if not at.is_given and at.value is None and at.is_known:
        return [*rest, made], ""
    why = f"{at.origin} and {made.origin} both give `{name}`; which one the program takes"
    blind = [
        replace(setting, value=None, is_known=False, why="two places give it")
        for setting in (at, made)
    ]
    return [*rest, *blind], why


def _is_flag(setting: Setting) -> bool:
    return setting.place.kind is PlaceKind.FLAG and setting.definition is not None


def _setting(file: ReadFile, entry: Entry, like: Definition | None) -> Setting:
    origin = file.place(entry.line)
    definition = Definition(
        names=(entry.name,),
        dest=entry.key[-1],
        place=origin,
        kind=kind_of(entry.value) if like is None or entry.value is not None else like.kind,
        default=entry.value,
        choices=like.choices if like is not None else (),
        help=like.help if like is not None else "",
        system="config",
        words=(False, True),
    )
    value: Scalar | None = entry.value
    fixed = file.fixed or file.kept.get(entry.key, "")
    why = entry.why or (f"it cannot be changed: {fixed}" if fixed else "")
    place = Place(PlaceKind.CONFIG, f"{file.config.path}:{entry.name}")
    return Setting(place, value, origin, True, not why, definition, why)
