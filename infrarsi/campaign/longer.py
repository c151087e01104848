"""The winner's longer confirmation: the same job still, over more steps than a trial has."""

import re
from dataclasses import dataclass

from infrarsi.campaign.execution import Desk, Variation
from infrarsi.campaign.parts import Judge, PairTimes
from infrarsi.contract import (
    Candidate,
    ExecutionResult,
    Outcome,
    Overlay,
    Purpose,
    RunKind,
    Status,
    Verdict,
)
from infrarsi.contract.wording import counted
from infrarsi.ports import Bench

LEAST_STEPS = 100
FACTOR = 4
_SHARE = 2.0  # of the time that the pairs took
_ALLOWANCE_S = 300.0


@dataclass(frozen=True)
class Longer:
    """What the longer run showed; `verdict` is there where it could be judged.

    `speedup` is that of one pair of runs: shown beside the verified figure, never in its place.
    """

    status: Status
    reason: str
    steps: int = 0
    speedup: float | None = None
    reference_step_s: float | None = None
    candidate_step_s: float | None = None
    verdict: Verdict | None = None


def confirm(
    desk: Desk,
    judge: Judge,
    bench: Bench,
    candidate: Candidate,
    overlays: tuple[Overlay, Overlay],
    pairs: list[PairTimes],
) -> Longer:
    """One longer run each of the reference and the candidate; writes the journal's line.

    `overlays` are those of the reference and of the candidate. What ran before is not repeated, and
    the reference's run serves every candidate.
    """
    found = _confirm(desk, judge, bench, candidate, overlays, pairs)
    desk.journal.append(
        "long_run",
        candidate_id=candidate.id,
        status=found.status,
        reason=found.reason,
        steps=found.steps,
        speedup=found.speedup,
        reference_step_s=found.reference_step_s,
        candidate_step_s=found.candidate_step_s,
        verdict=found.verdict.to_dict() if found.verdict else None,
    )
    return found


def _confirm(
    desk: Desk,
    judge: Judge,
    bench: Bench,
    candidate: Candidate,
    overlays: tuple[Overlay, Overlay],
    pairs: list[PairTimes],
) -> Longer:
    steps = _steps(desk, judge, candidate, pairs)
    if isinstance(steps, str):
        return Longer(Status.NOT_COVERED, steps)
    results = [
        _run(desk, judge, bench, overlay, who, steps)
        for overlay, who in zip(overlays, ("reference", candidate.id), strict=True)
    ]
    reference, result = results
    if reference.outcome is not Outcome.OK:
        reason = f"the job as it is could not be run for {steps} steps: {reference.reason}"
        return Longer(Status.NOT_COVERED, reason, steps)
    verdict = judge.longer(reference, result, steps)
    a, b = (desk.parts.measure(each).step_time_s for each in results)
    speedup = a / b if a and b else None
    if not verdict.same_job:
        failed = "; ".join(f"{r.check}: {r.reason}" for r in verdict.failed)
        return Longer(Status.FAILED, failed, steps, speedup, a, b, verdict)
    told = f"the same job over {steps} steps, by {verdict.passed} checks"
    return Longer(Status.PASSED, told, steps, speedup, a, b, verdict)


def _steps(desk: Desk, judge: Judge, candidate: Candidate, pairs: list[PairTimes]) -> int | str:
    """How long the run is, or why there is none."""
    asked, workload = desk.project.verify.long_steps, desk.project.workload
    if asked == 0:
        return "switched off by `verify.long_steps: 0`"
    if workload.ends_by == "job":
        return f"the job ends by itself after {counted(workload.optimizer_steps, 'step')}"
    known = _reference_steps(desk)
    if known is not None:
        return known
    if asked != "auto":
        return min(asked, workload.planned_steps)
    wanted = max(FACTOR * workload.optimizer_steps, LEAST_STEPS)
    wanted = min(wanted, workload.planned_steps)
    spent_s = sum(
        line.command_s
        for line in desk.state.executions
        if line.execution_id.startswith(f"pair-{candidate.id}-")
    )
    one_off_s = 2 * judge.facts.one_off_s
    each_s = sum(p.reference_step_s + p.candidate_step_s for p in pairs) / max(1, len(pairs))
    affordable = int((_SHARE * spent_s - one_off_s) / each_s) if each_s else wanted
    steps = min(wanted, affordable)
    if steps <= workload.optimizer_steps:
        return (
            f"a run longer than {workload.optimizer_steps} steps would take more than twice the "
            "time of the pairs; name a number in `verify.long_steps` to have it all the same"
        )
    return steps


def _reference_steps(desk: Desk) -> int | None:
    """The length of the reference's longer run, where an earlier candidate had one."""
    for line in desk.state.executions:
        found = re.match(r"long-reference-(\d+)", line.execution_id)
        if found and line.outcome is Outcome.OK:
            return int(found.group(1))
    return None


def _run(
    desk: Desk, judge: Judge, bench: Bench, overlay: Overlay, who: str, steps: int
) -> ExecutionResult:
    name = f"long-{who}-{steps}"
    known = desk.earlier(name)
    if known is not None:
        return known
    side = "the job as it is" if who == "reference" else "the candidate"
    desk.parts.status(f"    the longer run of {steps} steps: {side} is running")
    times = max(1.0, steps / desk.project.workload.optimizer_steps)
    timeout_s = max(desk.project.launch.timeout_s, 4 * times * judge.facts.command_s + _ALLOWANCE_S)
    result, _ = desk.run_on(
        bench,
        name,
        RunKind.TIMED,
        overlay,
        Purpose.VERIFICATION,
        who,
        timeout_s=timeout_s,
        variation=Variation(optimizer_steps=steps),
    )
    return result
