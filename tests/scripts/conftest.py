"""A real bash with fake launchers."""

from pathlib import Path

import pytest
from real_shell import RealShell


@pytest.fixture
def shell(tmp_path: Path) -> RealShell:
    """A folder with fake launchers."""
    return RealShell(tmp_path)
