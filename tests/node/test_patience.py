"""When the launcher loses patience."""

from dataclasses import replace

import pytest

from infrarsi.contract import ExecutionRequest, Overlay, RunKind, SnapshotRef
from infrarsi.node.collector import WitnessProgress
from infrarsi.node.outcomes import Ending
from infrarsi.node.patience import Patience, Rules

REQUEST = ExecutionRequest(
    execution_id="e",
    kind=RunKind.TIMED,
    snapshot=SnapshotRef("d", "/nowhere", "job"),
    overlay=Overlay("true"),
    receipt_dir="/nowhere/r",
    cache_dir="/nowhere/c",
    optimizer_steps=40,
    ends_by="witness",
    witness_key="00",
    start_timeout_s=100.0,
    timeout_s=1000.0,
)


def seen(steps: int, step_time_s: float | None = None, steady: int = 0) -> WitnessProgress:
    return WitnessProgress(steps=steps, step_time_s=step_time_s, steady_steps=steady, ranks=1)


def test_a_job_that_never_steps_is_ended_by_the_start_time_out_and_no_other() -> None:
    patience = Patience(REQUEST, Rules(stall_s=1.0))
    assert patience.lost(100.0, seen(0)) is None
    ending, detail = patience.lost(100.1, seen(0)) or (None, "")
    assert ending is Ending.START_TIMEOUT
    assert "no optimizer step within 100 s" in detail
    assert "1 processes had begun to train" in detail


def test_a_stall_is_measured_from_the_last_step_in_units_of_the_step_time() -> None:
    patience = Patience(REQUEST, Rules(stall_s=60.0, stall_factor=30.0))
    assert patience.lost(50.0, seen(5, 4.0)) is None
    assert patience.lost(169.0, seen(5, 4.0)) is None
    ending, detail = patience.lost(171.0, seen(5, 4.0)) or (None, "")
    assert ending is Ending.STALL
    assert "no optimizer step for 120 s after step 5 of 40 (a step takes 4 s)" in detail


def test_a_fast_job_gets_the_minimum_before_it_counts_as_stalled() -> None:
    patience = Patience(REQUEST, Rules())
    assert patience.lost(10.0, seen(5, 0.01)) is None
    assert patience.lost(69.0, seen(5, 0.01)) is None
    assert patience.lost(71.0, seen(5, 0.01)) is not None


def test_every_step_starts_the_wait_anew() -> None:
    patience = Patience(REQUEST, Rules())
    for step in range(1, 12):
        assert patience.lost(step * 59.0, seen(step, 0.01)) is None


def test_after_its_last_step_a_job_that_ends_by_itself_may_evaluate_as_long_as_it_likes() -> None:
    job = Patience(replace(REQUEST, ends_by="job"), Rules())
    witness = Patience(REQUEST, Rules())
    for patience in (job, witness):
        assert patience.lost(10.0, seen(40, 0.01)) is None
    assert job.lost(999.0, seen(40, 0.01)) is None
    ending, detail = witness.lost(999.0, seen(40, 0.01)) or (None, "")
    assert ending is Ending.STALL
    assert "after its last requested optimizer step" in detail


def test_the_whole_run_is_bound() -> None:
    ending, detail = Patience(REQUEST, Rules()).lost(1000.5, seen(39, 1.0)) or (None, "")
    assert ending is Ending.TIMEOUT
    assert "39 of 40 optimizer steps" in detail


@pytest.mark.parametrize(
    ("step_time_s", "steady", "stops"),
    [(1.2, 8, True), (1.2, 7, False), (1.0, 8, False), (None, 0, False)],
)
def test_an_early_stop_needs_eight_steady_steps_above_the_limit(
    step_time_s: float | None, steady: int, stops: bool
) -> None:
    patience = Patience(replace(REQUEST, slower_than_s=1.0), Rules())
    lost = patience.lost(30.0, seen(12, step_time_s, steady))
    assert (lost is not None and lost[0] is Ending.SLOWER) == stops
