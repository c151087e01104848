"""Before a promotion: does the untouched code go on from the candidate's checkpoint."""

from infrarsi.campaign.execution import Desk, Variation
from infrarsi.campaign.parts import Judge, Refused
from infrarsi.contract import (
    CHECKPOINT_DIR_TOKEN,
    CHECKPOINT_TOKEN,
    Candidate,
    CheckResult,
    ExecutionResult,
    Outcome,
    Overlay,
    Project,
    Purpose,
    RunKind,
    Status,
)
from infrarsi.ports import Bench

CHECK = "resume_continues"
_ALLOWANCE_S = 300.0


def keeps_checkpoints(project: Project) -> bool:
    """Whether audit runs must keep what they leave, because it is resumed from later."""
    return project.verify.resume is not None and project.verify.resume_check is not False


def resume_check(
    desk: Desk, judge: Judge, bench: Bench, candidate: Candidate, audit_name: str
) -> CheckResult | None:
    """Resume the untouched job from both sides' checkpoints; None where the contract says not how.

    The reference's resumed run is made once in a campaign, a candidate's once.
    """
    if not keeps_checkpoints(desk.project):
        return None
    audit = _reference_audit(desk)
    own = desk.earlier(audit_name)
    if audit is None or own is None:
        return _uncovered("there is no audit run to resume from")
    overlay = desk.parts.resume(desk.snapshot)
    if isinstance(overlay, Refused):
        return _uncovered(f"the job cannot be told to resume: {overlay.reason}")
    reference = _resumed(desk, judge, bench, overlay, audit, "reference")
    if isinstance(reference, str):
        return _uncovered(f"the job as it is {reference}")
    result = _resumed(desk, judge, bench, overlay, own, candidate.id)
    if isinstance(result, str):
        return CheckResult(CHECK, Status.FAILED, f"the candidate {result}, the reference did")
    return judge.resumed(reference, result)


def combined(first: CheckResult, second: CheckResult) -> CheckResult:
    """What the checkpoint itself shows, and then what a resumed run shows."""
    if second.status is Status.FAILED or first.status is Status.NOT_COVERED:
        return second
    if first.status is Status.FAILED:
        return first
    return CheckResult(CHECK, first.status, f"{first.reason}; {second.reason}")


def _uncovered(reason: str) -> CheckResult:
    return CheckResult(CHECK, Status.NOT_COVERED, f"not resumed: {reason}")


def _reference_audit(desk: Desk) -> ExecutionResult | None:
    for line in desk.state.executions:
        if (line.purpose, line.kind, line.outcome) == (
            Purpose.REFERENCE,
            RunKind.AUDIT,
            Outcome.OK,
        ):
            return desk.receipt(line.execution_id)
    return None


def _resumed(
    desk: Desk, judge: Judge, bench: Bench, overlay: Overlay, audit: ExecutionResult, who: str
) -> ExecutionResult | str:
    """The untouched job resumed from what an audit run left, or why there is nothing to resume."""
    name = f"resume-{who}"
    known = desk.earlier(name)
    if known is not None:
        return known
    checkpoint = judge.checkpoint(audit)
    kept = desk.run.kept(audit.execution_id)
    if checkpoint is None:
        return "left no checkpoint that can be resumed from"
    if not kept.is_dir():
        return f"did not keep its checkpoint (`{audit.execution_id}`)"
    resume = desk.project.verify.resume
    assert resume is not None
    desk.parts.status(f"    the untouched code resumes from a checkpoint of the {_side(who)}")
    named = any(
        token in str(value)
        for value in resume.set.values()
        for token in (CHECKPOINT_TOKEN, CHECKPOINT_DIR_TOKEN)
    )
    timeout_s = min(desk.project.launch.timeout_s, 4 * judge.facts.command_s + _ALLOWANCE_S)
    result, _ = desk.run_on(
        bench,
        name,
        RunKind.AUDIT,
        overlay,
        Purpose.VERIFICATION,
        who,
        timeout_s=timeout_s,
        variation=Variation(
            optimizer_steps=resume.steps,
            ends_by="witness",
            resume_from=str(kept),
            checkpoint=checkpoint if named else None,
        ),
    )
    return result


def _side(who: str) -> str:
    return "job as it is" if who == "reference" else "candidate"
