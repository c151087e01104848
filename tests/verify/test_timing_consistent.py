"""Time that is moved out of the steps, and a speed that no hardware has, are found."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import CLOSE, PROJECT, STEPS, Job

from infrarsi.contract import CheckResult, ExecutionResult, NodeInfo, RunKind, Status
from infrarsi.verify import reference_evidence
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.invariants import timing_consistent

EVIDENCE = reference_evidence(made.reference_runs(), optimizer_steps=STEPS)


def judged(result: ExecutionResult) -> CheckResult:
    return timing_consistent.judge(Comparison(EVIDENCE, result, PROJECT))


def ended_by_job(result: ExecutionResult, after_s: float) -> ExecutionResult:
    """The same run, ended by the job; its last step lasts to the exit."""
    (rank,) = result.ranks
    end_s = rank.steps[-1].harness_s + after_s
    last = replace(rank.steps[-1], harness_s=end_s, witness_s=rank.steps[-1].witness_s + after_s)
    rank = replace(rank, steps=(*rank.steps[:-1], last), end={**rank.end, "how": "exit"})
    return replace(result, ranks=(rank,), command_s=end_s + 0.3)


def test_work_behind_the_last_step_of_a_job_that_ends_by_itself_is_found():
    runs = [ended_by_job(run, 0.4) for run in made.reference_runs()]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    found = {}
    for after_s in (0.1, 0.7, 1.5):
        run = ended_by_job(made.run(Job(seed=9, step_s=0.05)), after_s)
        found[after_s] = timing_consistent.judge(Comparison(evidence, run, PROJECT))
    assert [result.status for result in found.values()] == ["passed", "passed", "failed"]
    assert "between the last step and the end of the command" in found[1.5].reason


def test_work_behind_the_last_step_that_the_witness_ends_is_found():
    honest = made.run(Job(seed=9))
    assert judged(honest).status is Status.PASSED
    late = replace(honest, command_s=honest.command_s + 2.0)
    assert "end of the command" in judged(late).reason


@pytest.mark.parametrize(
    ("compile_s", "sealed_s", "status"),
    [(10.0, 0.1, "passed"), (10.0, 1.9, "failed"), (0.0, 0.1, "failed")],
)
def test_a_run_that_compiled_may_take_longer_to_exit_once_its_record_is_sealed(
    compile_s, sealed_s, status
):
    def sealed(run: ExecutionResult, after_s: float) -> ExecutionResult:
        (rank,) = run.ranks
        end = {**rank.end, "at": rank.steps[-1].harness_s + after_s}
        return replace(run, ranks=(replace(rank, end=end),))

    def compiling(step):
        first = compile_s if step.index == 0 else 0.0
        return replace(
            step,
            compile_s=first,
            harness_s=step.harness_s + compile_s,
            witness_s=step.witness_s + compile_s,
        )

    runs = [sealed(run, 0.1) for run in made.reference_runs()]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    run = sealed(made.run(Job(seed=9), compiling), sealed_s)
    run = replace(run, command_s=run.command_s + compile_s + 2.0)
    found = timing_consistent.judge(Comparison(evidence, run, PROJECT))
    assert found.status == status, found.reason


def test_a_process_left_running_is_found():
    honest = made.run(Job(seed=9))
    worker = "python -m torch._inductor.compile_worker --parent=3 (pid 7)"
    segment = "shared memory that may be another job's: /dev/shm/x"
    assert judged(replace(honest, leftover=(worker, segment))).status is Status.PASSED
    found = judged(replace(honest, leftover=("python train.py (pid 8)",)))
    assert found.status is Status.FAILED
    assert "python train.py" in found.reason


def test_a_process_that_the_reference_leaves_as_well_is_its_own_affair():
    runs = [replace(r, leftover=("python train.py (pid 4)",)) for r in made.reference_runs()]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    run = replace(made.run(Job(seed=9)), leftover=("python train.py (pid 8)",))
    assert timing_consistent.judge(Comparison(evidence, run, PROJECT)).status is Status.PASSED


def test_work_that_hides_in_the_close_looks_is_found():
    def slow(step):
        extra = 0.1 * sum(index <= step.index for index in CLOSE)
        return replace(step, harness_s=step.harness_s + extra, witness_s=step.witness_s + extra)

    assert "looked at closely" in judged(made.run(Job(seed=9), slow)).reason


def test_a_longer_start_is_charged_and_named():
    found = judged(made.run(Job(seed=9, start_s=9.0)))
    assert found.status is Status.PASSED
    assert "begins 5.0 s later, which is charged as a one-off" in found.reason


def test_printed_times_and_lines_take_part():
    def printing(result: ExecutionResult, factor: float = 1.0, every: int = 1) -> ExecutionResult:
        (rank,) = result.ranks
        ends = [rank.head["at"], *(step.harness_s for step in rank.steps)]
        points = [
            [i + 1, round(factor * (ends[i + 1] - ends[i]), 4), i + 1.0]
            for i in range(0, STEPS, every)
        ]
        return replace(result, printed={"step_time_s": points})

    evidence = reference_evidence(
        [printing(run) for run in made.reference_runs()], optimizer_steps=STEPS
    )

    def found(factor: float, every: int, kind: RunKind = RunKind.TIMED) -> CheckResult:
        run = printing(made.run(Job(seed=9, kind=kind)), factor, every)
        return timing_consistent.judge(Comparison(evidence, run, PROJECT))

    assert found(1.0, 1).status is Status.PASSED
    assert "on the harness's clock" in found(0.5, 1).reason
    assert "it printed 15 of 30 such lines" in found(1.0, 2).reason
    assert found(1.0, 2, RunKind.AUDIT).status is Status.FAILED


def on_gpu(result: ExecutionResult, linear_numel: int) -> ExecutionResult:
    ranks = tuple(
        replace(rank, precision=(), models=({"numel": linear_numel, "linear_numel": linear_numel},))
        for rank in result.ranks
    )
    node = NodeInfo("node", "node", 8, ("0",), "NVIDIA H100 80GB HBM3")
    return replace(result, ranks=ranks, nodes=(node,))


@pytest.mark.parametrize(
    ("linear_numel", "status"),
    [(10**10, Status.PASSED), (40 * 10**9, Status.FAILED)],
    ids=["0.62 of the peak", "2.5 times the peak"],
)
def test_a_speed_above_the_hardware_is_refused(linear_numel, status):
    """512 tokens an update at 6 operations each; 100 ms at 494.7 TFLOP/s are 49.5 TFLOP."""
    slow = Job(step_s=1.0)
    runs = [on_gpu(run, linear_numel) for run in made.reference_runs(slow)]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    run = on_gpu(made.run(Job(seed=9, step_s=0.1)), linear_numel)
    found = timing_consistent.judge(Comparison(evidence, run, PROJECT))
    assert found.status is status
    assert ("times the peak" in found.reason) is (status is Status.FAILED)


def test_a_bound_that_the_reference_exceeds_itself_is_not_held_against_a_candidate():
    runs = [on_gpu(run, 40 * 10**9) for run in made.reference_runs()]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    run = on_gpu(made.run(Job(seed=9, step_s=0.09)), 40 * 10**9)
    assert timing_consistent.judge(Comparison(evidence, run, PROJECT)).status is Status.PASSED


def test_what_the_untouched_run_of_a_pair_does_as_well_is_the_machine_s() -> None:
    def late(seed: int) -> ExecutionResult:
        run = made.run(Job(seed=seed))
        return replace(run, command_s=run.command_s + 2.0)

    alone = Comparison(EVIDENCE, late(9), PROJECT)
    beside = Comparison(EVIDENCE, late(9), PROJECT, late(10))
    quiet = Comparison(EVIDENCE, late(9), PROJECT, made.run(Job(seed=10)))
    assert timing_consistent.judge(alone).status is Status.FAILED
    assert timing_consistent.judge(beside).status is Status.PASSED
    assert timing_consistent.judge(quiet).status is Status.FAILED
