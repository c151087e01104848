"""The settings of a job: what the program can be told, joined with what the script tells it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import Place, PlaceKind, Scalar
from infrarsi.draft.arguments import Definition, Unknown
from infrarsi.scripts import Argument, TrainingCommand

_TRUE = ("1", "true", "yes", "on", "y")
_FALSE = ("0", "false", "no", "off", "n", "")
_EVALUATION = re.compile(r"eval\w*|valid\w*|val|test\w*|inference|generation|sampling|predict\w*")
_LOOSE = ("hydra", "omegaconf")  # a value may be of another type than the one it replaces


@dataclass(frozen=True)
class Setting:
    """One flag or variable: its value today, None where it is unset or cannot be known.

    `origin` is where the value is written, `is_given` whether the launch says it: the script, or
    a file that it hands over. A setting that is not `is_known` has a reason in `why`.
    """

    place: Place
    value: Scalar | None
    origin: str
    is_given: bool
    is_known: bool
    definition: Definition | None
    why: str = ""
    is_ambiguous: bool = False

    @property
    def dest(self) -> str:
        """The name that the code uses for it."""
        if self.definition is not None:
            return self.definition.dest
        return self.place.name.lstrip("-").replace("-", "_").rpartition(".")[2]

    @property
    def words(self) -> str:
        """Its name as a flag, also for a variable or a key of a configuration.

        `MICRO_BATCH` is `--micro-batch`, and `training.micro_batch` too, unless another key ends
        the same (`is_ambiguous`) or the section is one of evaluation.
        """
        if self.place.kind is PlaceKind.ENV:
            return "--" + self.place.name.lower().replace("_", "-")
        key = self.key
        if key:
            sections = key.lower().split(".")
            whole = self.is_ambiguous or any(_EVALUATION.fullmatch(s) for s in sections[:-1])
            return "--" + (key.replace(".", "-") if whole else key.rpartition(".")[2]).replace(
                "_", "-"
            )
        names = self.definition.names if self.definition else (self.place.name,)
        return max((self.place.name, *names), key=len)

    @property
    def key(self) -> str:
        """Its key with sections, for a setting of a configuration; "" for a plain flag."""
        if self.place.kind is PlaceKind.CONFIG:
            return self.place.key
        names = self.definition.names if self.definition is not None else ()
        name = names[0] if names else self.place.name
        is_key = "." in name or not name.startswith("-")
        return name.lstrip("-+") if is_key and self.place.kind is PlaceKind.FLAG else ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name that it may go by: as a flag, with its sections, and its other flags."""
        names = self.definition.names if self.definition is not None else ()
        if self.key:
            return (self.words, "--" + self.key.replace(".", "-").replace("_", "-"))
        return (self.words, *names)

    @property
    def is_switch(self) -> bool:
        """Whether it is a flag without a value."""
        if self.definition is not None:
            return self.definition.is_switch
        return self.value is True


def settings(
    definitions: Sequence[Definition],
    command: TrainingCommand,
    script: str,
    environ: Mapping[str, str],
) -> tuple[Setting, ...]:
    """Every setting; those that the script passes without a definition come last."""
    passed: dict[str, Argument] = {}
    strange: list[Argument] = []
    flags = [d for d in definitions if not d.is_env]
    for argument in command.arguments:
        definition = _defined(argument.name, flags)
        if definition is not None:
            passed[definition.names[0]] = argument
        elif argument.name.startswith("-"):
            strange.append(argument)
    found = []
    for definition in definitions:
        if definition.is_env:
            found.append(_from_environment(definition, command, script, environ))
        elif definition.names[0] in passed:
            found.append(_passed(definition, passed[definition.names[0]], script))
        else:
            found.append(_default(definition))
    return (*found, *(_passed(None, argument, script) for argument in strange))


def _defined(name: str, definitions: Sequence[Definition]) -> Definition | None:
    """The definition a written flag means; argparse also takes an unambiguous beginning."""
    for definition in definitions:
        if name in definition.names or name in definition.negatives:
            return definition
        if definition.system in _LOOSE and name.lstrip("+") in definition.names:
            return definition
    if not name.startswith("--"):
        return None
    begun = [d for d in definitions if any(own.startswith(name) for own in d.names)]
    return begun[0] if len(begun) == 1 else None


def _passed(definition: Definition | None, argument: Argument, script: str) -> Setting:
    joined = definition is not None and definition.is_joined and argument.name.startswith("-")
    place = Place(PlaceKind.FLAG, argument.name, joined)
    origin = f"{script}:{argument.line}"
    if argument.value is None or not argument.static:
        reason = argument.condition or argument.expression or argument.raw
        return Setting(place, None, origin, True, False, definition, f"it depends on `{reason}`")
    if definition is None:
        return Setting(place, guessed(argument.value), origin, True, True, None)
    if definition.action == "optional":
        value: Scalar | None = argument.name not in definition.negatives
        return Setting(
            Place(PlaceKind.FLAG, definition.flag), value, origin, True, True, definition
        )
    if argument.name in definition.negatives:
        return Setting(place, False, origin, True, True, definition)
    if definition.is_switch:
        return Setting(place, definition.action == "store_true", origin, True, True, definition)
    value = converted(argument.value, definition.kind)
    is_free = value is None or definition.kind == "other"
    if is_free and definition.system in _LOOSE:
        value = guessed(argument.value)
    why = "" if value is not None else f"{argument.value!r} is no {definition.kind}"
    return Setting(place, value, origin, True, value is not None, definition, why)


def _default(definition: Definition) -> Setting:
    joined = definition.is_joined and definition.flag.startswith("-")
    place = Place(PlaceKind.FLAG, definition.flag, joined)
    value = definition.default
    if definition.is_before_command:
        why = "it must stand before the sub-command, where no flag is added"
        return Setting(place, None, definition.place, False, False, definition, why)
    if isinstance(value, Unknown):
        why = "its default is computed"
        return Setting(place, None, definition.place, False, False, definition, why)
    if isinstance(value, str):
        value = converted(value, definition.kind)
    return Setting(place, value, definition.place, False, True, definition)


def _from_environment(
    definition: Definition, command: TrainingCommand, script: str, environ: Mapping[str, str]
) -> Setting:
    name = definition.names[0]
    place = Place(PlaceKind.ENV, name)
    assignment = command.environment.get(name)
    if assignment is not None:
        origin = f"{script}:{assignment.line}"
        value = None if assignment.value is None else converted(assignment.value, definition.kind)
        why = "" if value is not None else f"it depends on `{assignment.raw}`"
        return Setting(place, value, origin, True, value is not None, definition, why)
    if name in environ:
        value = converted(environ[name], definition.kind)
        return Setting(place, value, "the environment", True, value is not None, definition)
    return Setting(
        place,
        None if isinstance(definition.default, Unknown) else definition.default,
        definition.place,
        False,
        not isinstance(definition.default, Unknown),
        definition,
    )


def told_apart(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Keys that end the same (`model.size`, `data.size`) are known by their whole names only."""
    count = Counter(setting.words for setting in settings if setting.key)
    return tuple(
        replace(setting, is_ambiguous=True) if setting.key and count[setting.words] > 1 else setting
        for setting in settings
    )


def converted(text: Scalar, kind: str) -> Scalar | None:
    """A word of the command line as the program's type makes it; None where it would refuse."""
    if not isinstance(text, str):
        return text
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError:
        return None
    if kind == "truthy":
        return text != ""
    if kind == "bool":
        lower = text.lower()
        return True if lower in _TRUE else False if lower in _FALSE else None
    return text


def guessed(text: Scalar) -> Scalar:
    """A word as what it looks like."""
    if not isinstance(text, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
