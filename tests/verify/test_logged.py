"""A log's figures beside the record: what agrees, what differs, and what the record settles."""

from pathlib import Path

import made_records as made
import pytest
from made_records import STEPS, Job

from infrarsi.node.figures import Metric, figures
from infrarsi.verify.logged import Logged, logged_beside_record


def beside(folder: Path, line: str, every: int = 1) -> dict[Metric, Logged]:
    """The log of a run of 0.1 s a step in which each line is `line` with its step and loss."""
    run = made.run(Job(seed=9, step_s=0.1))
    losses = [step.loss or 0.0 for step in run.ranks[0].steps]
    log = folder / "stdout.log"
    text = "".join(
        line.format(step=i + 1, loss=losses[i]) + "\n" for i in range(every - 1, STEPS, every)
    )
    log.write_text(text, encoding="utf-8")
    return {one.metric: one for one in logged_beside_record(figures(log), run)}


def test_what_is_true_agrees(tmp_path: Path) -> None:
    found = beside(tmp_path, "step {step} loss {loss:.4f} step_time 0.101s 5110 tok/s")
    assert found[Metric.LOSS].agrees
    assert found[Metric.STEP_TIME].agrees
    assert found[Metric.TOKENS].agrees


def test_what_is_false_differs(tmp_path: Path) -> None:
    found = beside(tmp_path, "step {step} loss 0.1234 step_time 0.05s 99000 tok/s")
    assert [one.agrees for one in found.values()] == [False, False, False]


@pytest.mark.parametrize(
    ("line", "every"),
    [
        ("step {step} loss {loss:.4f} step_time 0.100", 1),
        ("step {step} loss {loss:.4f} step_time 100.2", 1),
        ("step {step} loss {loss:.4f} time 0.100s", 10),
        ("step {step} loss {loss:.4f} time 1.002s", 10),
    ],
    ids=["seconds", "milliseconds", "of one of ten", "of all ten"],
)
def test_the_record_settles_what_the_log_leaves_open(tmp_path: Path, line: str, every: int) -> None:
    found = beside(tmp_path, line, every)[Metric.STEP_TIME]
    assert found.agrees
    assert found.printed == pytest.approx(0.1, rel=0.01)


def test_the_record_settles_which_gigabyte_is_meant(tmp_path: Path) -> None:
    peak = made.run(Job(seed=9)).peak_bytes
    assert peak is not None
    found = beside(tmp_path, f"step {{step}} max_mem {peak / 2**20:.3f} MB")[Metric.MEMORY]
    assert found.agrees
    assert found.printed == pytest.approx(peak, rel=1e-3)


def test_what_nobody_can_settle_stays_open(tmp_path: Path) -> None:
    found = beside(tmp_path, "step {step} loss {loss:.4f} step_time 7.5")[Metric.STEP_TIME]
    assert (found.agrees, found.printed) == (None, None)
    assert "the unit of `step_time` is not known" in found.note
