"""Files that the launch scripts write by heredocs, as files of the project that are read."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infrarsi.configs import Config
from infrarsi.contract import Scalar
from infrarsi.draft.starting import Start
from infrarsi.errors import UserError
from infrarsi.scripts import Document, Script


@dataclass(frozen=True)
class Written:
    """A file that a script writes before it trains; `script` holds the heredoc, in `file`.

    `fixed` says why no value of it can be changed there.
    """

    document: Document
    script: Script
    file: Path | None = None
    fixed: str = ""

    @property
    def where(self) -> str:
        """The script and the line of the heredoc."""
        return f"{self._name}:{self.document.line}"

    def place(self, line: int) -> str:
        """The script and the line that a line of the file is written in."""
        return f"{self._name}:{self.document.line_of(line)}"

    @property
    def _name(self) -> str:
        return self.script.where if self.file is None else self.file.as_posix()

    @property
    def text(self) -> str:
        """Its text; raises UserError where that cannot be known."""
        if self.document.why:
            raise UserError(
                f"what the script writes into {self.document.path!r} cannot be known: "
                f"{self.document.why}",
                where=self.where,
            )
        return self.document.text

    def unchangeable(self, config: Config) -> Mapping[tuple[str, ...], str]:
        """The keys whose values cannot be changed in the script, each with the reason."""
        found: dict[tuple[str, ...], str] = {}
        for entry in config.entries:
            lines = range(entry.line, entry.line + entry.raw.count("\n") + 1)
            own = self.document.is_own
            if entry.why or all(n <= len(own) and own[n - 1] for n in lines):
                continue
            try:
                changed = config.with_value(entry.key, _other(entry.value))
                self.script.with_document(self.document.path, changed.text)
            except UserError as error:
                found[entry.key] = error.what.partition(": ")[2] or error.what
        return found


def written_files(launch: Start) -> dict[Path, Written]:
    """The files that the scripts on the way to the training write, by their paths here."""
    found: dict[Path, Written] = {}
    start: Start | None = launch
    while start is not None:
        fixed = "" if start is launch else "a script that calls the launch script writes it"
        for document in start.script.documents():
            path = Path(os.path.normpath(start.start_dir / document.path))
            found.setdefault(path, Written(document, start.script, start.script_file, fixed))
        start = start.outer
    return found


def inside(files: Mapping[Path, Written], root: Path) -> dict[str, Written]:
    """Those of a project, by their paths in it."""
    found: dict[str, Written] = {}
    for path, file in files.items():
        script = file.file
        if script is not None and script.is_relative_to(root):
            script = script.relative_to(root)
        if path.is_relative_to(root):
            found[path.relative_to(root).as_posix()] = replace(file, file=script)
    return found


def doubts(files: Mapping[str, Written]) -> Iterator[str]:
    """What cannot be known of programs that are written by heredocs."""
    for path, file in files.items():
        if path.endswith(".py") and not file.document.why:
            for expression in file.document.unknown.values():
                yield f"what `{expression}` is in {path}, which {file.where} writes"


def _other(value: Scalar | None) -> Scalar:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value or ''}x"
