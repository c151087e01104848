"""SHA-256 of files that must stay as they are."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from infrarsi.errors import UserError
from infrarsi.node.digests import digest_file


def digest_bytes(content: bytes) -> str:
    """`sha256:` and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def freeze(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The digests of project-relative files; raises UserError for one that cannot be read."""
    found = {}
    for path in paths:
        try:
            found[path] = digest_file(root / path)
        except OSError as error:
            raise UserError(
                f"`{path}` is to be frozen, but cannot be read: {error.strerror}",
                where=os.fspath(root / path),
                fix="correct the path, or make the file readable",
            ) from error
    return found


def differing(root: Path, frozen: Mapping[str, str]) -> tuple[str, ...]:
    """The frozen files whose digest is another one, or which are gone."""
    return tuple(path for path, digest in frozen.items() if _digest(root / path) != digest)


def _digest(path: Path) -> str | None:
    try:
        return digest_file(path)
    except OSError:
        return None
