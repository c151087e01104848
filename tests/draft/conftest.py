"""Jobs to read: copies of the checked-in ones, and small ones written out in a test."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

JOBS = Path(__file__).with_name("jobs")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a job, outside of any repository."""

    def copy(name: str) -> Path:
        source = EXAMPLES / name if (EXAMPLES / name).is_dir() else JOBS / name
        return Path(shutil.copytree(source, tmp_path / name))

    return copy


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """A project with these files."""

    def make(files: Mapping[str, str]) -> Path:
        root = tmp_path / "project"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return make
