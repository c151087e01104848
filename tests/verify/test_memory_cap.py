"""No rank reserves more memory than the cap."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import PROJECT, STEPS, Job

from infrarsi.contract import CheckResult, ExecutionResult, NodeInfo, Project, Status
from infrarsi.verify import reference_evidence
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.invariants import memory_cap

GIB = 2**30
CPU = NodeInfo("n", "n", 2, memory_bytes=16 * GIB)
H100 = NodeInfo("n", "n", 8, ("0", "1"), "NVIDIA H100 80GB HBM3", 256 * GIB)
UNKNOWN = replace(H100, gpu_name="NVIDIA L40S")


def with_peaks(result: ExecutionResult, node: NodeInfo, *gib: float) -> ExecutionResult:
    ranks = tuple(
        replace(
            result.ranks[0],
            rank=number,
            end={
                "peak_bytes": int(peak * GIB),
                "static_bytes": {"optimizer_states": int(0.5 * GIB)},
            },
        )
        for number, peak in enumerate(gib)
    )
    return replace(result, nodes=(node,), ranks=ranks)


def judged(
    node: NodeInfo, *gib: float, own: float = 1.0, project: Project = PROJECT
) -> CheckResult:
    runs = [with_peaks(run, node, own, own) for run in made.reference_runs()]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    run = with_peaks(made.run(Job(seed=9)), node, *gib)
    return memory_cap.judge(Comparison(evidence, run, project))


def capped(gib: float) -> Project:
    return PROJECT.model_copy(
        update={"invariants": PROJECT.invariants.model_copy(update={"memory_cap_gib": gib})}
    )


CASES = {
    "fits the GPU": (judged(H100, 70.0, 60.0), Status.PASSED),
    "the headroom is used up": (judged(H100, 60.0, 75.0), Status.FAILED),
    "as much as the reference": (judged(H100, 75.0, 75.0, own=75.5), Status.PASSED),
    "more than the reference": (judged(H100, 75.0, 76.0, own=75.5), Status.FAILED),
    "a GPU that is not known": (judged(UNKNOWN, 1.0), Status.NOT_COVERED),
    "within the contract's cap": (judged(UNKNOWN, 3.0, project=capped(4)), Status.PASSED),
    "beyond the contract's cap": (judged(H100, 3.0, 5.0, project=capped(4)), Status.FAILED),
    "the ranks share a machine": (judged(CPU, 7.0, 7.0), Status.PASSED),
    "the ranks overfill a machine": (judged(CPU, 8.0, 8.0), Status.FAILED),
    "a rank of a CPU job is capped": (judged(CPU, 3.0, 5.0, project=capped(4)), Status.FAILED),
}


@pytest.mark.parametrize(("found", "status"), CASES.values(), ids=CASES.keys())
def test_the_cap_holds(found, status):
    assert found.status is status


def test_the_reason_names_the_rank_its_states_and_the_cap():
    assert judged(H100, 3.0, 5.0, project=capped(4)).reason == (
        "rank 1 reserved 5.00 GiB at most (optimizer states 0.50); 4.00 GiB are allowed "
        "(`invariants.memory_cap_gib`)"
    )


def test_a_rank_that_says_nothing_is_not_covered():
    runs = made.reference_runs()
    silent = replace(runs[0], ranks=(replace(runs[0].ranks[0], end={"how": "witness"}),))
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    assert memory_cap.judge(Comparison(evidence, silent, PROJECT)).status is Status.NOT_COVERED
