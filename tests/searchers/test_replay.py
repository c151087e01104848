"""The replay benchmark runs real tables through the proposers."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_module import load

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "benchmarks" / "tables").glob("*.jsonl"))


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return load("replay")


@pytest.mark.parametrize("path", TABLES, ids=lambda p: p.stem)
@pytest.mark.parametrize("priors", ["catalogue", "published"])
def test_measured_tables_are_solved_in_a_few_trials(
    replay: ModuleType, capsys: pytest.CaptureFixture[str], path: Path, priors: str
) -> None:
    replay.main([str(path), "--searchers", "hypothesis", "--seeds", "3", "--json",
                 "--budget", "8", "--priors", priors])  # fmt: skip
    (figures,) = json.loads(capsys.readouterr().out)
    assert figures["t90_median"] <= 4
    assert figures["share_at"]["8"] >= 0.95
    assert figures["oom_in_16"] <= 2


def test_there_are_tables() -> None:
    assert len(TABLES) >= 2


def test_the_share_of_a_point_leaves_noise_out(replay: ModuleType) -> None:
    table = replay.Table(TABLES[0])
    assert table.share(table.reference) == 0.0
    assert table.share(None) == 0.0
