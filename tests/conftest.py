"""What all tests share: jobs find the interpreter of the tests first, as in an activated venv.

With `pytest -n 2 --dist loadgroup`, tests of real process trees run one after another in one of the
processes: they watch clocks, and what is left of other processes.
"""

import os
import secrets
import sys
import tempfile
from pathlib import Path

import pytest

_OURS = os.path.dirname(sys.executable)
if os.environ.get("PATH", "").split(os.pathsep)[:1] != [_OURS]:
    os.environ["PATH"] = os.pathsep.join((_OURS, os.environ.get("PATH", "")))

# No test reads or writes the user's library of experience, nor one of another test.
LIBRARY = "INFRARSI_LIBRARY"
_NO_LIBRARY = Path(tempfile.gettempdir()) / f"no-library-{secrets.token_hex(8)}"
os.environ[LIBRARY] = str(_NO_LIBRARY)


@pytest.fixture(autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test's own library; it does not exist before something is stored."""
    folder = tmp_path_factory.getbasetemp() / f"library-{secrets.token_hex(4)}"
    monkeypatch.setenv(LIBRARY, str(folder))
    return folder


_REAL = frozenset(("cli", "launchers", "node", "witness"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put the tests of real process trees into one group."""
    if item.path.relative_to(Path(__file__).parent).parts[0] in _REAL:
        item.add_marker(pytest.mark.xdist_group("processes"))
