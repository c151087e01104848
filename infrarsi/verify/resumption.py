"""Two runs of the unmodified code: from the reference's checkpoint, and from a candidate's."""

import math
from dataclasses import replace

import numpy as np

from infrarsi.contract import CheckResult, ExecutionResult, Outcome, Project, RunKind, Status
from infrarsi.verify.chaos import Chaos, middle
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.invariants import resume_continues, same_data, same_workload
from infrarsi.verify.joined import Joined
from infrarsi.verify.numerics import loss_limits, losses, relative_losses

CHECK = resume_continues.CHECK
_SAME_LOSS = 1e-6
_SAME_RATE = 1e-6


def judge_resumed(
    evidence: Evidence, reference: ExecutionResult, candidate: ExecutionResult, project: Project
) -> CheckResult:
    """Whether the unmodified code trains on from the candidate's checkpoint as from its own.

    Work and data must be the same, learning rates equal, and losses inside the band that the audit
    run of that length would have at its end. Not covered where the job does not go on from its own
    checkpoint, or begins anew with the flags that the contract names.
    """
    if reference.outcome is not Outcome.OK:
        return uncovered(
            CHECK,
            f"the job as it is does not go on from its own checkpoint: {reference.reason}",
        )
    if candidate.outcome is not Outcome.OK:
        return failed(
            CHECK,
            f"the unmodified code does not go on from the candidate's checkpoint: "
            f"{candidate.outcome.sentence}: {candidate.reason}",
        )
    own = Evidence(
        (replace(reference, kind=RunKind.TIMED),), replace(reference, kind=RunKind.AUDIT)
    )
    comparison = Comparison(own, replace(candidate, kind=RunKind.AUDIT), project)
    if _began_anew(evidence, comparison.reference):
        return uncovered(
            CHECK,
            "the job as it is began anew instead of going on from its checkpoint "
            "(`verify.resume` in infrarsi.yaml)",
        )
    ours, theirs = comparison.reference, comparison.candidate
    if len(ours.updates) != len(theirs.updates):
        return failed(
            CHECK,
            f"from the candidate's checkpoint {len(theirs.updates)} steps were made, "
            f"from the reference's {len(ours.updates)}",
        )
    for module in (same_workload, same_data):
        found = module.judge(comparison)
        if found.status is Status.FAILED:
            return failed(CHECK, f"resumed from the candidate's checkpoint: {found.reason}")
    for a, b in comparison.updates:
        rates = sorted(set(a.learning_rates)), sorted(set(b.learning_rates))
        if len(rates[0]) != len(rates[1]) or not np.allclose(*rates, rtol=_SAME_RATE, atol=0.0):
            return failed(
                CHECK,
                f"resumed step {a.index}: learning rates {rates[1]}, from the reference's "
                f"checkpoint {rates[0]}",
            )
    return _losses(evidence, comparison, project)


def _began_anew(evidence: Evidence, resumed: Joined) -> bool:
    """Whether the resumed reference has the first losses of a run from the start."""
    audit = evidence.audit_run
    if audit is None:
        return False
    first = relative_losses(losses(audit), losses(resumed))
    shared = [value for step, value in first.items() if step < 3]
    return bool(shared) and max(shared) < _SAME_LOSS


def _losses(evidence: Evidence, comparison: Comparison, project: Project) -> CheckResult:
    ours, theirs = losses(comparison.reference), losses(comparison.candidate)
    if not ours:
        return uncovered(CHECK, "no loss was seen in the resumed run")
    lost = [step for step in ours if step not in theirs]
    if lost:
        return failed(CHECK, f"resumed step {lost[0]}: no loss was seen")
    found = relative_losses(ours, theirs)
    steps = sorted(found)
    made = len(evidence.audit_run.updates) if evidence.audit_run else 0
    later = [made + step for step in steps]
    tolerance = 0.0 if comparison.bitwise else project.invariants.loss_tolerance
    chaos = Comparison(evidence, evidence.audit, project).chaos if evidence.audit else Chaos()
    if chaos.horizon is not None and tolerance:
        return _middle(list(found.values()), tolerance)
    growth = chaos.growth(sorted(chaos.spread)[-1:] or [0])[-1]
    widened = np.full(len(later), growth)
    allowed = loss_limits(evidence, RunKind.AUDIT, later, tolerance, growth=widened)
    values = np.asarray([found[s] if math.isfinite(found[s]) else math.inf for s in steps])
    at = int(np.argmax(values / np.maximum(allowed, 1e-300)))
    where = (
        f"resumed step {steps[at]}: loss {theirs[steps[at]]:.6g}, from the reference's checkpoint "
        f"{ours[steps[at]]:.6g}, off by {values[at]:.2g}"
    )
    if values[at] > allowed[at]:
        return failed(CHECK, f"{where}, {allowed[at]:.2g} is allowed")
    return passed(
        CHECK,
        f"the unmodified code goes on from the candidate's checkpoint for {len(steps)} steps; "
        f"worst at {where} of {allowed[at]:.2g} allowed",
    )


def _middle(found: list[float], tolerance: float) -> CheckResult:
    """Single losses of a job that departs from itself say nothing; their median does."""
    off = middle(found)
    told = f"resumed from the candidate's checkpoint, losses are off by {off:.2g} in the middle"
    if not off <= tolerance:
        return failed(CHECK, f"{told}, {tolerance:g} is allowed")
    return passed(CHECK, f"{told} of {tolerance:g} allowed")
