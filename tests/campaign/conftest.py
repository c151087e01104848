"""A fresh simulated world for each test."""

from pathlib import Path

import pytest
from simulated_world import Bed, World

from infrarsi.runs import RunDirectory


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    """A fresh world and run."""
    return Bed(World(), tmp_path, RunDirectory.create(tmp_path, now=0.0))
