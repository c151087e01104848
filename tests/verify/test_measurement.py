"""Step time, tail, one-off cost: from the harness's clock, slowest rank, close looks left out."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import CLOSE, Job

from infrarsi.contract import RunKind
from infrarsi.verify import measure
from infrarsi.verify.joined import join


def measured(job=None, tamper=None):
    """The measurement of a made run, without noise unless a job is given."""
    found = measure(made.run(job or Job(noise=0.0), tamper))
    assert found is not None
    return found


def test_step_time_is_the_median_and_the_mean_has_the_evaluation():
    found = measured()
    assert found.step_time_s == pytest.approx(0.1, rel=0.01)
    kept = [index for index, _ in found.durations if index >= found.first_steady]
    evaluations = sum(index % 10 == 9 for index in kept)
    assert found.mean_step_s == pytest.approx(0.1 + 0.2 * evaluations / len(kept), rel=0.01)
    assert found.tail_s == pytest.approx(found.mean_step_s - found.step_time_s)


def test_close_looks_are_left_out():
    slow = 0.5

    def tamper(s):
        late = slow * sum(look <= s.index for look in CLOSE)
        return replace(s, harness_s=s.harness_s + late)

    found = measured(tamper=tamper)
    assert found.step_time_s == pytest.approx(0.1, rel=0.01)
    assert not set(CLOSE) & {index for index, _ in found.durations}


def test_one_off_cost_is_the_start_and_what_warm_up_takes_beyond_steady_steps():
    # 4 s to the first step, which takes 1 s more than a steady one.
    assert measured(Job(noise=0.0, eval_every=0)).one_off_s == pytest.approx(5.0, abs=0.01)


def test_end_of_a_job_that_ends_by_itself_is_paid_once_and_no_step():
    result = made.run(Job(noise=0.0, eval_every=0))
    rank = result.ranks[0]
    last = replace(rank.steps[-1], harness_s=rank.steps[-1].harness_s + 3.0)
    rank = replace(rank, steps=(*rank.steps[:-1], last), end={"how": "exit"})
    found = measure(replace(result, ranks=(rank,), command_s=result.command_s + 3.0))
    assert found is not None
    assert found.step_time_s == pytest.approx(0.1, rel=0.01)
    assert found.tail_s == pytest.approx(0.0, abs=0.001)
    assert found.one_off_s == pytest.approx(5.0 + 3.0 + 0.3, abs=0.02)


def test_slowest_rank_decides():
    result = made.run(Job(noise=0.0, ranks=2, eval_every=0))
    slow = result.ranks[1]
    steps = tuple(replace(s, harness_s=s.harness_s + 0.02 * s.index) for s in slow.steps)
    found = measure(replace(result, ranks=(result.ranks[0], replace(slow, steps=steps))))
    assert found is not None
    assert found.step_time_s == pytest.approx(0.12, rel=0.01)


def test_job_clock_takes_no_part():
    honest = measured()
    forged = measured(tamper=lambda s: replace(s, witness_s=s.witness_s / 2, event_s=0.01))
    assert forged == honest


def test_run_without_a_step_has_no_measurement():
    result = made.run(Job())
    assert measure(replace(result, ranks=())) is None


def test_audit_run_is_measured_on_its_close_looks():
    assert measured(Job(noise=0.0, kind=RunKind.AUDIT)).step_time_s == pytest.approx(0.1, rel=0.01)


def test_stopped_run_is_measured_on_what_it_has():
    result = made.run(Job(noise=0.0))
    rank = replace(result.ranks[0], steps=result.ranks[0].steps[:14], sealed=False, end={})
    found = measure(replace(result, ranks=(rank,)))
    assert found is not None
    assert found.step_time_s == pytest.approx(0.1, rel=0.01)


def compiling(at, seconds):
    """An update in which torch's compiler works for a while, and says so."""

    def change(s):
        late = seconds * sum(index <= s.index for index in at)
        return replace(
            s,
            harness_s=s.harness_s + late,
            witness_s=s.witness_s + late,
            compile_s=seconds if s.index in at else 0.0,
        )

    return change


def test_compiling_an_evaluation_in_the_middle_is_a_one_off():
    plain = measured(Job(noise=0.0, eval_every=0))
    found = measured(Job(noise=0.0, eval_every=0), compiling((9,), 20.0))
    assert found.mean_step_s == pytest.approx(plain.mean_step_s, rel=0.01)
    assert found.one_off_s == pytest.approx(plain.one_off_s + 20.0, abs=0.05)


def test_compiling_again_and_again_is_recurring_time():
    found = measured(Job(noise=0.0, eval_every=0), compiling(tuple(range(2, 30, 2)), 0.5))
    assert found.mean_step_s > 0.2


@pytest.mark.parametrize(
    ("shapes", "uneven"),
    [
        ({"ids:int64:1x47": 1, "ids:int64:1x82": 3}, True),
        ({"ids:int64:1x82": 2, "ids:int64:2x82": 1, "scale:float32:": 1}, False),
    ],
    ids=["padded to the longest", "one length"],
)
def test_rows_of_several_lengths_in_one_update_are_told(shapes, uneven):
    run = made.run(Job(), lambda s: replace(s, shapes=shapes) if s.index == 3 else s)
    found = [update.index for update in join(run).updates if update.has_uneven_rows]
    assert found == ([3] if uneven else [])
