"""The winner's longer confirmation: one run each of the reference and the candidate.

Bands are calibrated on runs of a trial's length. Up to there they hold; what a job makes of
rounding later (a loss spike, a divergence of its own) is not known. So a run that fails by numbers
alone, and only after those steps, is judged there by the middle of its losses.
"""

import math
from dataclasses import replace

from infrarsi.contract import CheckResult, ExecutionResult, Project, Status, Verdict
from infrarsi.verify.chaos import middle
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.joined import Update
from infrarsi.verify.judgement import judge
from infrarsi.verify.numerics import losses, relative_losses

_BY_NUMBERS = ("loss_within_tolerance", "optimizer_steps", "eval_matches")


def judge_longer(
    evidence: Evidence,
    reference: ExecutionResult,
    candidate: ExecutionResult,
    project: Project,
    optimizer_steps: int,
) -> Verdict:
    """All 16 checks of a longer timed run against a reference run of the same length."""
    own = Evidence((reference,), evidence.audit, evidence.perturbed)
    longer = _of_length(project, optimizer_steps)
    verdict = judge(own, candidate, longer)
    failed = [found.check for found in verdict.failed]
    comparison = Comparison(own, candidate, longer)
    if not failed or not set(failed) <= set(_BY_NUMBERS) or comparison.bitwise:
        return verdict
    if not all(_alike(a, b) for a, b in comparison.updates):
        return verdict
    known = project.workload.optimizer_steps
    begun = judge(
        Evidence((_cut(reference, known),), evidence.audit, evidence.perturbed),
        _cut(candidate, known),
        project,
    )
    if any(begun[check].status is Status.FAILED for check in failed):
        return verdict
    found = relative_losses(losses(comparison.reference), losses(comparison.candidate))
    later = [value for step, value in found.items() if step >= known]
    off, most = middle(later), project.invariants.loss_tolerance
    if not later or not all(math.isfinite(value) for value in later) or not off <= most:
        return verdict
    for check in failed:
        reason = (
            f"{begun[check].reason}; after step {known - 1}, beyond what was calibrated, losses "
            f"are off by {off:.2g} in the middle of {most:g} allowed"
        )
        verdict = verdict.with_result(CheckResult(check, begun[check].status, reason))
    return verdict


def _of_length(project: Project, optimizer_steps: int) -> Project:
    workload = project.workload.model_copy(update={"optimizer_steps": optimizer_steps})
    return project.model_copy(update={"workload": workload})


def _alike(ours: Update, theirs: Update) -> bool:
    """Whether an update was made alike, as far as counts and settings tell."""
    return (
        sorted(ours.calls.values()) == sorted(theirs.calls.values())
        and theirs.skipped <= ours.skipped
        and ours.eval_calls == theirs.eval_calls
        and len(set(ours.learning_rates)) == len(set(theirs.learning_rates))
        and all(
            math.isclose(a, b, rel_tol=1e-6)
            for a, b in zip(
                sorted(set(ours.learning_rates)), sorted(set(theirs.learning_rates)), strict=True
            )
        )
    )


def _cut(result: ExecutionResult, steps: int) -> ExecutionResult:
    """The same run as if it had been ended after so many steps."""
    ranks = tuple(
        replace(rank, steps=tuple(step for step in rank.steps if step.index < steps))
        for rank in result.ranks
    )
    return replace(result, ranks=ranks)
