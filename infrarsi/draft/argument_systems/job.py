"""What readers of arguments may know of the job beside its sources."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from infrarsi.configs import Config, can_read
from infrarsi.configs import read as read_config
from infrarsi.draft.documents import Written
from infrarsi.errors import UserError
from infrarsi.scripts import Argument, TrainingCommand

_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Job:
    """The project's folder, where the program runs in it, what it is given, its environment.

    `written` are files that the launch script itself writes, `documents` those of heredocs.
    """

    root: Path
    cwd: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Argument, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    script_text: str = ""
    is_module: bool = False
    documents: Mapping[str, Written] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        root: Path,
        cwd: str,
        command: TrainingCommand,
        environment: Mapping[str, str | None],
    ) -> "Job":
        """The job that a command starts."""
        return cls(root, cwd, command.arguments, command.launcher_options, environment)

    @cached_property
    def _read(self) -> dict[str, Config | UserError | None]:
        return {}

    def place(self, path: str, folder: str | None = None) -> str | None:
        """A path as the program sees it, relative to the project; None where it is no file there.

        `folder` is where a relative path begins: where the program runs, if it is not given.
        """
        joined = posixpath.join(self.root.as_posix(), self.cwd if folder is None else folder, path)
        real = Path(posixpath.normpath(joined))
        if not real.is_relative_to(self.root):
            return None
        return real.relative_to(self.root).as_posix()

    def exists(self, place: str) -> bool:
        """Whether there is such a file of the project, not through a link, when the job runs."""
        if place in self.documents:
            return True
        path = self.root / place
        return path.is_file() and not path.is_symlink()

    def config(self, place: str) -> Config | None:
        """A configuration file; None where there is none. Raises UserError where it is broken."""
        if place not in self._read:
            try:
                self._read[place] = self._load(place)
            except UserError as error:
                self._read[place] = error
        found = self._read[place]
        if isinstance(found, UserError):
            raise found
        return found

    def _load(self, place: str) -> Config | None:
        if not can_read(place) or not self.exists(place):
            return None
        if place in self.documents:
            document = self.documents[place]
            return read_config(document.text, place, document.document.unknown)
        path = self.root / place
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise UserError(
                    f"it is larger than {_MAX_BYTES >> 20} MiB, so it is not read", where=place
                )
            return read_config(path.read_bytes().decode(), place)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"it cannot be read: {error}", where=place) from error
