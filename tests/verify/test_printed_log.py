"""A log that says something else than the record fails; one that says it in other ways passes."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import made_records as made
import pytest
from made_records import PROJECT, STEPS, Job

from infrarsi.contract import ExecutionResult, Knob, Project, RunKind
from infrarsi.verify import Evidence, reference_evidence
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.printed import LEFT_OUT, printed_losses_disagree
from infrarsi.verify.printed_times import printed_lines_missing, printed_times_disagree

Line = Callable[[ExecutionResult, int], float | None]
Print = Callable[[ExecutionResult], dict[str, list[list[float]]]]


def losses(result: ExecutionResult) -> list[float]:
    return [step.loss or 0.0 for step in result.ranks[0].steps]


def micro_batches(result: ExecutionResult) -> int:
    return result.ranks[0].steps[0].backwards


def times(result: ExecutionResult) -> list[float]:
    rank = result.ranks[0]
    ends = [rank.head["at"], *(step.harness_s for step in rank.steps)]
    return [b - a for a, b in itertools.pairwise(ends)]


def series(value: Line, label: str = "loss", every: int = 1, first: int = 1) -> Print:
    """A printer of one label: at every so many steps, counted from `first`."""

    def printed(result: ExecutionResult) -> dict[str, list[list[float]]]:
        lines = [i for i in range(STEPS) if (i + 1) % every == 0]
        found = [(i, value(result, i)) for i in lines]
        return {label: [[i + first, round(v, 4), 7.0 + i] for i, v in found if v is not None]}

    return printed


def mean_of_ten(result: ExecutionResult, index: int) -> float:
    return sum(losses(result)[index - 9 : index + 1]) / 10


LOSSES = {
    "of the update": series(lambda r, i: losses(r)[i]),
    "counted from 0": series(lambda r, i: losses(r)[i], first=0),
    "every third": series(lambda r, i: losses(r)[i], every=3),
    "mean of ten": series(mean_of_ten, every=10),
    "mean over micro-batches": series(lambda r, i: losses(r)[i] / micro_batches(r)),
    "times the accumulation": series(lambda r, i: losses(r)[i] * micro_batches(r)),
    "running mean": series(lambda r, i: sum(losses(r)[: i + 1]) / (i + 1)),
    "without a counter": lambda r: {
        "loss": [
            [k + 1, v, line]
            for k, (_, v, line) in enumerate(series(mean_of_ten, every=10)(r)["loss"])
        ]
    },
}
OTHER_LAYOUTS = {
    "again": Job(seed=9),
    "micro-batch 2": Job(seed=9, micro_batch=2),
    "two ranks": Job(seed=9, ranks=2, micro_batch=2),
    "audit": Job(seed=9, kind=RunKind.AUDIT),
}


def evidence_of(printer: Print) -> Evidence:
    runs = [replace(run, printed=printer(run)) for run in made.reference_runs()]
    return reference_evidence(runs, optimizer_steps=STEPS)


def compared(
    printer: Print, job: Job, false: Print | None = None, project: Project = PROJECT
) -> Comparison:
    run = made.run(job)
    run = replace(run, printed=(false or printer)(run))
    return Comparison(evidence_of(printer), run, project)


@pytest.mark.parametrize("job", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
@pytest.mark.parametrize("printer", LOSSES.values(), ids=LOSSES.keys())
def test_a_true_loss_agrees_in_every_layout(printer, job):
    assert printed_losses_disagree(compared(printer, job)) is None


@pytest.mark.parametrize("printer", LOSSES.values(), ids=LOSSES.keys())
def test_a_false_loss_is_found_at_its_line(printer):
    def false(result: ExecutionResult) -> dict[str, list[list[float]]]:
        points = printer(result)["loss"]
        return {"loss": [*points[:-1], [points[-1][0], 0.9 * points[-1][1], points[-1][2]]]}

    found = printed_losses_disagree(compared(printer, Job(seed=9), false))
    assert found is not None
    assert found.startswith(f"stdout.log:{printer(made.run())['loss'][-1][2]:.0f}: ")


def test_a_sum_over_the_ranks_is_a_loss_that_can_be_printed():
    two = Job(ranks=2, micro_batch=2)
    total = series(lambda r, i: sum(rank.steps[i].loss or 0.0 for rank in r.ranks))
    runs = [replace(run, printed=total(run)) for run in made.reference_runs(two)]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    found = []
    for share in (1.0, 0.9):
        run = made.run(replace(two, seed=9))
        points = [[step, share * loss, line] for step, loss, line in total(run)["loss"]]
        run = replace(run, printed={"loss": points})
        found.append(printed_losses_disagree(Comparison(evidence, run, PROJECT)))
    assert found[0] is None
    assert found[1] is not None


def test_the_last_micro_batch_alone_is_told_where_the_reference_has_one():
    one = Job(micro_batch=16)
    runs = [replace(r, printed=LOSSES["of the update"](r)) for r in made.reference_runs(one)]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    last = series(lambda r, i: losses(r)[i] / micro_batches(r) * (1.1 if i % 2 else 0.9))
    half = series(lambda r, i: 0.5 * losses(r)[i] / micro_batches(r))
    found = {}
    for name, printer in (("last", last), ("half", half)):
        run = made.run(Job(seed=9, micro_batch=4))
        run = replace(run, printed=printer(run))
        found[name] = printed_losses_disagree(Comparison(evidence, run, PROJECT))
    assert found["last"] is None
    assert found["half"] is not None


def test_a_number_that_follows_from_nothing_is_not_judged():
    noise = series(lambda r, i: (7919 * i % 13) + 0.5)
    other = series(lambda r, i: (104729 * i % 17) + 0.25)
    assert printed_losses_disagree(compared(noise, Job(seed=9), other)) is None


TIMES = {
    "seconds": series(lambda r, i: times(r)[i], "time_s"),
    "milliseconds without a unit": series(lambda r, i: 1e3 * times(r)[i], "dt"),
    "mean of five": series(
        lambda r, i: sum(times(r)[i - 4 : i + 1]) / 5, "elapsed_time_per_iteration_s", 5
    ),
    "elapsed": series(lambda r, i: sum(times(r)[: i + 1]) + 3.0, "elapsed_s", 5),
    "tokens": series(lambda r, i: 512 / times(r)[i], "tok/s"),
    "iterations": series(lambda r, i: micro_batches(r) / times(r)[i], "it/s"),
}


@pytest.mark.parametrize("job", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS.keys())
@pytest.mark.parametrize("printer", TIMES.values(), ids=TIMES.keys())
def test_a_true_time_agrees_also_when_the_job_is_faster(printer, job):
    assert printed_times_disagree(compared(printer, replace(job, step_s=0.03))) is None


@pytest.mark.parametrize("printer", TIMES.values(), ids=TIMES.keys())
def test_a_flattering_time_is_found(printer):
    label = next(iter(printer(made.run())))
    times_it = 1.6 if label.endswith("/s") else 0.6

    def false(result: ExecutionResult) -> dict[str, list[list[float]]]:
        return {label: [[s, v * times_it, line] for s, v, line in printer(result)[label]]}

    found = printed_times_disagree(compared(printer, Job(seed=9), false))
    assert found is not None
    assert f"`{label}`" in found


@pytest.mark.parametrize("printer", TIMES.values(), ids=TIMES.keys())
def test_a_second_line_that_flatters_is_found_beside_the_true_one(printer):
    label = next(iter(printer(made.run())))
    if label == "elapsed_s":
        pytest.skip("a time since the start follows from the line before")
    times_it = 3.0 if label.endswith("/s") else 1 / 3

    def both(result: ExecutionResult) -> dict[str, list[list[float]]]:
        true = printer(result)[label]
        false = [[s, v * times_it, line + 100] for s, v, line in true]
        return {label: [p for pair in zip(true, false, strict=True) for p in pair]}

    found = printed_times_disagree(compared(printer, Job(seed=9), both))
    assert found is not None
    assert found.startswith("stdout.log:1"), "the false line"


def test_a_time_that_does_not_flatter_is_let_be():
    longer = series(lambda r, i: 1.5 * times(r)[i], "time_s")
    assert printed_times_disagree(compared(TIMES["seconds"], Job(seed=9), longer)) is None


def test_a_constant_and_the_time_of_a_part_are_not_judged():
    for label, value in (("timeout_s", lambda r, i: 0.1), ("data_time_s", TIMES)):
        printer = series(value if callable(value) else lambda r, i: times(r)[i], label)
        false = series(lambda r, i: 0.01 * (i + 1), label)
        assert printed_times_disagree(compared(printer, Job(seed=9), false)) is None


@pytest.mark.parametrize("kind", [RunKind.TIMED, RunKind.AUDIT])
def test_a_line_that_is_gone_is_found(kind):
    printer = LOSSES["of the update"]
    job = Job(seed=9, kind=kind)
    assert printed_lines_missing(compared(printer, job)) is None

    def without_slow(result: ExecutionResult) -> dict[str, list[list[float]]]:
        return {"loss": [p for p in printer(result)["loss"] if p[0] % 10]}

    found = printed_lines_missing(compared(printer, job, without_slow))
    assert found is not None
    assert "at step 10 (stdout.log:16)" in found
    assert "27 of 30" in found


def test_another_interval_is_found_unless_a_knob_says_so():
    often, seldom = LOSSES["of the update"], LOSSES["every third"]
    knob = Knob(name="log", family="logging_interval", at="flag:--log", values=[1, 3], reference=1)
    knobs = PROJECT.model_copy(update={"knobs": [knob]})
    uneven = series(lambda r, i: losses(r)[i] if i % 7 else None)
    assert printed_lines_missing(compared(often, Job(seed=9), seldom)) is not None
    assert printed_lines_missing(compared(often, Job(seed=9), seldom, knobs)) is None
    assert printed_lines_missing(compared(often, Job(seed=9), uneven, knobs)) is not None


def test_more_lines_than_the_reference_are_welcome():
    often, seldom = LOSSES["of the update"], LOSSES["every third"]
    assert printed_lines_missing(compared(seldom, Job(seed=9), often)) is None


def test_a_bar_and_a_log_that_was_cut_miss_nothing():
    bar = series(lambda r, i: losses(r)[i], "bar/loss")
    assert printed_lines_missing(compared(bar, Job(seed=9), lambda _: {})) is None
    cut = compared(LOSSES["of the update"], Job(seed=9), lambda _: {LEFT_OUT: [[0.0, 9.0, 3.0]]})
    assert printed_lines_missing(cut) is None


def test_a_job_that_prints_by_the_clock_misses_nothing():
    runs = [
        replace(run, printed=series(lambda r, i: losses(r)[i], every=2 + number)(run))
        for number, run in enumerate(made.reference_runs())
    ]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    comparison = Comparison(evidence, made.run(Job(seed=9)), PROJECT)
    assert printed_lines_missing(comparison) is None


def test_a_damaged_series_is_no_error_and_misses_what_it_lost():
    printer = LOSSES["of the update"]

    def damaged(result: ExecutionResult) -> dict[str, list[list[float]]]:
        points = printer(result)["loss"]
        return {"loss": [*points[:20], [], ["x", 1.0, 2.0], [21.0, None, 3.0], *points[22:]]}

    comparison = compared(printer, Job(seed=9), damaged)
    assert printed_losses_disagree(comparison) is None
    assert printed_times_disagree(comparison) is None
    assert "at step 21 " in (printed_lines_missing(comparison) or "")
