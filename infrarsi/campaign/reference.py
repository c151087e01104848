"""The reference: the job as the user has it, run several times before anything is tried."""

from collections.abc import Sequence

from infrarsi.campaign.execution import Desk, Variation
from infrarsi.campaign.parts import Judge, Refused
from infrarsi.campaign.resumption import keeps_checkpoints
from infrarsi.campaign.user_tests import insist_on_reference
from infrarsi.contract import Candidate, ExecutionResult, Outcome, Purpose, RunKind
from infrarsi.contract.wording import counted, duration, spread, step_time
from infrarsi.errors import UserError
from infrarsi.runs import RunState

FULL_PLAN = (
    RunKind.TIMED,
    RunKind.AUDIT,
    RunKind.TIMED,
    RunKind.PERTURBED,
    RunKind.TIMED,
    RunKind.TIMED,
)
"""Four timed runs give two A/A pairs, enough for a first noise figure; see README."""
SHORT_PLAN = (RunKind.TIMED, RunKind.AUDIT, RunKind.TIMED, RunKind.PERTURBED)
"""With `--no-doctor`: the least that can be judged against."""
_PAIRS = (4, 24)  # of runs: what a clear gain needs, and the most that is spent


def measure_reference(desk: Desk, state: RunState, plan: Sequence[RunKind]) -> Judge:
    """Run the reference by `plan`, continuing what the journal has, and make the judge.

    Raises UserError when the job as the user has it does not run, does not train, or writes
    outside its copy.
    """
    overlay = desk.overlay(Candidate.of())
    if isinstance(overlay, Refused):
        raise UserError(
            f"the job cannot be started as it is: {overlay.reason}", where="infrarsi.yaml"
        )
    insist_on_reference(desk)
    done = [
        desk.receipt(e.execution_id)
        for e in state.executions
        if e.purpose is Purpose.REFERENCE
        and e.outcome is Outcome.OK
        and e.kind is not RunKind.PLAIN
    ]
    for result in done:
        _insist(desk, result)
    results = list(done)
    left = [] if state.reference else list(plan)
    for result in done:
        if result.kind in left:
            left.remove(result.kind)
    if left:
        desk.parts.say(f"Reference: {counted(len(left), 'run')} of the job as it is.", True)
        with desk.parts.bench() as bench:
            for position, kind in enumerate(left, start=1):
                where = f"run {position} of {len(left)}"
                desk.parts.status(f"  {where} is running ({_KINDS[kind]})")
                name = f"ref-{len(results) + 1:02d}-{kind}"
                keep = kind is RunKind.AUDIT and keeps_checkpoints(desk.project)
                result, measured = desk.run_on(
                    bench,
                    name,
                    kind,
                    overlay,
                    Purpose.REFERENCE,
                    "reference",
                    variation=Variation(keep_checkpoints=keep),
                )
                _insist(desk, result)
                results.append(result)
                desk.parts.say(
                    f"  {where}: {step_time(measured.step_time_s)}, "
                    f"{duration(result.command_s)} in all ({_KINDS[kind]})",
                    True,
                )
                if position == 1:
                    desk.parts.say(_time_ahead(desk, result.command_s, len(left) - 1), True)
    judge = desk.parts.judge(results)
    if not state.reference:
        _write_down(desk, judge)
    return judge


def _time_ahead(desk: Desk, each_s: float, left: int) -> str:
    """How long it all takes, at the length of the first run; pairs are told apart later."""
    budget = desk.project.search.budget
    search_s = budget.screens * each_s
    if budget.wall_hours is not None:
        search_s = min(search_s, 3600 * budget.wall_hours)
    low, high = (left * each_s + search_s + pairs * 2 * each_s for pairs in _PAIRS)
    return (
        f"  So about {duration(left * each_s)} more for these runs; with a whole search and its "
        f"verification {duration(low)} to {duration(high)} in all."
    )


def _insist(desk: Desk, result: ExecutionResult) -> None:
    outside = sorted({path for rank in result.ranks for path in rank.outside_writes})
    if outside:
        raise UserError(
            f"the job wrote outside its own copy: {', '.join(outside[:3])}",
            where=desk.project.launch.command,
            fix="name the flag or variable that moves it under `sinks:` in infrarsi.yaml",
        )
    if result.outcome is Outcome.OK and result.frozen_changed:
        raise UserError(
            f"the job changed files that every run reads: {', '.join(result.frozen_changed[:3])}",
            where=f"`{desk.project.launch.command}`",
            fix="name the flag or variable that moves what it writes under `sinks:` in "
            "infrarsi.yaml, or take the file out of `frozen:`",
        )
    if result.outcome is Outcome.OK:
        return
    log = desk.run.receipt(result.execution_id) / "stdout.log"
    tail = "\n".join(f"    | {line}" for line in result.log_tail.strip().splitlines()[-12:])
    raise UserError(
        f"the job as it is {_HOW.get(result.outcome, 'failed')}: {result.reason}"
        + (f"\n  the end of its output (all of it: {log}):\n{tail}" if tail else ""),
        where=f"`{desk.project.launch.command}`",
        fix=_FIXES.get(result.outcome, "make the command run by itself, then start again"),
    )


_KINDS = {
    RunKind.TIMED: "timed",
    RunKind.AUDIT: "looked at closely",
    RunKind.PERTURBED: "weights moved by one rounding step",
}
_HOW = {
    Outcome.TIMEOUT: "was not done in time",
    Outcome.OOM_GPU: "ran out of GPU memory",
    Outcome.OOM_HOST: "ran out of memory",
    Outcome.NUMERIC: "diverges",
}
_FIXES = {
    Outcome.TIMEOUT: "if the job trains, raise `launch.start_timeout_s` or `launch.timeout_s`; "
    "if it has no torch optimizer, it cannot be optimized here",
    Outcome.OOM_HOST: "free memory on this machine, or lower the job's own size",
    Outcome.OOM_GPU: "free the GPU, or lower the job's own size",
    Outcome.NUMERIC: "the reference itself diverges: repair it first",
}


def _write_down(desk: Desk, judge: Judge) -> None:
    facts = judge.facts
    coverage = dict(facts.coverage)
    if desk.project.verify.user_tests:
        coverage["user_tests"] = "covered"  # they passed on the code as it is
    desk.journal.append(
        "reference_done",
        step_time_s=facts.step_time_s,
        step_log_sd=facts.step_log_sd,
        one_off_s=facts.one_off_s,
        command_s=facts.command_s,
        peak_bytes=facts.peak_bytes,
        samples_per_update=facts.samples_per_update,
        elements_per_update=dict(facts.elements_per_update),
        resolvable_gain=facts.resolvable_gain,
        max_pairs=facts.max_pairs,
        coverage=coverage,
        phases_s=dict(facts.phases_s),
        mfu=facts.mfu,
        num_parameters=facts.num_parameters,
        versions=dict(facts.versions),
    )
    covered = sum(why == "covered" for why in coverage.values())
    desk.parts.say(
        f"  The job takes {step_time(facts.step_time_s)}; runs of the same job differ by "
        f"{spread(facts.step_log_sd)}.",
        True,
    )
    desk.parts.say(
        f"  {covered} of {len(coverage)} checks can judge whether a change leaves it the same job.",
        True,
    )
