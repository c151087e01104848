"""What the job of a written infrarsi.yaml passes today, and which flags its program takes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.contract import Place, PlaceKind, Project, Scalar
from infrarsi.draft.parsers import is_taken, known_flags, nearest_flag
from infrarsi.draft.reading import read_settings
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import uncollected
from infrarsi.draft.target import MissingEntry, Target, locate, sources_of
from infrarsi.errors import UserError

_DISTRIBUTED = ("DistributedDataParallel", "init_process_group")


@dataclass(frozen=True)
class Today:
    """The job as it is started today; `flags` is None where not all of them can be read."""

    target: Target
    settings: tuple[Setting, ...]
    flags: frozenset[str] | None
    is_distributed: bool = False

    def is_known(self, place: Place) -> bool:
        """Whether a flag means something to the job; True where that cannot be told."""
        if place.kind is not PlaceKind.FLAG or self.flags is None:
            return True
        return self.passes(place.name) or is_taken(place.name, self.flags)

    def nearest(self, place: Place) -> str | None:
        """The flag that may have been meant instead."""
        return nearest_flag(place.name, self.flags or frozenset())

    def passes(self, name: str) -> bool:
        """Whether the launch passes a flag of exactly this name."""
        return any(argument.name == name for argument in self.target.training.arguments)

    def value(self, place: Place) -> tuple[Scalar, str] | None:
        """The value of a flag or variable today and where it is from; None where not known."""
        for setting in self.settings:
            names = setting.definition.names if setting.definition is not None else ()
            if place.kind is setting.place.kind and place.name in (setting.place.name, *names):
                if not setting.is_known or setting.value is None:
                    return None
                verb = "passes" if setting.is_given else "has as its default"
                return setting.value, f"{setting.origin} {verb} `{place.name}`"
        if place.kind is PlaceKind.ENV:
            assigned = self.target.training.environment.get(place.name)
            if assigned is not None and assigned.value is not None:
                where = f"{self.target.where}:{assigned.line}"
                return assigned.value, f"{where} exports `{place.name}`"
        return None


@uncollected()
def today(root: Path, project: Project, environ: Mapping[str, str] | None = None) -> Today | None:
    """The job behind a project's command, None where it cannot be read.

    Raises UserError where the command starts a file that is not there.
    """
    environ = os.environ if environ is None else environ
    try:
        command = project.launch.command
        target = locate(root, entry=None, command=command, environ=environ, root=root)
        sources = sources_of(target)
    except MissingEntry as error:
        if error.is_module:  # it may be installed
            return None
        raise
    except UserError:
        return None
    told = read_settings(target, sources, environ)
    is_distributed = any(word in file.text for file in sources.files for word in _DISTRIBUTED)
    return Today(target, told.settings, known_flags(sources, told.arguments), is_distributed)
