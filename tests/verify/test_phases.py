"""Where a step's time goes: by phase, waiting for data apart, the rank where it is most."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import CLOSE, Job

from infrarsi.verify import phase_times, reference_evidence
from infrarsi.verify.measurement import measure


def evidence(tamper=None, ranks=1):
    """Two made reference runs."""
    return reference_evidence([made.run(Job(ranks=ranks, seed=seed), tamper) for seed in (0, 1)])


def found(tamper=None, ranks=1):
    """The phases of two made reference runs."""
    return phase_times(evidence(tamper, ranks))


def timed(step, data=0.02):
    """A step of a timed run: close looks have phases, and wait longer, which must not count."""
    looked = step.index in CLOSE
    phases = {"fwd": 0.03, "bwd": 0.04, "opt": 0.005, "other": 9.0} if looked else {}
    return replace(step, phases_s=phases, data_wait_s=data * (10.0 if looked else 1.0))


def test_waiting_for_data_is_a_phase_of_its_own():
    phases = found(timed)
    assert {name: phases[name] for name in ("fwd", "bwd", "opt", "data")} == pytest.approx(
        {"fwd": 0.03, "bwd": 0.04, "opt": 0.005, "data": 0.02}
    )


def test_the_phases_add_up_to_a_steady_step():
    runs = evidence(timed).timed
    mean = sum(measure(run).mean_step_s for run in runs) / len(runs)
    assert sum(found(timed).values()) == pytest.approx(mean)


def test_a_job_without_a_torch_dataloader_has_no_data_phase():
    phases = found(lambda step: timed(step, data=0.0))
    assert "data" not in phases
    assert phases["other"] == pytest.approx(found(timed)["other"] + 0.02)


def test_the_rank_that_waits_longest_counts():
    count = iter(range(10_000))

    def tamper(step):
        second_rank = next(count) % (2 * made.STEPS) >= made.STEPS
        return timed(step, data=0.02 if second_rank else 0.001)

    assert found(tamper, ranks=2)["data"] == pytest.approx(0.02)


def test_a_record_without_phases_still_tells_the_wait_for_data():
    assert found() == {"data": pytest.approx(0.001)}
