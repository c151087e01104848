"""Whole simulated campaigns, selection from sixteen trials included: a short `promotion.py`."""

import json
import math
from types import ModuleType

import pytest
from benchmark_module import load

CAMPAIGNS = 150


@pytest.fixture(scope="module")
def promotion() -> ModuleType:
    """The benchmark as a module."""
    return load("promotion")


@pytest.mark.parametrize("shape", ["normal", "heavy-tailed", "drifting"])
def test_the_reference_against_itself_is_hardly_ever_promoted(
    promotion: ModuleType, shape: str
) -> None:
    found = promotion.figures(promotion.Cell(0.06, shape, 0.0), CAMPAIGNS)
    # At most 1 %: 1.5 of 150, binomial sd 1.2; three of them.
    assert found.promoted_share * CAMPAIGNS <= 0.01 * CAMPAIGNS + 3.7


@pytest.mark.parametrize("shape", ["normal", "heavy-tailed", "drifting"])
def test_a_gain_of_2_2_sigma_beyond_the_floor_is_found(promotion: ModuleType, shape: str) -> None:
    found = promotion.figures(promotion.Cell(0.01, shape, 2.2), CAMPAIGNS)
    # At least 95 %; binomial sd of 150 draws is 1.8 %, three of them.
    assert found.promoted_share >= 0.95 - 0.054
    assert 4 <= found.pairs_mean <= 3 * 24


def test_the_same_seed_gives_the_same_figures(promotion: ModuleType) -> None:
    cell = promotion.Cell(0.01, "normal", 1.0)
    assert promotion.figures(cell, 20) == promotion.figures(cell, 20)
    assert promotion.figures(cell, 20) != promotion.figures(cell, 20, seed=1)


def test_cells_cover_what_is_promised(promotion: ModuleType) -> None:
    cells = {(c.noise, c.shape, c.effect) for c in promotion.main_cells()}
    assert {
        (noise, shape, effect)
        for noise in (0.0005, 0.01, 0.06)
        for shape in ("normal", "heavy-tailed", "drifting")
        for effect in (0.0, 2.2)
    } <= cells


def test_json_holds_an_object_for_each_cell(
    promotion: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    promotion.main(["--json", "--campaigns", "2"])
    cells = json.loads(capsys.readouterr().out)
    assert len(cells) == len([*promotion.main_cells(), *promotion.harder_cells()])
    for cell in cells:
        keys = ("noise", "shape", "effect", "campaigns", "promoted_share", "pairs_mean")
        assert all(key in cell for key in keys)
        assert cell["campaigns"] == 2
        assert math.isfinite(cell["pairs_mean"])
