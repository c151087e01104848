"""The bands on a real tiny transformer: honest changes pass, cheats fail, in three numerics.

A gradient that is clipped by a constant factor is not among the bf16 cheats: Adam divides it out,
and what is left is below bf16's own rounding. It takes gradient norms to see it.
"""

from dataclasses import replace

import pytest
from made_records import PROJECT
from tiny_training import Variant, train

from infrarsi.contract import RunKind
from infrarsi.verify import Evidence, judge, reference_evidence

pytestmark = pytest.mark.slow
STEPS = 30
JOBS = {
    "fp32-adamw": Variant(),
    "fp32-sgd": Variant(optimizer="sgd"),
    "bf16-autocast": Variant(autocast=True),
}
HONEST = {
    "again": {},
    "micro-batch-8": {"micro_batch": 8},
    "micro-batch-1": {"micro_batch": 1},
    "sdpa": {"sdpa": True},
    "rows-in-another-order": {"shuffle_rows": True},
    "sdpa-and-micro-batch": {"sdpa": True, "micro_batch": 4},
}
OPTIMIZERS = {
    "fused": {"optimizer": "adamw-fused"},
    "foreach": {"optimizer": "adamw-foreach"},
    "fused-sdpa-micro-batch": {"optimizer": "adamw-fused", "sdpa": True, "micro_batch": 8},
}
CHEATS = {
    "learning-rate-x1.05": {"rate": 3e-3 * 1.05},
    "skipped-step": {"skip_at": 20},
    "half-batch": {"half_batch": True},
    "repeated-batch": {"repeat_at": 15},
    "detached-block": {"detach": True},
    "frozen-block": {"freeze": True},
    "one-micro-batch-less": {"drop_micro": True},
    "loss-x1.02": {"scale_loss": 1.02},
    "other-seed": {"seed": 1},
}


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS.keys())
def reference(request) -> tuple[Variant, Evidence]:
    """The job and its reference runs."""
    job = request.param
    runs = [
        train(job, STEPS, RunKind.TIMED),
        train(job, STEPS, RunKind.AUDIT),
        train(replace(job, perturb=True), STEPS, RunKind.PERTURBED),
    ]
    return job, reference_evidence(runs, optimizer_steps=STEPS)


@pytest.mark.parametrize("kind", [RunKind.AUDIT, RunKind.TIMED])
@pytest.mark.parametrize(
    "changes", [*HONEST.values(), *OPTIMIZERS.values()], ids=[*HONEST, *OPTIMIZERS]
)
def test_honest_change_is_the_same_job(reference, changes, kind):
    job, evidence = reference
    if job.optimizer == "sgd" and "optimizer" in changes:
        pytest.skip("the optimizer's implementations are AdamW's")
    assert judge(evidence, train(replace(job, **changes), STEPS, kind), PROJECT).failed == ()


@pytest.mark.parametrize("changes", CHEATS.values(), ids=CHEATS.keys())
def test_cheat_is_not_the_same_job_in_its_audit(reference, changes):
    job, evidence = reference
    assert not judge(evidence, train(replace(job, **changes), STEPS), PROJECT).same_job


@pytest.mark.parametrize("changes", CHEATS.values(), ids=CHEATS.keys())
def test_cheat_is_not_the_same_job_in_a_timed_run(reference, changes):
    job, evidence = reference
    run = train(replace(job, **changes), STEPS, RunKind.TIMED)
    assert not judge(evidence, run, PROJECT).same_job


def test_lower_precision_is_not_the_fp32_job(reference):
    job, evidence = reference
    if job.autocast:
        pytest.skip("this job computes in bf16 already")
    assert not judge(evidence, train(replace(job, autocast=True), STEPS), PROJECT).same_job


def test_clipped_gradient_is_not_the_fp32_job(reference):
    job, evidence = reference
    if job.autocast:
        pytest.skip("below the rounding of bf16; see the module's notes")
    assert not judge(evidence, train(replace(job, clip=0.05), STEPS), PROJECT).same_job


def test_two_threads_are_the_same_fp32_job():
    job = JOBS["fp32-adamw"]
    runs = [train(job, 10, RunKind.TIMED), train(replace(job, perturb=True), 10, RunKind.PERTURBED)]
    evidence = reference_evidence([*runs, train(job, 10)])
    project = PROJECT.model_copy(
        update={"workload": PROJECT.workload.model_copy(update={"optimizer_steps": 10})}
    )
    run = train(replace(job, threads=2), 10)
    assert judge(evidence, run, project).failed == ()
