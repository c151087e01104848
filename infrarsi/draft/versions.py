"""Which version of a library a job has: what is installed where it will run, else what it pins.

Nothing is imported. What is installed here counts only where the launch script uses no other
environment than the one that it is started in.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

_FILES = ("requirements.txt", "constraints.txt", "pyproject.toml", "setup.py", "environment.yml")
_LIMIT = 200_000  # characters of one file
_ELSEWHERE = re.compile(
    r"^[^#\n]*(\b(conda|mamba|module load|poetry run|apptainer|singularity|docker|enroot|pyxis)\b"
    r"|bin/(activate|python)|container-image)",
    re.M,
)


@dataclass(frozen=True)
class Version:
    """A version and the place that says so."""

    number: str
    told: str


class Versions:
    """The versions of a job's libraries, looked up when asked for.

    `script` is the text of the launch; `installed` answers for the environment that the job is
    started in and raises PackageNotFoundError.
    """

    def __init__(
        self, root: Path, script: str, installed: Callable[[str], str] = installed_version
    ) -> None:
        self._root = root
        self._is_here = _ELSEWHERE.search(script) is None
        self._installed = installed
        self._found: dict[str, Version | None] = {}

    def of(self, package: str) -> Version | None:
        """The version of a package, None where nothing says it."""
        if package not in self._found:
            self._found[package] = self._here(package) or self._pinned(package)
        return self._found[package]

    def _here(self, package: str) -> Version | None:
        if not self._is_here:
            return None
        try:
            return Version(self._installed(package), f"{package} as it is installed here")
        except PackageNotFoundError:
            return None

    def _pinned(self, package: str) -> Version | None:
        """An exact pin in one of the project's files."""
        name = re.escape(package).replace(r"\-", "[-_]")
        pin = re.compile(rf"(?<![\w.-]){name}\s*(?:\[[^\]]*\])?\s*==\s*([0-9][\w.+]*)", re.I)
        for path in (*(self._root / file for file in _FILES), *self._folder()):
            for number, line in enumerate(_text(path).splitlines(), start=1):
                found = pin.search(line.partition("#")[0])
                if found:
                    where = path.relative_to(self._root).as_posix()
                    return Version(found.group(1), f"{where}:{number} pins {package}")
        return None

    def _folder(self) -> list[Path]:
        return sorted((self._root / "requirements").glob("*.txt"))[:20]


def _text(path: Path) -> str:
    """The beginning of a file; nothing of one that is not there, or no text."""
    try:
        return path.read_text(encoding="utf-8")[:_LIMIT] if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        return ""
