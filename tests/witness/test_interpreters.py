"""The guest's files under other Pythons: they parse, and start-up without torch is silent."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

from infrarsi.node.collector import INJECT_DIR

FILES = sorted(INJECT_DIR.parent.rglob("*.py"))
GUEST = [path for path in FILES if path.parent.name in ("guest", "inject")]


def interpreters() -> list[Path]:
    """The Pythons from 3.8 on that pyenv or uv have installed."""
    home = Path.home()
    roots = [Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"]
    roots.append(home / ".local/share/uv/python")
    found = [path for root in roots if root.is_dir() for path in root.glob("*3.*/bin/python3")]
    return sorted(path for path in found if minor(path) >= 8)


def minor(path: Path) -> int:
    version = path.parent.parent.name.split("3.", 1)[1]
    digits = version.split(".")[0]
    return int(digits) if digits.isdigit() else 0


@pytest.mark.parametrize("path", GUEST, ids=lambda path: path.name)
def test_a_guest_file_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.parent.parent.name)
def test_start_up_without_torch_is_silent_and_every_file_compiles(
    python: Path, tmp_path: Path
) -> None:
    (tmp_path / "s").touch()
    text = "import sys\nfor p in sys.argv[1:]: compile(open(p).read(), p, 'exec')\n"
    text += "try:\n    import torch\nexcept ImportError:\n    print(len(sys.meta_path), 'ok')\n"
    done = subprocess.run(
        [str(python), "-c", text, *map(str, GUEST)],
        env={"PYTHONPATH": str(INJECT_DIR), "INFRARSI_WITNESS_SOCK": str(tmp_path / "s")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" ok\n") or done.stdout == ""


STUB = """
import sys
ran = True
"""


@pytest.mark.parametrize("python", interpreters(), ids=lambda path: path.parent.parent.name)
def test_a_torch_that_is_none_costs_one_line_and_not_the_job(python: Path, tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(STUB)
    done = subprocess.run(
        [str(python), "-c", "import torch; print(torch.ran)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(INJECT_DIR), "INFRARSI_WITNESS_SOCK": str(tmp_path / "s")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert done.stderr.count("\n") == 1
    assert "infrarsi witness: not installed (torch: " in done.stderr
