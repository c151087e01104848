"""Every cheat is rejected by the check that should see it; every honest change is accepted.

`pytest -m hacks` runs all of them, for real and one at a time, and prints one table.
`cheats_*.py` and `honest_*.py` beside this file hold the cases, each in a tuple `CASES`.
"""

import importlib
import importlib.util
from pathlib import Path

import pytest
from harness import Case, Finding, Workbench

pytestmark = [pytest.mark.hacks, pytest.mark.timeout(900)]


def cases(kind: str) -> list[Case]:
    """The cases of all modules of this name."""
    found = sorted(Path(__file__).parent.glob(f"{kind}_*.py"))
    return [case for path in found for case in importlib.import_module(path.stem).CASES]


def tried(case: Case, workbench: Workbench) -> Finding:
    """What became of the case; skipped where its stack is not installed."""
    if case.base == "hf" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (the extra `stacks`)")
    return workbench.try_case(case)


@pytest.mark.parametrize("case", cases("cheats"), ids=lambda case: case.id)
def test_cheat_is_rejected(case: Case, workbench: Workbench, note: list[Finding]) -> None:
    found = tried(case, workbench)
    note.append(found)
    assert found.right, str(found)


@pytest.mark.parametrize("case", cases("honest"), ids=lambda case: case.id)
def test_honest_change_is_accepted(case: Case, workbench: Workbench, note: list[Finding]) -> None:
    found = tried(case, workbench)
    note.append(found)
    assert found.right, str(found)
