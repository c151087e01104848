"""What `accelerate launch` is told by its own options, as settings that the catalogue knows.

accelerate takes an option before its configuration file, so a key of the file that an option also
gives is no setting.
"""

import posixpath
from collections.abc import Sequence

from infrarsi.contract import Place, PlaceKind, Scalar
from infrarsi.draft.settings import Setting, guessed
from infrarsi.draft.target import Target
from infrarsi.families import dialects
from infrarsi.scripts import Argument

_LAUNCHER = "accelerate launch"
_OF_DEEPSPEED = ("gradient_accumulation_steps",)  # without its plugin nothing reads them


def with_launcher_options(settings: Sequence[Setting], target: Target) -> tuple[Setting, ...]:
    """The settings with those that accelerate's options give, for a job that uses accelerate."""
    training = target.training
    if training.launcher != _LAUNCHER:
        return tuple(settings)
    given = {_name(option): option for option in training.launcher_options}
    known = {
        name: option
        for name, option in given.items()
        if dialects()["accelerate"].of_name(name)
        and (name not in _OF_DEEPSPEED or "use_deepspeed" in given)
    }
    file = given["config_file"].value if "config_file" in given else None
    path = posixpath.normpath(posixpath.join(target.cwd, file)) if isinstance(file, str) else ""
    kept = [setting for setting in settings if not _is_overruled(setting, path, known)]
    made = [_setting(name, option, target) for name, option in known.items()]
    return (*kept, *made)


def _name(option: Argument) -> str:
    return option.name.lstrip("-").replace("-", "_")


def _is_overruled(setting: Setting, path: str, options: dict[str, Argument]) -> bool:
    """Whether a key of accelerate's file is also given by an option."""
    place = setting.place
    if place.kind is not PlaceKind.CONFIG or not path or not place.name.startswith(f"{path}:"):
        return False
    return place.name.rpartition(":")[2].rpartition(".")[2] in options


def _setting(name: str, option: Argument, target: Target) -> Setting:
    origin = f"{target.where}:{option.line}"
    is_known = option.static and option.value is not None
    value: Scalar | None = guessed(option.value) if is_known and option.value is not None else None
    why = "" if is_known else f"it depends on `{option.condition or option.expression}`"
    place = Place(PlaceKind.LAUNCHER, f"--{name}")
    return Setting(place, value, origin, True, is_known, None, why)
