"""Benign variants are the same job; each tampered variant fails the check that should catch it."""

import math
from dataclasses import replace

import made_records as made
import pytest
from made_records import CLOSE, PROJECT, SAMPLES, STEPS, Job, rows_digest, weight

from infrarsi.contract import CHECKS, ExecutionResult, Outcome, RunKind, Status, StepRecord
from infrarsi.verify import coverage, judge, reference_evidence

EVIDENCE = reference_evidence(made.reference_runs(), optimizer_steps=STEPS)
JUDGED = (
    "completes",
    "no_errors",
    "same_workload",
    "same_data",
    "same_model",
    "frozen_files",
    "optimizer_steps",
    "loss_within_tolerance",
    "precision",
    "eval_matches",
    "timing_consistent",
)
AUDITED = (*JUDGED, "grad_norm_within_tol")
JUDGED_HERE = tuple(check for check in CHECKS if check in AUDITED)

BENIGN = {
    "the reference again": Job(seed=9),
    "micro-batch 2": Job(seed=9, micro_batch=2),
    "micro-batch 16": Job(seed=9, micro_batch=16),
    "two ranks": Job(seed=9, ranks=2),
    "four ranks, micro-batch 1": Job(seed=9, ranks=4, micro_batch=1),
    "twice as fast": Job(seed=9, step_s=0.05),
    "twice as slow": Job(seed=9, step_s=0.2),
    "half a minute of compilation": Job(seed=9, start_s=40.0),
    "other rounding": Job(seed=9, wobble=3e-7),
    "five times the noise": Job(seed=9, noise=0.05),
    "evaluation made faster": Job(seed=9, eval_s=0.1),
    "events": Job(seed=9, events=True),
}


@pytest.mark.parametrize("kind", [RunKind.TIMED, RunKind.AUDIT])
@pytest.mark.parametrize("job", BENIGN.values(), ids=BENIGN.keys())
def test_benign_variant_is_the_same_job(job, kind):
    verdict = judge(EVIDENCE, made.run(replace(job, kind=kind)), PROJECT)
    assert verdict.failed == ()
    judged = JUDGED if kind is RunKind.TIMED else AUDITED
    assert [c for c in JUDGED_HERE if verdict[c].status is Status.PASSED] == [
        check for check in JUDGED_HERE if check in judged
    ]


def step(index: int, **changes: object):
    """Change the fields of one step."""
    return lambda s: replace(s, **changes) if s.index == index else s


def every(**changes: object):
    """Change the fields of every step."""
    return lambda s: replace(s, **changes)


def late_clock(share: float):
    """The job's own clock runs at a share of the real pace."""
    return lambda s: replace(s, witness_s=s.witness_s * share)


def half_the_rows(s: StepRecord) -> StepRecord:
    """Half of the batch, and counts that admit it."""
    return replace(
        s,
        samples=SAMPLES // 2,
        elements={name: count // 2 for name, count in s.elements.items()},
        digests=rows_digest(s.index, range(SAMPLES // 2)) if s.digests else {},
    )


def short_rows(s: StepRecord) -> StepRecord:
    """Rows of half the length, twice as many elements a row claimed."""
    shapes = {f"{name}:int64:8x16": 4 for name in ("x", "y")}
    return replace(s, shapes=shapes)


def other_batch(at: int, source: int):
    """Step `at` consumes the batch of step `source`."""
    whole = rows_digest(source, range(SAMPLES))
    return lambda s: replace(s, digests=whole) if s.index == at and s.digests else s


def faster_path(rate: float, elements: range = range(16)):
    """Some weights move at another rate from step 1 on."""

    def change(s: StepRecord) -> StepRecord:
        moved = tuple(
            weight(s.index, e, rate) if e in elements else w for e, w in enumerate(s.weights)
        )
        return replace(s, weights=moved)

    return change


def loss_times(factor: float, start: int = 0):
    """Losses from a step on are multiplied."""
    return lambda s: replace(s, loss=s.loss * factor) if s.index >= start and s.loss else s


def shifted(at: int, seconds: float, *, both: bool = True):
    """Everything after step `at` comes later; with `both`, on the job's clock too."""

    def change(s: StepRecord) -> StepRecord:
        if s.index < at:
            return s
        own = s.witness_s + (seconds if both else 0.0)
        return replace(s, harness_s=s.harness_s + seconds, witness_s=own)

    return change


def every_third_slow(s: StepRecord) -> StepRecord:
    """Work is moved into every third step."""
    extra = 0.06 * (s.index // 3)
    return replace(s, harness_s=s.harness_s + extra, witness_s=s.witness_s + extra)


def frozen_clock(s: StepRecord) -> StepRecord:
    """The job's clock stands still during evaluation."""
    return replace(s, witness_s=s.witness_s - 0.2 * ((s.index + 1) // 10))


TAMPERED = {
    "half of the batch": (half_the_rows, "same_workload"),
    "half of the batch, wrong counts": (
        lambda s: replace(s, digests=half_the_rows(s).digests),
        "same_data",
    ),
    "one sample less in one step": (step(11, samples=SAMPLES - 1), "same_workload"),
    "fewer accumulation steps": (
        lambda s: replace(s, samples=12, elements=dict.fromkeys(s.elements, 384)),
        "same_workload",
    ),
    "shorter rows": (short_rows, "same_workload"),
    "one input is gone": (
        lambda s: replace(s, elements={"x": s.elements["x"]}),
        "same_workload",
    ),
    "no input was seen": (every(elements={}, shapes={}, digests={}, samples=0), "same_workload"),
    "a repeated batch": (other_batch(16, 7), "same_data"),
    "a cached batch": (lambda s: other_batch(s.index, 0)(s), "same_data"),
    "no digests": (every(digests={}), "same_data"),
    "no digest in one close look": (step(16, digests={}), "same_data"),
    "close looks moved": (
        lambda s: replace(s, close_look=s.index in (2, 3), digests={}),
        "same_data",
    ),
    "a skipped optimizer step": (step(12, optimizer_calls={"0:AdamW": 0}), "optimizer_steps"),
    "an optimizer that steps twice": (step(12, optimizer_calls={"0:AdamW": 2}), "optimizer_steps"),
    "a second optimizer": (every(optimizer_calls={"0:AdamW": 1, "1:SGD": 1}), "optimizer_steps"),
    "a step without backward": (step(12, backwards=0), "optimizer_steps"),
    "a step skipped by the scaler": (step(12, skipped=1), "optimizer_steps"),
    "learning rate x 1.05": (
        lambda s: replace(s, learning_rates=tuple(1.05 * r for r in s.learning_rates)),
        "optimizer_steps",
    ),
    "no learning rate": (every(learning_rates=()), "optimizer_steps"),
    "weights move x 1.05": (faster_path(1.05), "optimizer_steps"),
    "weights move x 0.99": (faster_path(0.99), "optimizer_steps"),
    "weights stand still": (faster_path(0.0), "optimizer_steps"),
    "two frozen elements": (faster_path(0.0, range(4, 6)), "optimizer_steps"),
    "one element off by a tenth": (faster_path(1.1, range(3, 4)), "optimizer_steps"),
    "no weights": (every(weights=()), "optimizer_steps"),
    "fewer weights": (lambda s: replace(s, weights=s.weights[:8]), "optimizer_steps"),
    "NaN among the weights": (
        lambda s: replace(s, weights=tuple(math.nan for _ in s.weights)),
        "optimizer_steps",
    ),
    "first loss off by 0.1 %": (step(0, loss=5.005), "loss_within_tolerance"),
    "all losses off by 0.1 %": (loss_times(1.001), "loss_within_tolerance"),
    "late losses off by 0.5 %": (loss_times(1.005, 20), "loss_within_tolerance"),
    "one late loss off by 1 %": (step(29, loss=3.5), "loss_within_tolerance"),
    "no losses": (every(loss=None), "loss_within_tolerance"),
    "one loss is missing": (step(13, loss=None), "loss_within_tolerance"),
    "NaN loss": (step(13, loss=math.nan), "no_errors"),
    "infinite loss": (step(13, loss=math.inf), "no_errors"),
    "clock at half the pace": (late_clock(0.5), "timing_consistent"),
    "clock at 95 %": (late_clock(0.95), "timing_consistent"),
    "clock that stands still during evaluation": (frozen_clock, "timing_consistent"),
    "harness sees a jump that the job does not": (
        shifted(15, 0.5, both=False),
        "timing_consistent",
    ),
    "clock that goes backwards": (step(13, witness_s=0.0), "timing_consistent"),
    "events at half the time": (every(event_s=0.05), "timing_consistent"),
}
TIMED_ONLY = {
    "every third step is slow": (every_third_slow, "timing_consistent"),
    "two long pauses": (
        lambda s: shifted(20, 1.0)(shifted(12, 1.0)(s)),
        "timing_consistent",
    ),
    "one pause of two seconds": (shifted(20, 2.0), "timing_consistent"),
}


@pytest.mark.parametrize("kind", [RunKind.TIMED, RunKind.AUDIT])
@pytest.mark.parametrize(("tamper", "check"), TAMPERED.values(), ids=TAMPERED.keys())
def test_tampered_variant_fails_its_check(tamper, check, kind):
    verdict = judge(EVIDENCE, made.run(Job(seed=9, kind=kind), tamper), PROJECT)
    assert check in [result.check for result in verdict.failed]


@pytest.mark.parametrize(("tamper", "check"), TIMED_ONLY.values(), ids=TIMED_ONLY.keys())
def test_time_hidden_from_the_median_fails(tamper, check):
    verdict = judge(EVIDENCE, made.run(Job(seed=9), tamper), PROJECT)
    assert [result.check for result in verdict.failed] == [check]


def result_with(**changes: object) -> ExecutionResult:
    """An otherwise honest result."""
    return replace(made.run(Job(seed=9)), **changes)


def rank_with(**changes: object) -> ExecutionResult:
    """An otherwise honest result whose only rank is changed."""
    result = made.run(Job(seed=9))
    return replace(result, ranks=(replace(result.ranks[0], **changes),))


BROKEN = {
    "exit code 1": (result_with(exit_code=1), "completes"),
    "out of memory": (result_with(outcome=Outcome.OOM_GPU), "completes"),
    "stopped early": (result_with(outcome=Outcome.STOPPED), "completes"),
    "no record": (result_with(ranks=()), "completes"),
    "record not sealed": (rank_with(sealed=False), "completes"),
    "half of the steps": (rank_with(steps=made.run(Job()).ranks[0].steps[:15]), "completes"),
    "a rank without a record": (rank_with(world_size=2), "completes"),
    "an uncaught error": (rank_with(error="ValueError: x"), "no_errors"),
    "memory error that was caught": (rank_with(oom={"wanted": 1}), "no_errors"),
    "a traceback in the log": (
        result_with(log_tail="step 1\nTraceback (most recent call last):\n  File"),
        "no_errors",
    ),
    "NCCL error in the log": (result_with(log_tail="NCCL error: unhandled"), "no_errors"),
    "a frozen file changed": (result_with(frozen_changed=("data.py",)), "frozen_files"),
    "a hook was replaced": (
        rank_with(problems=("the witness's hook `Tensor.backward` was replaced (3 times)",)),
        "timing_consistent",
    ),
}


@pytest.mark.parametrize(("result", "check"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_run_fails_its_check(result, check):
    assert check in [found.check for found in judge(EVIDENCE, result, PROJECT).failed]


def test_ranks_that_end_at_different_steps_do_not_complete():
    result = made.run(Job(seed=9, ranks=2))
    short = replace(result.ranks[1], steps=result.ranks[1].steps[:-2])
    verdict = judge(EVIDENCE, replace(result, ranks=(result.ranks[0], short)), PROJECT)
    assert "different optimizer steps: [28, 30]" in verdict["completes"].reason


def test_more_steps_than_the_reference_are_not_the_same_steps():
    result = made.run(Job(seed=9))
    last = result.ranks[0].steps[-1]
    extra = replace(last, index=STEPS, harness_s=last.harness_s + 0.1)
    rank = replace(result.ranks[0], steps=(*result.ranks[0].steps, extra))
    verdict = judge(EVIDENCE, replace(result, ranks=(rank,)), PROJECT)
    assert "31 optimizer steps, the reference made 30" in verdict["optimizer_steps"].reason


def test_run_without_records_fails_for_that_alone_and_leaves_the_rest_uncovered():
    verdict = judge(EVIDENCE, result_with(ranks=(), outcome=Outcome.OOM_HOST), PROJECT)
    assert verdict["same_data"].status is Status.NOT_COVERED
    assert verdict["same_workload"].status is Status.NOT_COVERED


def test_traceback_that_the_reference_prints_too_is_no_error():
    tail = "Traceback (most recent call last):\n  optional import"
    runs = [replace(result, log_tail=tail) for result in made.reference_runs()]
    verdict = judge(reference_evidence(runs), result_with(log_tail=tail), PROJECT)
    assert verdict["no_errors"].status is Status.PASSED


def test_mask_without_a_batch_dimension_may_come_more_or_less_often():
    evidence = reference_evidence(made.reference_runs(Job(with_mask=True)))
    for micro_batch in (1, 8):
        candidate = made.run(Job(seed=9, with_mask=True, micro_batch=micro_batch))
        assert judge(evidence, candidate, PROJECT).failed == ()


def test_batch_that_is_replayed_at_fewer_forwards_is_not_taken_for_a_mask():
    """Half of the micro-batches, sums scaled as a constant input's would be, still lose samples."""

    def tamper(s: StepRecord) -> StepRecord:
        return replace(
            s,
            forwards=2,
            samples=8,
            elements={k: v // 2 for k, v in s.elements.items()},
            shapes={k: v // 2 for k, v in s.shapes.items()},
        )

    verdict = judge(EVIDENCE, made.run(Job(seed=9), tamper), PROJECT)
    assert verdict["same_workload"].status is Status.FAILED


def test_inputs_may_be_renamed():
    def rename(s: StepRecord) -> StepRecord:
        def named(values):
            return {f"targets{k[1:]}" if k[0] == "y" else k: v for k, v in values.items()}

        return replace(
            s, elements=named(s.elements), shapes=named(s.shapes), digests=named(s.digests)
        )

    assert judge(EVIDENCE, made.run(Job(seed=9), rename), PROJECT).failed == ()


def test_the_same_samples_in_another_order_across_updates_fail_and_are_named():
    swap = {7: 16, 16: 7}

    def tamper(s: StepRecord) -> StepRecord:
        source = swap.get(s.index)
        return replace(s, digests=rows_digest(source, range(SAMPLES))) if source else s

    verdict = judge(EVIDENCE, made.run(Job(seed=9), tamper), PROJECT)
    assert "in another order across updates" in verdict["same_data"].reason


def test_repeated_batch_is_named_with_the_step_it_comes_from():
    verdict = judge(EVIDENCE, made.run(Job(seed=9), other_batch(16, 7)), PROJECT)
    assert "step 16" in verdict["same_data"].reason
    assert "the batch of step 7 again" in verdict["same_data"].reason


def test_reference_that_reads_other_data_each_time_leaves_data_uncovered():
    runs = made.reference_runs()
    runs[1] = made.run(Job(seed=1), other_batch(7, 3))
    evidence = reference_evidence(runs)
    verdict = judge(evidence, made.run(Job(seed=9)), PROJECT)
    assert verdict["same_data"].status is Status.NOT_COVERED
    assert "reads other data in each run (step 7)" in verdict["same_data"].reason


def test_audits_may_read_other_noise_than_timed_runs_as_long_as_they_repeat_it():
    """Dropout is off in audits, so what is drawn after it is other noise."""
    noise = other_batch(7, 3)
    runs = made.reference_runs()
    runs[-2:] = [made.run(Job(kind=kind), noise) for kind in (RunKind.AUDIT, RunKind.PERTURBED)]
    evidence = reference_evidence(runs)
    audit = Job(seed=9, kind=RunKind.AUDIT)
    for result in (made.run(Job(seed=9)), made.run(audit, noise)):
        assert judge(evidence, result, PROJECT)["same_data"].status is Status.PASSED
    assert judge(evidence, made.run(audit), PROJECT)["same_data"].status is Status.FAILED


def test_reference_that_differs_from_itself_by_more_than_the_tolerance_leaves_losses_uncovered():
    runs = made.reference_runs()
    runs[1] = made.run(Job(seed=1), loss_times(1.05))
    verdict = judge(reference_evidence(runs), made.run(Job(seed=9)), PROJECT)
    assert "differs from itself" in verdict["loss_within_tolerance"].reason
    assert verdict["loss_within_tolerance"].status is Status.NOT_COVERED


def test_band_follows_the_perturbed_run():
    runs = made.reference_runs()
    runs[-1] = made.run(Job(kind=RunKind.PERTURBED), loss_times(1.001, 5))
    evidence = reference_evidence(runs)
    inside, outside = loss_times(1.004, 5), loss_times(1.02, 5)
    audit = Job(seed=9, kind=RunKind.AUDIT)
    check = "loss_within_tolerance"
    assert judge(evidence, made.run(audit, inside), PROJECT)[check].status is Status.PASSED
    assert judge(evidence, made.run(audit, outside), PROJECT)[check].status is Status.FAILED


def test_declared_tolerance_holds_however_wide_the_band():
    runs = made.reference_runs()
    runs[-1] = made.run(Job(kind=RunKind.PERTURBED), loss_times(1.02, 5))
    verdict = judge(
        reference_evidence(runs),
        made.run(Job(seed=9, kind=RunKind.AUDIT), loss_times(1.04, 5)),
        PROJECT,
    )
    assert "0.03 is allowed" in verdict["loss_within_tolerance"].reason


def test_bitwise_asks_for_equality():
    project = PROJECT.model_copy(
        update={"invariants": PROJECT.invariants.model_copy(update={"numerics": "bitwise"})}
    )
    audit = Job(seed=9, kind=RunKind.AUDIT)
    assert judge(EVIDENCE, made.run(audit), project).failed == ()
    failed = judge(EVIDENCE, made.run(replace(audit, wobble=1e-9)), project).failed
    assert [f.check for f in failed] == [
        "optimizer_steps",
        "loss_within_tolerance",
        "grad_norm_within_tol",
        "eval_matches",
    ]


class TestDropout:
    """Timed runs of a job with dropout; audit runs have it off."""

    evidence = reference_evidence(made.reference_runs(Job(dropout=True)))

    def test_other_masks_are_the_same_job(self):
        verdict = judge(self.evidence, made.run(Job(seed=9, dropout=True, micro_batch=8)), PROJECT)
        assert verdict.failed == ()
        assert "dropout is active" in verdict["loss_within_tolerance"].reason

    def test_audit_still_judges_every_step(self):
        job = Job(seed=9, dropout=True, micro_batch=8, kind=RunKind.AUDIT)
        assert judge(self.evidence, made.run(job), PROJECT).failed == ()
        verdict = judge(self.evidence, made.run(job, loss_times(1.001)), PROJECT)
        assert verdict["loss_within_tolerance"].status is Status.FAILED

    def test_frozen_weights_are_seen_in_the_timed_run_too(self):
        verdict = judge(
            self.evidence, made.run(Job(seed=9, dropout=True), faster_path(0.5)), PROJECT
        )
        assert "the weights travelled" in verdict["optimizer_steps"].reason
        assert verdict["optimizer_steps"].status is Status.FAILED


def test_audit_without_a_reference_audit_judges_work_and_data_alone():
    evidence = reference_evidence([made.run(Job(seed=seed)) for seed in range(2)])
    verdict = judge(evidence, made.run(Job(seed=9, kind=RunKind.AUDIT)), PROJECT)
    assert verdict["same_data"].status is Status.PASSED
    assert verdict["loss_within_tolerance"].status is Status.NOT_COVERED
    assert verdict.failed == ()


def test_contract_without_frozen_files_leaves_the_check_uncovered():
    project = PROJECT.model_copy(update={"frozen": {}})
    verdict = judge(EVIDENCE, made.run(Job(seed=9)), project)
    assert verdict["frozen_files"].status is Status.NOT_COVERED


def test_single_hiccup_of_the_machine_is_no_cheat():
    assert judge(EVIDENCE, made.run(Job(seed=9), shifted(20, 0.3)), PROJECT).failed == ()


def test_line_that_arrives_late_at_a_busy_harness_is_no_cheat():
    late = {5: 0.09, 21: 0.08}

    def tamper(s: StepRecord) -> StepRecord:
        return replace(s, harness_s=s.harness_s + late.get(s.index, 0.0))

    assert judge(EVIDENCE, made.run(Job(seed=9), tamper), PROJECT).failed == ()


@pytest.mark.slow
def test_reference_against_itself_is_the_same_job_over_many_noisy_runs():
    failed = []
    for seed in range(200):
        noisy = Job(seed=1000 + seed, noise=0.03)
        failed += judge(EVIDENCE, made.run(noisy), PROJECT).failed
    assert failed == []


def test_coverage_names_the_judged_checks_and_gives_reasons_for_the_rest():
    found = coverage(EVIDENCE, PROJECT)
    assert list(found) == list(CHECKS)
    assert [check for check in JUDGED_HERE if found[check] == "covered"] == list(JUDGED_HERE)
    assert found["speed_reproduces"] != "covered"
    assert all(len(reason) > 10 for reason in found.values() if reason != "covered")


def test_speed_is_not_covered_before_pairs_exist():
    verdict = judge(EVIDENCE, made.run(Job(seed=9)), PROJECT)
    assert verdict["speed_reproduces"].status is Status.NOT_COVERED
    assert verdict.same_job
    assert all(verdict[check].status is Status.PASSED for check in JUDGED)


def test_verdict_survives_json_and_is_the_same_when_judged_again():
    result = made.run(Job(seed=9), other_batch(16, 7))
    again = ExecutionResult.from_dict(result.to_dict())
    assert judge(EVIDENCE, again, PROJECT) == judge(EVIDENCE, result, PROJECT)


def test_close_looks_of_two_timed_runs_coincide_in_the_made_job():
    looks = {s.index for s in made.run(Job()).ranks[0].steps if s.close_look}
    assert looks == set(CLOSE)
