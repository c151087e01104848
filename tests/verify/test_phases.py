"""Where a step's time goes: by phase, waiting for data apart, the rank where it is most."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import CLOSE, Job

from infrarsi.verify import phase_times, reference_evidence


def found(tamper=None, ranks=1):
    """The phases of two made reference runs."""
    runs = [made.run(Job(ranks=ranks, seed=seed), tamper) for seed in (0, 1)]
    return phase_times(reference_evidence(runs))


def timed(step, data=0.02):
    """A step with phases; close looks and the first are slower, and must not count."""
    slow = 10.0 if step.index in CLOSE else 1.0
    phases = {"fwd": 0.03 * slow, "bwd": 0.04 * slow, "opt": 0.005, "other": 0.025 * slow}
    return replace(step, phases_s=phases, data_wait_s=data * slow)


def test_waiting_for_data_is_a_phase_of_its_own():
    assert found(timed) == pytest.approx(
        {"fwd": 0.03, "bwd": 0.04, "opt": 0.005, "other": 0.005, "data": 0.02}
    )


def test_a_job_without_a_torch_dataloader_has_no_data_phase():
    phases = found(lambda step: timed(step, data=0.0))
    assert "data" not in phases
    assert phases["other"] == pytest.approx(0.025)


def test_the_rank_that_waits_longest_counts():
    count = iter(range(10_000))

    def tamper(step):
        second_rank = next(count) % (2 * made.STEPS) >= made.STEPS
        return timed(step, data=0.02 if second_rank else 0.001)

    assert found(tamper, ranks=2)["data"] == pytest.approx(0.02)


def test_a_record_without_phases_still_tells_the_wait_for_data():
    assert found() == {"data": pytest.approx(0.001)}
