"""SHA-256 of frozen files, read again only when a file's identity or time has changed."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

_CHUNK = 1 << 20


class Digests:
    """Remembers digests by (real path, size, time, inode), so that large data is read once.

    A file in an execution's own copy is new each time and therefore always read.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int, int], str] = {}

    def of(self, path: Path) -> str | None:
        """`sha256:...` of a file, None where it cannot be read."""
        try:
            real = os.path.realpath(path)
            status = os.stat(real)
            key = (real, status.st_size, status.st_mtime_ns, status.st_ino)
            if key not in self._known:
                self._known[key] = _read(real)
            return self._known[key]
        except OSError:
            return None

    def differing(self, folder: Path, frozen: Mapping[str, str]) -> tuple[str, ...]:
        """The frozen files under `folder` whose digest is not the one written down."""
        return tuple(name for name, digest in frozen.items() if self.of(folder / name) != digest)


def _read(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
