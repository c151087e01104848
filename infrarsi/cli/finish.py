"""`infrarsi finish`: complete a run that was cut off."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infrarsi.cli import options as o

if TYPE_CHECKING:
    from infrarsi.runs import RunState


def finish(
    run: o.RunDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be verified.")
    ] = False,
    branch: o.Branch = None,
    yes: o.Yes = False,
    out: o.Out = None,
    ray_address: o.RayAddress = None,
    verbose: o.Verbose = False,
) -> None:
    """Verify the best candidates of a run that was killed or cut off, and adopt the winner."""
    from infrarsi.cli.adoption import Consent, adopt
    from infrarsi.cli.console import Console, is_terminal
    from infrarsi.cli.drafting import job_of_run
    from infrarsi.cli.workflow import opened, summary
    from infrarsi.runs import DEFAULT_ROOT, RunDirectory, RunState, read

    console = Console(verbose=verbose)
    folder = RunDirectory.open(run) if run else RunDirectory.newest(out or Path(DEFAULT_ROOT))
    job = job_of_run(folder)
    state = RunState.of(read(folder.journal).events)
    if dry_run:
        console.say(_plan(state))
        return
    if state.finished is None:
        preferences = o.Preferences(ray_address=ray_address)
        with opened(job, preferences, console, resume=folder) as open_:
            open_.campaign.doctor()
            open_.campaign.end_search("cut_off")
            open_.campaign.verify()
            state = open_.state
    console.say(summary(state))
    adopt(folder, console, consent=Consent.of(yes=yes, asks=is_terminal()), branch=branch)


def _plan(state: "RunState") -> str:
    if state.finished is not None:
        return "This run is complete; print it with `infrarsi report`."
    good = [t for t in state.trials if t.trial.same_job and t.trial.step_time_s]
    best = sorted(good, key=lambda t: t.trial.step_time_s or 0.0)[:3]
    if not best:
        return "No finished trial of this run is the same job; there is nothing to verify."
    lines = ["Would verify against the reference, best first:"]
    lines += [f"  {state.candidates[t.candidate_id].describe()}" for t in best]
    return "\n".join(lines)
