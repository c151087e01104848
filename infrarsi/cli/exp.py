"""`infrarsi exp`: statistics of the library, a check of a pack, and a run's pack for sharing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from infrarsi.experience import Pack

app = typer.Typer(
    help="Experience packs: statistics, a check of one, and a run's pack for sharing.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
def stats() -> None:
    """What the library holds: its packs, what they were measured on, and which families."""
    from infrarsi.cli.experience import library
    from infrarsi.contract.wording import counted

    found = library()
    print(f"{counted(len(found.packs), 'pack')}; your own are in {found.folder}")
    for pack in found.packs:
        print(f"  {_line(pack)}")
    families: dict[str, int] = {}
    for pack in found.packs:
        for family in {effect.family for effect in pack.effects}:
            families[family] = families.get(family, 0) + 1
    if families:
        ordered = sorted(families.items(), key=lambda one: (-one[1], one[0]))
        print("Families: " + ", ".join(f"{name} in {count}" for name, count in ordered))
    for text in found.broken:
        print(f"Not read: {text}")


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pack: JSON lines or YAML.")],
) -> None:
    """Say what is in a pack, or what is wrong with it."""
    from infrarsi.experience import load
    from infrarsi.families import catalogue

    for pack in load(file):
        print(f"{file}: {_line(pack)}")
        families = {effect.family for effect in pack.effects} | pack.reference.keys()
        unknown = sorted(name for name in families if catalogue().get(name) is None)
        if unknown:
            print(f"  passed over, unknown to this version: {', '.join(unknown)}")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or its name.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write [PACK-ID.jsonl].")
    ] = None,
    pack_id: Annotated[str | None, typer.Option("--pack-id", help="The pack's id.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="What it is, in one line.")] = None,
) -> None:
    """Write a run's pack as JSON lines; names, paths and hosts of the job are not in it."""
    from infrarsi.cli.finding import find_run
    from infrarsi.errors import UserError
    from infrarsi.experience import as_lines, pack_of
    from infrarsi.runs import RunState, read, write_atomically

    folder = find_run(run, None)
    state = RunState.of(read(folder.journal).events)
    pack = pack_of(state) if state.reference else None
    if pack is None or pack.is_empty:
        raise UserError(
            "this run has learned nothing that could be exported",
            where=str(folder.path),
            fix="let it come to its end first, with `infrarsi finish` or `infrarsi run --resume`",
        )
    pack = _renamed(pack, pack_id, title)
    path = out or Path(f"{pack.id}.jsonl")
    if path.exists():
        raise UserError("this file exists already", where=str(path), fix="name another `--out`")
    if not path.parent.is_dir():
        raise UserError("there is no such folder", where=str(path.parent), fix="make it first")
    write_atomically(path, as_lines(pack))
    print(f"{path}: {_line(pack)}")


def _renamed(pack: "Pack", pack_id: str | None, title: str | None) -> "Pack":
    from pydantic import ValidationError

    from infrarsi.errors import UserError
    from infrarsi.experience import Pack

    named = pack.model_dump(by_alias=True) | {
        key: value for key, value in (("id", pack_id), ("title", title)) if value is not None
    }
    try:
        return Pack.model_validate(named)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--pack-id" if first["loc"] == ("id",) else "--title"
        wanted = (
            "one word of letters, digits and `_ . + -`"
            if option == "--pack-id"
            else "one line of at most 200 characters, without a secret or a path"
        )
        raise UserError(
            f"`{option}` is {first['input']!r}, but must be {wanted}",
            where="command line",
            fix="give another one",
        ) from None


def _line(pack: "Pack") -> str:
    from infrarsi.contract.wording import counted

    parts = [
        counted(len(pack.effects), "effect"),
        counted(len(pack.failures), "failure"),
        counted(len(pack.conflicts), "conflict"),
    ]
    if pack.change is not None:
        parts.append(f"a verified change of {pack.change.speedup:.3f}x")
    return f"{pack.id}: {pack.title}; {', '.join(parts)}"
