"""A job that amplifies rounding: what is judged by numbers, how wide, and what is judged anyway."""

import math
from dataclasses import replace

import made_records as made
import pytest
from made_records import PROJECT, STEPS, Job

from infrarsi.contract import RunKind, Status, StepRecord
from infrarsi.verify import judge, reference_evidence
from infrarsi.verify.chaos import Chaos

SPIKE = 18


def strays(early: float, late: float):
    """Gradients and losses off by `early` before the spike and by `late` from it on."""

    def change(s: StepRecord) -> StepRecord:
        off = early if s.index < SPIKE else late
        gradients = {n: [v[0] * (1.0 + off), v[1]] for n, v in s.gradients.items() if v}
        return replace(s, gradients=gradients, loss=s.loss * (1.0 + off * 0.01))

    return change


def evidence(late: float):
    runs = made.reference_runs()
    runs[-1] = made.run(Job(kind=RunKind.PERTURBED), strays(1e-6, late))
    return reference_evidence(runs)


def judged(tamper, late: float):
    return judge(evidence(late), made.run(Job(seed=9, kind=RunKind.AUDIT), tamper), PROJECT)


def test_calm_job_has_no_horizon_and_bands_are_not_widened():
    calm = Chaos(dict.fromkeys(range(STEPS), 1e-6))
    assert calm.horizon is None
    assert list(calm.growth([0, 10, 29])) == [1.0, 1.0, 1.0]


def test_band_is_widened_by_the_root_of_the_amplification():
    grown = Chaos({step: 1e-6 if step < SPIKE else 1e-4 for step in range(STEPS)})
    assert grown.growth([0, STEPS - 1]) == pytest.approx([1.0, 10.0])
    assert grown.horizon is None


def test_other_kernel_may_be_amplified_more_than_the_perturbed_run():
    assert judged(strays(2e-6, 5e-2), late=1e-3)["grad_norm_within_tol"].status is Status.PASSED
    assert judged(strays(2e-6, 5e-2), late=1e-6)["grad_norm_within_tol"].status is Status.FAILED


def test_steps_beyond_the_horizon_are_not_judged_by_numbers_and_the_reason_says_so():
    verdict = judged(strays(2e-6, 0.9), late=0.3)
    assert verdict.failed == ()
    assert f"judged up to step {SPIKE - 3}" in verdict["grad_norm_within_tol"].reason


def test_steps_before_it_are():
    found = judged(strays(1e-3, 0.9), late=0.3)["grad_norm_within_tol"]
    assert found.status is Status.FAILED
    assert found.reason.startswith("step 0:")


def test_parameter_without_gradient_fails_beyond_it_too():
    def without(s: StepRecord) -> StepRecord:
        s = strays(2e-6, 0.9)(s)
        return replace(s, gradients={**s.gradients, "layer.bias": None}) if s.index > 25 else s

    found = judged(without, late=0.3)["grad_norm_within_tol"]
    assert "step 26: `layer.bias` has no gradient" in found.reason


def test_losses_beyond_it_are_held_to_the_tolerance_in_the_middle():
    def loss(factor: float):
        def change(s: StepRecord) -> StepRecord:
            s = strays(2e-6, 0.9)(s)
            return replace(s, loss=s.loss * factor) if s.index >= SPIKE else s

        return change

    assert judged(loss(1.01), late=0.3)["loss_within_tolerance"].status is Status.PASSED
    found = judged(loss(1.05), late=0.3)["loss_within_tolerance"]
    assert found.status is Status.FAILED
    assert "losses are off by" in found.reason


def test_job_that_never_repeats_itself_is_not_covered():
    runs = made.reference_runs()
    runs[-1] = made.run(Job(kind=RunKind.PERTURBED), strays(0.9, 0.9))
    verdict = judge(reference_evidence(runs), made.run(Job(seed=9, kind=RunKind.AUDIT)), PROJECT)
    assert verdict["grad_norm_within_tol"].status is Status.NOT_COVERED
    assert verdict.failed == ()


def test_spread_that_is_not_finite_is_beyond_any_band():
    assert Chaos({0: 1e-6, 1: 1e-6, 2: 1e-6, 3: math.inf}).horizon == 1
