"""Names and values of infrarsi.yaml that would cost a run to be found wrong, found before it."""

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from infrarsi.contract import Knob, Place, PlaceKind, Scalar, ValueChange
from infrarsi.contract.document import PathKey
from infrarsi.contract.files import LoadedProject
from infrarsi.contract.mistakes import Mistake, all_together
from infrarsi.errors import UserError

if TYPE_CHECKING:
    from infrarsi.draft import Today

_At = tuple[PathKey, ...]


def insist_on_known(file: LoadedProject) -> None:
    """Raise one UserError with every flag, family, reference and name that the job does not have.

    What cannot be read out of the job is not judged.
    """
    mistakes = [*_script(file), *_config_files(file), *_families(file), *_allowed(file)]
    mistakes += [*_precisions(file), *_patches(file)]
    if not mistakes:
        from infrarsi.draft import today

        try:
            job = today(file.root, file.project)
        except UserError as error:
            if error.where.startswith("launch.command"):
                error.where = file.place("launch", "command")
            raise
        if job is not None:
            mistakes = [*_flags(file, job), *_references(file, job)]
    if mistakes:
        raise all_together(mistakes, file.path)


def _script(file: LoadedProject) -> Iterator[Mistake]:
    script = file.project.launch.script
    if script is not None and not (file.root / script).is_file():
        folder = (file.root / script).parent
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        near = difflib.get_close_matches(script.rpartition("/")[2], names, n=1)
        yield Mistake(
            file.line("launch", "script"),
            f"`launch.script` is {script!r}, but there is no such file in {file.root}",
            f"did you mean {near[0]!r}?" if near else "correct the path, or remove it",
        )


def _config_files(file: LoadedProject) -> Iterator[Mistake]:
    for at, text in _places(file):
        name = Place.parse(text).file
        if name and not (file.root / name).is_file():
            yield Mistake(
                file.line(*at),
                f"`{text}`: there is no file {name!r} in {file.root}",
                "correct the path, relative to the project's folder",
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    """A question after the known name that is most like `name`, "" if none is."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean `{near[0]}`?" if near else ""


def _families(file: LoadedProject) -> Iterator[Mistake]:
    from infrarsi.families import catalogue

    for index, knob in enumerate(file.project.knobs):
        if catalogue().get(knob.family) is None:
            near = catalogue().nearest(knob.family)
            known = ", ".join(family.name for family in catalogue().families)
            yield Mistake(
                file.line("knobs", index, "family"),
                f"`knobs[{knob.name}].family` is {knob.family!r}, which is no knob family",
                f"did you mean `{near}`?" if near else f"known are {known}",
            )


def _allowed(file: LoadedProject) -> Iterator[Mistake]:
    if not file.project.allow:
        return
    from infrarsi.families import catalogue
    from infrarsi.verify.precisions import NAMES
    from infrarsi.workspace.recipes import recipes

    known = {*NAMES, *NAMES.values()}
    known |= {name for recipe in recipes() for name in recipe.needs}
    for family in catalogue().families:
        known |= {family.name, *family.also, *family.allow_as}
    for index, name in enumerate(file.project.allow):
        if name not in known:
            yield Mistake(
                file.line("allow", index),
                f"`allow` names {name!r}, which nothing here asks for",
                _nearest(name, known) or "remove it",
            )


def _precisions(file: LoadedProject) -> Iterator[Mistake]:
    from infrarsi.verify.precisions import NAMES

    known = {*NAMES, *NAMES.values()}
    for index, name in enumerate(file.project.invariants.precision or ()):
        if name not in known:
            yield Mistake(
                file.line("invariants", "precision", index),
                f"`invariants.precision` names {name!r}, which is no precision",
                _nearest(name, known) or f"known are {', '.join(sorted(known))}",
            )


def _patches(file: LoadedProject) -> Iterator[Mistake]:
    asked = file.project.search.patches
    if not isinstance(asked, list):
        return
    from infrarsi.workspace.recipes import RECIPE_NAMES

    for index, name in enumerate(asked):
        if name not in RECIPE_NAMES:
            yield Mistake(
                file.line("search", "patches", index),
                f"`search.patches` names {name!r}, which is no recipe",
                _nearest(name, RECIPE_NAMES) or f"known are {', '.join(RECIPE_NAMES)}",
            )


def _flags(file: LoadedProject, job: "Today") -> Iterator[Mistake]:
    for at, text in _places(file):
        place = Place.parse(text)
        if not job.is_known(place):
            near = job.nearest(place)
            yield Mistake(
                file.line(*at),
                f"`{text}`: neither {job.target.where} passes `{place.name}` nor does "
                f"{job.target.entry} define it",
                f"did you mean `flag:{near}`?" if near else "remove it, or correct the name",
            )


def _places(file: LoadedProject) -> Iterator[tuple[_At, str]]:
    """Every place of the file that a run would set or remove, with where it is written."""
    project = file.project
    for index, knob in enumerate(project.knobs):
        if knob.at is not None:
            yield ("knobs", index, "at"), knob.at
        if isinstance(knob.values, dict):
            for value, change in knob.values.items():
                for text in change.set:
                    yield ("knobs", index, "values", value, "set", text), text
                for number, text in enumerate(change.remove):
                    yield ("knobs", index, "values", value, "remove", number), text
    for text in project.sinks:
        yield ("sinks", text), text
    if project.verify.resume is not None:
        for text in project.verify.resume.set:
            yield ("verify", "resume", "set", text), text


def _references(file: LoadedProject, job: "Today") -> Iterator[Mistake]:
    for index, knob in enumerate(file.project.knobs):
        wrong = next(_contradictions(knob, job), None)
        if wrong is not None:
            yield Mistake(
                file.line("knobs", index, "reference"),
                f"`knobs[{knob.name}].reference` is {knob.reference!r}, but {wrong}",
                "write what the job has today, among the `values` too",
            )


def _contradictions(knob: Knob, job: "Today") -> Iterator[str]:
    """What the job passes today that its reference value does not say."""
    if isinstance(knob.values, dict):
        change = next(
            (c for v, c in knob.values.items() if v == knob.reference), ValueChange()
        ).parsed()
        given = [(p, v) for p, v in change.set if not isinstance(v, bool)]
        gone = [p for p in change.remove if p.kind is PlaceKind.FLAG and job.passes(p.name)]
        yield from (f"{job.target.where} passes `{p.name}`" for p in gone)
    else:
        given = [(Place.parse(knob.at or ""), knob.reference)]
    for place, value in given:
        found = job.value(place)
        if found is not None and not _same(knob, value, found[0]):
            yield f"{found[1]} {found[0]}"


def _same(knob: Knob, a: Scalar, b: Scalar) -> bool:
    from infrarsi.families import catalogue

    family = catalogue().get(knob.family)
    if family is not None and family.canonical(a) == family.canonical(b):
        return True
    try:
        return float(a) == float(b)
    except ValueError:
        return str(a).lower() == str(b).lower()
