"""The library: what is stored is found, patterns choose, and broken files do no harm."""

from pathlib import Path

import pytest
from finished_journal import state_at

from infrarsi.errors import UserError
from infrarsi.experience import (
    Context,
    Pack,
    library_folder,
    pack_of,
    read_library,
    selected,
    store,
)


def packs(*names: str) -> list[Pack]:
    return [
        Pack(schema="infrarsi-pack-v1", id=name, title="t", context=Context(stack="native-ddp"))
        for name in names
    ]


def test_what_is_stored_is_read_and_a_broken_file_is_named(tmp_path: Path) -> None:
    pack = pack_of(state_at("promoted"))
    store(pack, tmp_path / "own")
    (tmp_path / "own" / "broken.jsonl").write_text("{")
    (tmp_path / "own" / "notes.txt").write_text("no pack")
    found = read_library(tmp_path / "own", tmp_path / "none")
    assert found.packs == (pack,)
    assert len(found.broken) == 1
    assert "broken.jsonl:1: this is no pack" in found.broken[0]


def test_the_users_own_pack_stands_for_a_shipped_one(tmp_path: Path) -> None:
    (shipped,) = packs("one")
    own = shipped.model_copy(update={"title": "own"})
    store(shipped, tmp_path / "shipped")
    store(own, tmp_path / "own")
    assert read_library(tmp_path / "own", tmp_path / "shipped").packs == (own,)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("auto", ["h20-a", "h200-b", "h100-c"]),
        ("off", []),
        ("h20-*,h200-*", ["h20-a", "h200-b"]),
        (" h100-c ", ["h100-c"]),
    ],
)
def test_patterns_choose(wanted: str, expected: list[str]) -> None:
    assert [p.id for p in selected(packs("h20-a", "h200-b", "h100-c"), wanted)] == expected


@pytest.mark.parametrize("wanted", ["h20-a,b200-*", "H20-*"])
def test_a_pattern_without_a_pack_lists_what_there_is(wanted: str) -> None:
    with pytest.raises(UserError, match="no pack has such an id; there are h20-a"):
        selected(packs("h20-a"), wanted)


def test_an_empty_selection_is_refused() -> None:
    with pytest.raises(UserError, match="must be auto, off or patterns"):
        selected(packs("a"), " , ")


def test_the_place_is_in_the_home_unless_named(tmp_path: Path) -> None:
    assert library_folder({}) == Path.home() / ".infrarsi" / "packs"
    assert library_folder({"INFRARSI_LIBRARY": str(tmp_path)}) == tmp_path
