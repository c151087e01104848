"""A folder for real commands, which insists that they left nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from spawned import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A fresh folder; afterwards nothing of the commands that ran there is left."""
    made = Site(tmp_path)
    try:
        yield made
        assert made.left() == []
    finally:
        made.close()
