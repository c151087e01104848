"""From evidence to outcome."""

import dataclasses

import pytest
from failure_excerpts import EXCERPTS
from failure_logs import LOGS, FailureLog, elastic

from infrarsi.contract import Outcome, RankRecord, StepRecord
from infrarsi.node.outcomes import Ending, Evidence, classify

GIB = 1 << 30


def rank(number: int = 0, steps: int = 10, *, world: int = 1, **fields: object) -> RankRecord:
    record = RankRecord(
        rank=number,
        world_size=world,
        pid=100 + number,
        sealed=True,
        steps=tuple(StepRecord(i, False, float(i), float(i), loss=2.0) for i in range(steps)),
    )
    return dataclasses.replace(record, **fields)  # type: ignore[arg-type]


def evidence(**fields: object) -> Evidence:
    whole = Evidence(Ending.FINISHED, 0, (rank(),), "", optimizer_steps=10, folder="/job/copy")
    return dataclasses.replace(whole, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
def test_a_real_log_gets_its_outcome_and_a_telling_reason(log: FailureLog) -> None:
    judged = classify(
        evidence(exit_code=log.exit_code, log=log.text, ranks=(rank(steps=3, sealed=False),))
    )
    assert judged.outcome is log.outcome, judged
    assert log.reason in judged.reason
    if log.at_least is not None:
        assert judged.peak_at_least_bytes == pytest.approx(log.at_least, rel=1e-6)


@pytest.mark.parametrize("log", EXCERPTS, ids=[log.name for log in EXCERPTS])
def test_an_excerpt_gets_its_outcome_its_cause_and_its_bound(log: FailureLog) -> None:
    judged = classify(evidence(exit_code=log.exit_code, log=log.text, ranks=()))
    assert judged.outcome is log.outcome, judged
    assert log.reason in judged.reason
    assert judged.peak_at_least_bytes == log.at_least


def test_the_signal_by_which_the_launcher_ended_a_hang_is_no_failure_of_the_machine() -> None:
    text = "api.SignalException: Process 7 got signal: 15\n"
    judged = classify(
        evidence(ending=Ending.STALL, exit_code=143, log=text, ranks=(), detail="no step for 60 s")
    )
    assert (judged.outcome, judged.reason) == (Outcome.TIMEOUT, "no step for 60 s")


def test_memory_that_ran_out_and_was_survived_does_not_explain_a_later_failure() -> None:
    log = 'Traceback (most recent call last):\n  File "/job/copy/a.py", line 4, in f\nKeyError: 1\n'
    caught = rank(steps=6, sealed=False, oom={"wanted": GIB, "reserved": GIB, "free": 0, "step": 2})
    fatal = dataclasses.replace(caught, oom={**(caught.oom or {}), "step": 6})
    assert classify(evidence(exit_code=1, log=log, ranks=(caught,))).outcome is Outcome.USER_ERROR
    assert classify(evidence(exit_code=1, log=log, ranks=(fatal,))).outcome is Outcome.OOM_GPU


def test_the_first_error_that_the_records_hold_is_named_where_the_log_holds_none() -> None:
    ranks = (
        rank(0, 3, world=2, sealed=False, error="DistBackendError: connection was lost"),
        rank(1, 3, world=2, sealed=False, error="KeyError: 'labels'"),
    )
    judged = classify(evidence(exit_code=1, ranks=ranks))
    assert judged.outcome is Outcome.USER_ERROR
    assert "KeyError: 'labels'" in judged.reason


def test_every_step_on_every_rank_and_exit_code_0_is_ok() -> None:
    ranks = (rank(0, world=2), rank(1, world=2))
    assert classify(evidence(ranks=ranks)).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ((), "no process made an optimizer step"),
        (
            (rank(steps=7),),
            "after 7 optimizer steps (rank 0), but `workload.optimizer_steps` is 10",
        ),
        (
            (rank(steps=0, problems=("no torch optimizer stepped (9 times)",)),),
            "`workload.optimizer_steps` is 10: no torch optimizer stepped",
        ),
        ((rank(0, world=2),), "1 of 2 ranks left a record"),
        ((rank(sealed=False, problems=("chain broken",)),), "not sealed: chain broken"),
        ((rank(steps=4, sealed=False), rank()), "the job restarted itself"),
    ],
    ids=[
        "no record",
        "fewer steps",
        "updates by hand",
        "a rank missing",
        "not sealed",
        "restarted",
    ],
)
def test_exit_code_0_without_a_whole_record_is_an_error_of_the_job(
    ranks: tuple[RankRecord, ...], reason: str
) -> None:
    judged = classify(evidence(ranks=ranks))
    assert judged.outcome is Outcome.USER_ERROR
    assert reason in judged.reason


@pytest.mark.parametrize("loss", [float("nan"), float("inf")], ids=str)
def test_a_loss_that_is_no_number_counts_although_the_job_went_on(loss: float) -> None:
    steps = (*rank().steps[:9], StepRecord(9, False, 9.0, 9.0, loss=loss))
    judged = classify(evidence(ranks=(dataclasses.replace(rank(), steps=steps),)))
    assert judged.outcome is Outcome.NUMERIC
    assert f"the loss is {loss} at optimizer step 9" in judged.reason


def test_memory_that_ran_out_on_one_rank_explains_the_hang_of_the_others() -> None:
    oom = {"wanted": 2 * GIB, "allocated": 70 * GIB, "reserved": 71 * GIB, "free": 1 * GIB}
    judged = classify(
        evidence(ending=Ending.STALL, exit_code=None, detail="no optimizer step for 60 s",
                 ranks=(rank(0, 4, world=2), rank(1, 4, world=2, oom=oom)))
    )  # fmt: skip
    assert judged.outcome is Outcome.OOM_GPU
    assert judged.peak_at_least_bytes == 72 * GIB


@pytest.mark.parametrize("ending", [Ending.START_TIMEOUT, Ending.STALL, Ending.TIMEOUT])
def test_a_hang_without_a_cause_is_a_time_out_with_its_figures(ending: Ending) -> None:
    judged = classify(evidence(ending=ending, exit_code=None, detail="no step within 5 s"))
    assert (judged.outcome, judged.reason) == (Outcome.TIMEOUT, "no step within 5 s")


@pytest.mark.parametrize("ending", [Ending.STOPPED, Ending.SLOWER])
def test_what_the_launcher_stopped_is_stopped_whatever_the_log_says(ending: Ending) -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB"
    assert classify(evidence(ending=ending, log=log)).outcome is Outcome.STOPPED


def test_a_lost_supervisor_is_no_fault_of_the_job() -> None:
    assert classify(evidence(ending=Ending.LOST, exit_code=None)).outcome is Outcome.INFRA


def test_a_kill_that_the_kernel_did_not_do_is_no_fault_of_the_job() -> None:
    killed = evidence(exit_code=1, log=elastic(1, "-9 (pid: 7)"), ranks=())
    assert classify(killed).outcome is Outcome.OOM_HOST
    assert classify(dataclasses.replace(killed, kernel_kills=0)).outcome is Outcome.INFRA
    assert classify(dataclasses.replace(killed, kernel_kills=1)).outcome is Outcome.OOM_HOST


def test_memory_that_ran_out_and_was_caught_does_not_fail_a_whole_run() -> None:
    ranks = (rank(oom={"text": "CUDA out of memory"}),)
    assert classify(evidence(ranks=ranks)).outcome is Outcome.OK


def test_a_crash_by_signal_is_named() -> None:
    judged = classify(evidence(exit_code=-11, ranks=()))
    assert judged.outcome is Outcome.USER_ERROR
    assert "signal 11 (SIGSEGV), silently" in judged.reason


def test_a_withheld_variable_that_the_job_missed_is_named_with_the_way_to_pass_it() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/job/copy/data.py", line 4, in load\n'
        "KeyError: 'HF_TOKEN'\n"
    )
    judged = classify(evidence(exit_code=1, log=log, ranks=(), withheld=("HF_TOKEN",)))
    assert "KeyError: 'HF_TOKEN' (data.py:4)" in judged.reason
    assert "`launch.env_pass`" in judged.reason
