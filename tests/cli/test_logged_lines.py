"""The lines of `doctor` about what the job prints."""

import pytest

from infrarsi.cli.logged import logged_lines
from infrarsi.node.figure_names import Metric
from infrarsi.verify.logged import Logged

OPEN = "the unit of `mfu` is not known"


@pytest.mark.parametrize(
    ("one", "line"),
    [
        (
            Logged(Metric.STEP_TIME, "dt", 0.21, 0.2131, True),
            "  printed step time, s   `dt` 0.21, measured 0.2131: they agree",
        ),
        (
            Logged(Metric.MEMORY, "mem", 2.0**30, 2.0**31, False),
            "  printed peak memory    `mem` 1.000 GiB, measured 2.000 GiB: THEY DIFFER",
        ),
        (
            Logged(Metric.MFU, "mfu", None, 0.4, None, OPEN),
            f"  printed utilization    `mfu` is left open, measured 0.4: {OPEN}",
        ),
        (
            Logged(Metric.MFU, "mfu", None, None, None, OPEN),
            f"  printed utilization    `mfu` is left open ({OPEN})",
        ),
    ],
    ids=["agrees", "differs", "open", "open and not measured"],
)
def test_a_figure_is_shown_with_what_was_measured(one: Logged, line: str) -> None:
    assert logged_lines([one], ()) == ["What the job prints, beside the record:", line]


def test_a_restart_is_said_and_a_silent_log_says_nothing() -> None:
    assert logged_lines([], (7,)) == ["The log begins anew in line 7."]
    assert logged_lines([], ()) == []


@pytest.mark.parametrize("metric", list(Metric))
def test_every_metric_has_a_name(metric: Metric) -> None:
    assert len(logged_lines([Logged(metric, "x", 1.0, 1.0, True)], ())) == 2
