"""Which files count as a project's tests."""

from pathlib import Path

import small_job

from infrarsi.contract import SnapshotRef
from infrarsi.workspace import frozen_tests

FILES = (
    "model.py",
    "check_shapes.py",
    "tests/test_model.py",
    "tests/data/rows.txt",
    "pkg/model_test.py",
    "conftest.py",
    "pytest.ini",
    "contest.py",
    "scripts/verify/all.sh",
)


def found(tmp_path: Path, *commands: str) -> list[str]:
    tree = tmp_path / "tree"
    for name in FILES:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    project = small_job.project(
        editable=["model.py"], verify={"user_tests": list(commands) or ["pytest"]}
    )
    digests = frozen_tests(project, SnapshotRef("d", str(tmp_path), "job"))
    assert all(digest.startswith("sha256:") for digest in digests.values())
    return sorted(digests)


BY_NAME = ["conftest.py", "pkg/model_test.py", "pytest.ini", "tests/data/rows.txt"]


def test_tests_are_known_by_their_names(tmp_path: Path) -> None:
    assert found(tmp_path) == [*BY_NAME, "tests/test_model.py"]


def test_what_a_command_names_is_a_test_unless_it_may_be_edited(tmp_path: Path) -> None:
    names = found(tmp_path, "python check_shapes.py && bash scripts/verify", "python model.py")
    assert names == sorted(
        [*BY_NAME, "tests/test_model.py", "check_shapes.py", "scripts/verify/all.sh"]
    )


def test_a_named_test_function_and_a_command_with_an_open_quote(tmp_path: Path) -> None:
    assert "check_shapes.py" in found(tmp_path, "pytest -q ./check_shapes.py::test_a")
    assert found(tmp_path, "echo '")[0] == "conftest.py"
