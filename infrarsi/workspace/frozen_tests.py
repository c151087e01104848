"""Which files of a project are its tests, so that no patch passes by changing them."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from infrarsi.contract import Project, SnapshotRef
from infrarsi.node.digests import digest_file

_FOLDERS = ("test", "tests")
_NAMES = re.compile(r"(test_.*|.*_test|tests?|conftest)\.py")
_CONFIGURATION = ("pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml")


def frozen_tests(project: Project, snapshot: SnapshotRef) -> dict[str, str]:
    """Path and digest of every test file of the snapshot.

    By name (`tests/`, `test_*.py`, `conftest.py`, the configuration of pytest), and what the
    commands of `verify.user_tests` name, unless the contract has it as editable.
    """
    root = Path(snapshot.root) / "tree"
    named = _named(project.verify.user_tests)
    return {
        path: digest_file(root / path)
        for path in sorted(_files(root))
        if _is_test(path) or (_is_below(path, named) and path not in project.editable)
    }


def _is_test(path: str) -> bool:
    pure = PurePosixPath(path)
    return (
        any(part in _FOLDERS for part in pure.parts[:-1])
        or _NAMES.fullmatch(pure.name) is not None
        or pure.name in _CONFIGURATION
    )


def _is_below(path: str, named: Sequence[str]) -> bool:
    return any(path == name or path.startswith(name + "/") for name in named)


def _named(commands: Sequence[str]) -> list[str]:
    """The words of the commands as paths; `tests/test_x.py::test_y` names the file."""
    words: list[str] = []
    for command in commands:
        try:
            words += shlex.split(command)
        except ValueError:
            continue
    paths = [os.path.normpath(word.partition("::")[0]) for word in words if word]
    return [path for path in paths if path not in (".", "..") and not path.startswith(("-", "/"))]


def _files(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(root).as_posix()
