"""The cases themselves: unique names, edits that fit, every row of the catalogue covered."""

import pytest
from harness import Workbench
from test_hacks import cases

APPLICABLE = (
    *("H2", "H3", "H4", "H5", "H7", "H8", "H9", "H10", "H11", "H13", "H14"),
    *("C15", "C17", "C18", "C19", "C21", "C22", "C23"),
    *("S25", "S28", "S30", "S31", "S32", "S33", "S34", "P36", "P37"),
)
"""Rows of the catalogue that are not about kernels alone and apply to training jobs."""
ALL = [*cases("cheats"), *cases("honest")]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Snapshots only; nothing runs."""
    return Workbench(tmp_path_factory.mktemp("bases"))


def test_names_are_unique() -> None:
    names = [case.id for case in ALL]
    assert sorted(names) == sorted(set(names))


def test_every_edit_fits_its_base_and_every_patch_is_python(bases: Workbench) -> None:
    for case in ALL:
        files = bases.base(case.base).overlay(case).files
        for path, text in files.items():
            if path.endswith(".py"):
                compile(text, f"{case.id}:{path}", "exec")


def test_a_cheat_expects_a_check_and_names_its_rows() -> None:
    assert all(case.expected and case.rows for case in cases("cheats"))
    assert not any(case.expected for case in cases("honest"))


def test_every_row_about_training_jobs_has_a_cheat() -> None:
    covered = {row for case in cases("cheats") for row in case.rows}
    assert {f"T{number}" for number in range(1, 27)} <= covered
    assert {*APPLICABLE} <= covered
