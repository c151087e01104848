"""The library: packs of verified runs in a folder of the user's, and those that are shipped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from infrarsi.errors import UserError
from infrarsi.experience.files import as_lines, load
from infrarsi.experience.pack import Pack

PLACE = "INFRARSI_LIBRARY"
"""The variable that names another folder than `~/.infrarsi/packs`."""
_ENDINGS = (".jsonl", ".yaml", ".yml")


@dataclass(frozen=True)
class Library:
    """What was read: packs by id, and the files that could not be, with the reason."""

    folder: Path
    packs: tuple[Pack, ...]
    broken: tuple[str, ...] = ()


def library_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's packs are kept."""
    named = environment.get(PLACE)
    return Path(named) if named else Path.home() / ".infrarsi" / "packs"


def read_library(folder: Path, shipped: Path) -> Library:
    """All packs, in order of their ids; the user's own stand for shipped ones of the same id."""
    packs: dict[str, Pack] = {}
    broken = []
    for place in (shipped, folder):
        for path in sorted(place.glob("*")) if place.is_dir() else ():
            if path.suffix not in _ENDINGS:
                continue
            try:
                packs |= {pack.id: pack for pack in load(path)}
            except UserError as error:
                broken.append(f"{error.where}: {error.what}")
    return Library(folder, tuple(packs[key] for key in sorted(packs)), tuple(broken))


def selected(packs: Sequence[Pack], wanted: str) -> list[Pack]:
    """The packs that `--experience` names: `auto` all, `off` none, else patterns of ids.

    Raises UserError for a pattern that no pack matches.
    """
    if wanted in ("auto", "off"):
        return list(packs) if wanted == "auto" else []
    patterns = [each.strip() for each in wanted.split(",") if each.strip()]
    for pattern in patterns:
        if not any(fnmatchcase(pack.id, pattern) for pack in packs):
            there = ", ".join(pack.id for pack in packs[:8]) or "none"
            more = f" and {len(packs) - 8} more" if len(packs) > 8 else ""
            raise UserError(
                f"`experience` names {pattern!r}, but no pack has such an id; there are "
                f"{there}{more}",
                fix="give auto, off, or patterns of the ids that `infrarsi exp stats` shows",
            )
    if not patterns:
        raise UserError(
            f"`experience` is {wanted!r}, but must be auto, off or patterns of pack ids",
            fix="give auto, off, or patterns of the ids that `infrarsi exp stats` shows",
        )
    return [pack for pack in packs if any(fnmatchcase(pack.id, each) for each in patterns)]


def store(pack: Pack, folder: Path) -> Path:
    """Write a pack into the library, in place of an earlier one of its id; returns the file."""
    from infrarsi.runs import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{pack.id}.jsonl"
    write_atomically(path, as_lines(pack))
    return path
