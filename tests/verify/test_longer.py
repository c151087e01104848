"""The longer confirmation on a real tiny transformer: honest changes stay inside the bands."""

from dataclasses import replace

import pytest
from made_records import PROJECT
from tiny_training import Variant, train

from infrarsi.contract import ExecutionResult, RunKind
from infrarsi.verify import Evidence, judge_longer, reference_evidence

pytestmark = pytest.mark.slow
STEPS, LONG = 30, 160
JOBS = {
    "fp32-adamw": Variant(),
    "fp32-sgd": Variant(optimizer="sgd"),
    "bf16-autocast": Variant(autocast=True),
}
HONEST = {
    "again": {},
    "micro-batch-8": {"micro_batch": 8},
    "sdpa": {"sdpa": True},
    "rows-in-another-order": {"shuffle_rows": True},
}
LATE_CHEATS = {
    "skipped-step": {"skip_at": 100},
    "loss-x1.05-from-step-60": {"scale_loss": 1.05, "scale_from": 60},
}


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS.keys())
def reference(request) -> tuple[Variant, Evidence, ExecutionResult]:
    """The job, its reference runs, and its longer run."""
    job = request.param
    runs = [
        train(job, STEPS, RunKind.TIMED),
        train(job, STEPS, RunKind.AUDIT),
        train(replace(job, perturb=True), STEPS, RunKind.PERTURBED),
    ]
    evidence = reference_evidence(runs, optimizer_steps=STEPS)
    return job, evidence, train(job, LONG, RunKind.TIMED)


@pytest.mark.parametrize("changes", HONEST.values(), ids=HONEST)
def test_an_honest_change_is_the_same_job_over_a_longer_run(reference, changes):
    job, evidence, longer = reference
    result = train(replace(job, **changes), LONG, RunKind.TIMED)
    assert judge_longer(evidence, longer, result, PROJECT, LONG).failed == ()


@pytest.mark.parametrize("changes", LATE_CHEATS.values(), ids=LATE_CHEATS)
def test_a_cheat_that_begins_after_the_trial_is_found(reference, changes):
    job, evidence, longer = reference
    result = train(replace(job, **changes), LONG, RunKind.TIMED)
    assert not judge_longer(evidence, longer, result, PROJECT, LONG).same_job


def test_a_run_that_is_too_short_fails(reference):
    job, evidence, longer = reference
    result = train(job, STEPS, RunKind.TIMED)
    failed = {r.check for r in judge_longer(evidence, longer, result, PROJECT, LONG).failed}
    assert "completes" in failed
