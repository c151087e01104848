"""Frozen files are known by their content."""

from pathlib import Path

import pytest

from infrarsi.errors import UserError
from infrarsi.workspace import differing, freeze

EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_every_kind_of_change_is_found(tmp_path: Path) -> None:
    for name in ("same", "changed", "gone"):
        (tmp_path / name).touch()
    frozen = freeze(tmp_path, ["same", "changed", "gone"])
    assert frozen["same"] == EMPTY
    (tmp_path / "changed").write_text("x")
    (tmp_path / "gone").unlink()
    assert differing(tmp_path, frozen) == ("changed", "gone")


def test_a_file_that_is_not_there_cannot_be_frozen(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"`data\.py` is to be frozen, but cannot be read"):
        freeze(tmp_path, ["data.py"])
