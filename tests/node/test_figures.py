"""The figures of a log are read in one unit each, and what it leaves open is not given."""

import math
from pathlib import Path

import pytest
from log_excerpts import EXCERPTS as PLAIN
from log_excerpts import LogExcerpt
from table_excerpts import FIELDS, TABLES

from infrarsi.node.figures import figures

EXCERPTS = (*PLAIN, *TABLES, *FIELDS)


def read(folder: Path, text: str) -> dict[str, float | None]:
    log = folder / "stdout.log"
    log.write_text(text, encoding="utf-8", newline="")
    return {str(metric): figure.value for metric, figure in figures(log).figures.items()}


def is_same(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return (math.isnan(found) and math.isnan(expected)) or found == pytest.approx(
        expected, rel=1e-6
    )


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=[excerpt.name for excerpt in EXCERPTS])
def test_the_figures_of_an_excerpt_are_read(tmp_path: Path, excerpt: LogExcerpt) -> None:
    found = read(tmp_path, excerpt.text)
    assert found.keys() == excerpt.figures.keys()
    wrong = {
        metric: (value, excerpt.figures[metric])
        for metric, value in found.items()
        if not is_same(value, excerpt.figures[metric])
    }
    assert wrong == {}
    assert figures(tmp_path / "stdout.log").restarts == excerpt.restarts


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=[excerpt.name for excerpt in EXCERPTS])
def test_what_is_not_given_says_why(tmp_path: Path, excerpt: LogExcerpt) -> None:
    read(tmp_path, excerpt.text)
    for figure in figures(tmp_path / "stdout.log").figures.values():
        assert (figure.value is not None) or figure.note
