"""A trial that is the reference in all that is seen is without effect, another is not."""

import os
from dataclasses import replace
from pathlib import Path

import made_records as made
import pytest
from made_records import STEPS, Job

from infrarsi.contract import ExecutionResult
from infrarsi.node.local_bench import LocalBench
from infrarsi.testing.launcher_suite import RULES, Lab
from infrarsi.verify import reference_evidence
from infrarsi.verify.activity import activity, not_taken

ENV = {"NCCL_ALGO": "Ring", "TORCHELASTIC_RUN_ID": "x"}


def with_env(result: ExecutionResult, number: int, **more: str) -> ExecutionResult:
    env = {**ENV, "TORCHELASTIC_RUN_ID": f"run-{number}", **more}
    ranks = tuple(replace(rank, head={**rank.head, "env": env}) for rank in result.ranks)
    return replace(result, ranks=ranks)


EVIDENCE = reference_evidence(
    [with_env(run, number) for number, run in enumerate(made.reference_runs())],
    optimizer_steps=STEPS,
)


def test_a_run_that_is_the_reference_is_without_effect() -> None:
    found = activity(EVIDENCE, with_env(made.run(Job(seed=9)), 9))
    assert found.changed == ()
    assert found.left_no_trace
    assert "without effect" in found.sentence


@pytest.mark.parametrize(
    ("job", "fact"),
    [
        (Job(seed=9, micro_batch=2), "micro-batches of rank 0"),
        (Job(seed=9, ranks=2), "number of processes"),
        (Job(seed=9, wobble=1e-6), "losses of rank 0"),
    ],
    ids=["micro-batch", "processes", "losses"],
)
def test_what_a_setting_changed_is_named(job: Job, fact: str) -> None:
    found = activity(EVIDENCE, with_env(made.run(job), 9))
    assert fact in found.changed
    assert not found.left_no_trace
    assert found.sentence == ""


def test_a_variable_that_arrived_is_a_trace_and_so_is_time_alone() -> None:
    arrived = activity(EVIDENCE, with_env(made.run(Job(seed=9)), 9, NCCL_MIN_NCHANNELS="8"))
    assert "`NCCL_MIN_NCHANNELS` of rank 0" in arrived.changed
    faster = activity(EVIDENCE, with_env(made.run(Job(seed=9, step_s=0.07)), 9))
    assert faster.changed == ()
    assert not faster.left_no_trace


def test_memory_beyond_the_spread_of_the_reference_is_a_trace() -> None:
    run = with_env(made.run(Job(seed=9)), 9)
    (rank,) = run.ranks
    more = replace(rank, end={**rank.end, "peak_bytes": int(1.1 * (rank.peak_bytes or 0))})
    assert activity(EVIDENCE, replace(run, ranks=(more,))).changed == ("peak memory",)


def test_a_variable_that_did_not_arrive_is_named_with_what_is_there() -> None:
    run = with_env(made.run(Job(seed=9)), 9)
    assert not_taken({"NCCL_ALGO": "Ring", "OTHER_THING": "1"}, run) == ()
    assert not_taken({"NCCL_ALGO": "Tree"}, run) == (
        "`NCCL_ALGO` was set to 'Tree', in rank 0 it is 'Ring'",
    )
    assert not_taken({"NCCL_NTHREADS": "256"}, run) == (
        "`NCCL_NTHREADS` was set to '256', in rank 0 it is not set",
    )


@pytest.mark.slow
def test_real_runs_of_one_job_are_alike_and_an_argument_that_nobody_reads_leaves_no_trace(
    tmp_path: Path,
) -> None:
    def run(name: str, command: str) -> ExecutionResult:
        folder = tmp_path / name
        folder.mkdir()
        with LocalBench(base=dict(os.environ), rules=RULES) as bench:
            return Lab(bench, folder).run(command)

    evidence = reference_evidence([run("reference", "python train.py")])
    ignored = run("ignored", "python train.py --fused --attention flash")
    read = run("read", "OMP_DYNAMIC=true python train.py")
    assert activity(evidence, ignored).changed == ()
    assert activity(evidence, read).changed == ("`OMP_DYNAMIC` of rank 0",)
