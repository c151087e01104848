"""What all tests share: jobs find the interpreter of the tests first, as in an activated venv.

With `pytest -n 2`, tests of real process trees run one after another in one of the
processes: they watch clocks, and what is left of other processes.
"""

import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

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


_REAL = ("tests/cli/", "tests/launchers/", "tests/node/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One group of the tests of real process trees, one of each other module."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "processes" if nodeid.startswith(_REAL) else nodeid.partition("::")[0]

    return Groups(config, log)
