"""Text files of a project as they were measured."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infrarsi.contract import SnapshotRef
from infrarsi.errors import UserError


@dataclass(frozen=True)
class Sources:
    """Reads project-relative files below `root`, a snapshot's tree or the project itself."""

    root: Path

    @classmethod
    def of(cls, snapshot: SnapshotRef) -> "Sources":
        """The files of a snapshot."""
        return cls(Path(snapshot.root) / "tree")

    def exists(self, path: str) -> bool:
        """Whether there is such a regular file, not through a link."""
        place = self.root / path
        real_root = os.path.realpath(self.root)
        wanted = os.path.join(real_root, str(PurePosixPath(path)))
        return place.is_file() and os.path.realpath(place) == wanted

    def content(self, path: str) -> bytes:
        """A file's bytes; raises UserError for a path outside, a link, or an unreadable file."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise UserError(f"the path must lie inside the project, but got {path!r}")
        if not self.exists(path):
            there = os.path.lexists(self.root / path)
            raise UserError(
                f"`{path}` is a link or a folder, not a file of the project"
                if there
                else f"there is no `{path}` in the project",
                where=path,
                fix="correct the path in infrarsi.yaml",
            )
        try:
            return (self.root / path).read_bytes()
        except OSError as error:
            raise UserError(f"`{path}` cannot be read: {error.strerror}", where=path) from error

    def text(self, path: str) -> str:
        """A file's text, line endings kept; raises UserError if it is not UTF-8."""
        try:
            return self.content(path).decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"byte {error.start} of `{path}` is not UTF-8, so the file cannot be changed",
                where=path,
                fix="save it as UTF-8, or leave it out of `editable`",
            ) from error

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Several files by path."""
        return {path: self.text(path) for path in paths}
