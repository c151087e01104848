"""Ordinary steps of a device that are short leave out losses; what must be there is insisted on."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import Job

from infrarsi.contract import ExecutionResult, RunKind, Status
from infrarsi.verify import judge, reference_evidence
from infrarsi.verify.joined import join


def on_device(result: ExecutionResult) -> ExecutionResult:
    """The same run as if its ranks had used a GPU."""
    ranks = tuple(replace(r, head={**r.head, "device": "NVIDIA H200"}) for r in result.ranks)
    return replace(result, ranks=ranks)


def short(step):
    """What the witness says of a step under 30 ms."""
    return step if step.close_look or step.index % 4 == 0 else replace(step, loss=None)


def status(tamper, reference=None, device=on_device):
    """How the losses of a timed run are judged."""
    runs = made.reference_runs()
    if reference is not None:
        runs = [
            made.run(
                Job(seed=seed, kind=run.kind), reference if run.kind is RunKind.TIMED else None
            )
            for seed, run in enumerate(runs)
        ]
    evidence = reference_evidence([device(run) for run in runs])
    verdict = judge(evidence, device(made.run(Job(seed=9), tamper)), made.PROJECT)
    return verdict["loss_within_tolerance"]


@pytest.mark.parametrize("reference", [None, short], ids=["long reference", "short reference"])
def test_losses_of_ordinary_short_steps_may_be_missing(reference) -> None:
    assert status(short, reference).status is Status.PASSED


@pytest.mark.parametrize("reference", [None, short], ids=["long reference", "short reference"])
def test_other_losses_are_found_among_those_that_are_left(reference) -> None:
    def other(step):
        kept = short(step)
        return kept if kept.loss is None else replace(kept, loss=1.005 * kept.loss)

    assert status(other, reference).status is Status.FAILED


@pytest.mark.parametrize(
    "gone", [lambda s: s.index == 12, lambda s: s.close_look and s.index > 1], ids=["4th", "look"]
)
def test_a_loss_that_the_witness_always_keeps_must_be_there(gone) -> None:
    found = status(lambda step: replace(step, loss=None) if gone(step) else short(step))
    assert (found.status, found.reason.partition(": ")[2]) == (
        Status.FAILED,
        "no loss was seen, the reference has one",
    )


def test_without_a_device_every_loss_must_be_there() -> None:
    assert status(short, device=lambda run: run).status is Status.FAILED


def test_a_mean_over_a_part_of_the_ranks_is_no_loss() -> None:
    seen = iter(range(10_000))

    def second_rank_alone(step):
        return step if next(seen) < made.STEPS else short(step)

    run = made.run(Job(ranks=2), second_rank_alone)
    kept = [update.index for update in join(run).updates if update.loss is not None]
    assert kept == [s.index for s in run.ranks[1].steps if s.loss is not None]
    assert 0 < len(kept) < made.STEPS
