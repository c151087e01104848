"""Which packs a run starts from, how much of a job they cover, and what a run leaves behind."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.cli.preferences import option_of
from infrarsi.contract import Project
from infrarsi.contract.files import LoadedProject
from infrarsi.errors import ExternalError, UserError
from infrarsi.runs import RunDirectory, RunState, read, write_atomically

if TYPE_CHECKING:
    from infrarsi.contract import Space
    from infrarsi.experience import Library, Matched, Pack

_GRADES = ((2 / 3, "good"), (1 / 3, "partial"), (0.0, "thin"))
_MAX_NAMED = 3


def library() -> "Library":
    """The user's packs and those that are shipped."""
    import infrarsi
    from infrarsi.experience import library_folder, read_library

    shipped = Path(infrarsi.__file__).parents[1] / "packs"
    return read_library(library_folder(os.environ), shipped)


def insist_on_packs(project: Project, file: LoadedProject) -> None:
    """Raise UserError where `experience` names packs that are not there."""
    from infrarsi.experience import selected

    if project.experience in ("auto", "off"):
        return
    try:
        selected(library().packs, project.experience)
    except UserError as error:
        given = project.experience != file.project.experience
        error.where = (
            f"command line, `{option_of('experience')}`" if given else file.place("experience")
        )
        raise


def packs_to_use(project: Project, say: Callable[[str], None]) -> "list[Pack]":
    """The packs that the project asks for; what cannot be read is said and left out."""
    from infrarsi.experience import selected

    if project.experience == "off":
        return []
    found = library()
    for text in found.broken:
        say(f"Experience: a pack was left out: {text}")
    return selected(found.packs, project.experience)


def matched_for(run: RunDirectory, space: "Space", packs: "Sequence[Pack]") -> "Matched":
    """What packs say of a run's space; its reference must have been measured."""
    from infrarsi.experience import context_of, matched

    return matched(space, context_of(RunState.of(read(run.journal).events)), packs)


def begun_with(
    run: RunDirectory, space: "Space", project: Project, say: Callable[[str], None]
) -> "Matched":
    """What experience says at the start of the search, the same whenever it is asked again.

    The packs that are used are kept in the run directory: the library may change, a run that goes
    on must not.
    """
    from infrarsi.experience import lines_of, load

    if run.experience.exists():
        text = run.experience.read_text(encoding="utf-8")
        return matched_for(run, space, load(run.experience) if text.strip() else [])
    packs = packs_to_use(project, say)
    found = matched_for(run, space, packs)
    used = {pack_id for pack_id, _ in found.packs}
    write_atomically(run.experience, lines_of([pack for pack in packs if pack.id in used]))
    if packs:
        say(f"  {coverage_line(found, space)}")
    return found


def coverage_line(found: "Matched", space: "Space") -> str:
    """How much of what can be tried the packs know, with a grade."""
    total = len(space.dimensions)
    if not found.packs:
        return "Experience: none; no pack matches this job."
    names = [f"{pack_id} ({q:.0%} alike)" for pack_id, q in found.packs[:_MAX_NAMED]]
    more = len(found.packs) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    share = len(found.covered) / total if total else 0.0
    grade = next((g for least, g in _GRADES if share > least or share == 1.0), "none")
    return f"Experience: {grade}; {len(found.covered)} of {total} settings are known from {listed}."


def keep(state: RunState, say: Callable[[str], None]) -> None:
    """Put a verified run's pack into the user's library; say where, or why it cannot be."""
    from infrarsi.experience import library_folder, pack_of, store

    if state.finished is None or not state.reference:
        return
    pack = pack_of(state)
    if pack.is_empty:
        return
    folder = library_folder(os.environ)
    try:
        path = store(pack, folder)
    except (OSError, ExternalError) as error:
        say(f"Experience was not stored in {folder}: {error}")
    else:
        say(f"Experience stored: {path}")
