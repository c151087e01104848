"""SHA-256 of frozen files, read again only when a file's identity or time has changed."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path


class Digests:
    """Remembers digests by real path, size, times and inode, so that large data is read once.

    A file in an execution's own copy is new each time and therefore read; so is one that the job
    rewrote and gave its old modification time, since nobody can set the time of the change.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int, int], str] = {}

    def of(self, path: Path) -> str | None:
        """`sha256:...` of a file, None where it cannot be read."""
        try:
            real = os.path.realpath(path)
            status = os.stat(real)
            key = (
                real,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
            )
            if key not in self._known:
                self._known[key] = digest_file(real)
            return self._known[key]
        except OSError:
            return None

    def differing(self, folder: Path, frozen: Mapping[str, str]) -> tuple[str, ...]:
        """The frozen files under `folder` whose digest is not the one written down."""
        return tuple(name for name, digest in frozen.items() if self.of(folder / name) != digest)


def digest_file(path: str | os.PathLike[str]) -> str:
    """`sha256:` and 64 hexadecimal digits, read in pieces; raises OSError."""
    with open(path, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
