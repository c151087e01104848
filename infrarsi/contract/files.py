"""infrarsi.yaml on disk: read with every mistake named by its line, written with comments."""

import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from infrarsi.contract.constraints import Constraint
from infrarsi.contract.document import Document, PathKey
from infrarsi.contract.layout import Comments, amend, dump
from infrarsi.contract.mistakes import Mistake, all_together, dotted, mistakes_of
from infrarsi.contract.places import Place, PlaceKind
from infrarsi.contract.project import Project
from infrarsi.errors import UserError

FILE_NAME = "infrarsi.yaml"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

__all__ = ["FILE_NAME", "Comments", "LoadedProject", "amend", "dump", "load", "parse", "write"]


@dataclass(frozen=True)
class LoadedProject:
    """A project as it stands in a file."""

    project: Project
    path: Path
    text: str
    document: Document

    @property
    def root(self) -> Path:
        """The project's folder, absolute."""
        return self.path.resolve().parent

    def line(self, *path: PathKey) -> int:
        """The line of a key (`"workload", "optimizer_steps"`), or of what would hold it."""
        return self.document.line(path)

    def place(self, *path: PathKey) -> str:
        """The same as `infrarsi.yaml:12`, for a message."""
        return f"{self.path}:{self.line(*path)}"


def load(path: Path) -> LoadedProject:
    """Read a project; raises one UserError that lists all mistakes of the file, first one first."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"there is no {path.name}", where=str(path), fix="draft one with `infrarsi init`"
        ) from None
    except IsADirectoryError:
        raise UserError(
            "this is a folder, not a file", where=str(path), fix=f"name the {FILE_NAME} in it"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"byte {error.start} is not UTF-8", where=str(path), fix="save it as UTF-8"
        ) from error
    return parse(text, path)


def parse(text: str, path: Path) -> LoadedProject:
    """The same for a text that is (or will be) at `path`."""
    document = Document.parse(text, where=str(path))
    if not isinstance(document.data, dict):
        found = "empty" if document.data is None else f"a {type(document.data).__name__}"
        raise UserError(
            f"the file must be a mapping of keys, but it is {found}",
            where=f"{path}:1",
            fix="begin with `schema: infrarsi-project-v1`",
        )
    mistakes = [
        Mistake(line, f"`{key}` is written twice, first in line {first}", "keep one of the two")
        for line, first, key in document.duplicates()
    ]
    data = copy.deepcopy(document.data)
    mistakes += _check_texts(data, document)
    project = None
    try:
        project = Project.model_validate(data)
    except ValidationError as error:
        mistakes += mistakes_of(error, document)
    if mistakes or project is None:
        raise all_together(mistakes, path)
    return LoadedProject(project, path, text, document)


def write(path: Path, project: Project, comments: Comments | None = None) -> None:
    """Write a project; what was there before is kept as `infrarsi.yaml.bak`."""
    write_text(path, dump(project, comments))


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step, keeping what was there before beside it as `.bak`."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            os.replace(path, path.with_name(path.name + ".bak"))
        os.replace(fresh, path)
    except OSError as error:
        raise UserError(
            f"it cannot be written: {error.strerror or error}",
            where=str(path),
            fix="make the folder writable",
        ) from error


def _check_texts(data: dict[str, Any], document: Document) -> list[Mistake]:
    """Mistakes inside texts: places, constraints, paths.

    Each is replaced in `data` by something harmless, so that pydantic still finds the others.
    """
    mistakes: list[Mistake] = []

    def check(path: Sequence[PathKey], text: Any, rule: Callable[[str], object]) -> bool:
        if not isinstance(text, str):
            return True
        try:
            rule(text)
        except UserError as error:
            what = f"`{dotted(path, document.data)}`: {error.what}"
            mistakes.append(Mistake(document.line(path), what, error.fix))
            return False
        return True

    for index, knob in enumerate(_items(data.get("knobs"))):
        if isinstance(knob, dict):
            _check_knob(knob, ("knobs", index), check)
    for index, text in enumerate(_items(data.get("constraints"))):
        if not check(("constraints", index), text, Constraint.parse):
            data["constraints"][index] = "1 == 1"
    for key in list(_keys(data.get("sinks"))):
        if not check(("sinks", key), key, _sink):
            del data["sinks"][key]
    for index, text in enumerate(_items(data.get("editable"))):
        check(("editable", index), text, _inside)
    for key, digest in _keys(data.get("frozen")).items():
        check(("frozen", key), key, _inside)
        check(("frozen", key), digest, _digest)
    script = _keys(data.get("launch")).get("script")
    check(("launch", "script"), script, _inside)
    return mistakes


def _check_knob(
    knob: dict[str, Any], path: tuple[PathKey, ...], check: Callable[..., bool]
) -> None:
    if not check((*path, "at"), knob.get("at"), _place):
        knob["at"] = "flag:--replaced"
    for name, change in _keys(knob.get("values")).items():
        if not isinstance(change, dict):
            continue
        places = [("set", place, place) for place in _keys(change.get("set"))]
        places += [("remove", i, place) for i, place in enumerate(_items(change.get("remove")))]
        good = [check((*path, "values", name, k, at), text, _place) for k, at, text in places]
        if not all(good):
            change.update(set={}, remove=[])


def _place(text: str) -> None:
    place = Place.parse(text)
    if place.kind is PlaceKind.CONFIG:
        _inside(place.file)


def _sink(text: str) -> None:
    _place(text)
    place = Place.parse(text)
    if place.kind is PlaceKind.PATH:
        _inside(place.name)


def _inside(text: str) -> None:
    path = PurePosixPath(text)
    if path.is_absolute() or text.startswith("~") or ".." in path.parts:
        raise UserError(
            f"a path must lie inside the project, but got {text!r}",
            fix="write it relative to the project's folder, without `..`",
        )


def _digest(text: str) -> None:
    if not _DIGEST.fullmatch(text):
        raise UserError(
            f"a digest must be `sha256:` and 64 hexadecimal digits, but got {text!r}",
            fix="copy it from `sha256sum`, or draft the file again with `infrarsi init --force`",
        )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _keys(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}
