"""`infrarsi finish`: complete a run that was cut off."""

from typing import TYPE_CHECKING, Annotated

import typer

from infrarsi.cli import options as o
from infrarsi.contract.wording import counted

if TYPE_CHECKING:
    from infrarsi.runs import RunDirectory, RunState, TrialLine


def finish(
    run: o.RunDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be verified.")
    ] = False,
    branch: o.Branch = None,
    yes: o.Yes = False,
    project: o.ProjectDir = None,
    out: o.Out = None,
    ray_address: o.RayAddress = None,
    verbose: o.Verbose = False,
) -> None:
    """Verify the best candidates of a run that was killed or cut off, and adopt the winner."""
    from infrarsi.cli.adoption import Consent, adopt
    from infrarsi.cli.console import Console, is_terminal
    from infrarsi.cli.drafting import job_of_run
    from infrarsi.cli.finding import find_run
    from infrarsi.cli.workflow import opened, summary
    from infrarsi.runs import RunState, read

    console = Console(verbose=verbose)
    folder = find_run(run, out)
    state = RunState.of(read(folder.journal).events)
    if not state.started:
        dry_run = False  # there is nothing to plan: the error says so
    elif state.finished is None and not (state.ranking or _best(state)):
        dry_run = True
    job = job_of_run(folder, project) if state.finished is None and not dry_run else None
    if dry_run:
        console.say(_plan(state, folder))
        return
    if job is not None:
        preferences = o.Preferences(ray_address=ray_address)
        with opened(job, preferences, console, resume=folder) as open_:
            open_.campaign.doctor()
            open_.campaign.end_search("cut_off")
            open_.campaign.verify()
            state = open_.state
    console.say(summary(state))
    consent = Consent.of(yes=yes, asks=is_terminal())
    adopt(folder, console, consent=consent, branch=branch, project=project)


def _best(state: "RunState") -> "list[TrialLine]":
    """The fastest trials that are the same job, faster than the reference where that is known."""
    known = state.reference.get("step_time_s") or float("inf")
    good = [t for t in state.trials if t.trial.same_job and (t.trial.step_time_s or known) < known]
    return sorted(good, key=lambda t: t.trial.step_time_s or 0.0)[:3]


def _plan(state: "RunState", run: "RunDirectory") -> str:
    from infrarsi.cli.console import shown

    if state.finished is not None:
        return f"This run is complete; print it with `infrarsi report {shown(run.path)}`."
    best = _best(state)
    if not best:
        tried = counted(state.counted_trials, "trial")
        said = (
            f"{tried} so far, none faster and the same job"
            if state.counted_trials
            else ("nothing was tried yet")
        )
        return (
            f"There is nothing to verify: {said}. Go on with `infrarsi run --resume "
            f"{shown(run.path)}`."
        )
    lines = ["Would verify against the reference, best first:"]
    lines += [f"  {state.candidates[t.candidate_id].describe()}" for t in best]
    return "\n".join(lines)
