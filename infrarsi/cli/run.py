"""`infrarsi run`: search and verify with an existing infrarsi.yaml."""

from pathlib import Path
from typing import Annotated

import typer

from infrarsi.cli import options as o


def run(
    target: o.Target = o.HERE,
    llm: o.Llm = None,
    screens: o.Screens = None,
    max_wallclock: o.WallClock = None,
    gpu_hours: o.GpuHours = None,
    target_speedup: o.TargetSpeedup = None,
    tolerance: o.Tolerance = None,
    searcher: o.Searcher = None,
    seed: o.Seed = None,
    experience: o.Experience = None,
    on_interrupt: o.Interrupt = o.OnInterrupt.VERIFY,
    no_doctor: o.NoDoctor = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="[RUN]", help="Continue this run, or the newest; its costs count."
        ),
    ] = None,
    out: o.Out = None,
    ray_address: o.RayAddress = None,
    verbose: o.Verbose = False,
) -> None:
    """Reference, search and verification; nothing of yours is changed."""
    from infrarsi.cli.console import Console, shown
    from infrarsi.cli.drafting import job_to_resume, load_job
    from infrarsi.cli.finding import find_run
    from infrarsi.cli.preferences import check
    from infrarsi.cli.workflow import conduct, is_complete, opened, summary

    console = Console(verbose=verbose)
    resumed = find_run(resume, out) if resume else None
    preferences = o.Preferences(
        llm,
        screens,
        o.hours(max_wallclock),
        gpu_hours,
        target_speedup,
        tolerance,
        searcher,
        seed,
        ray_address,
        experience,
    )
    check(preferences)
    if resumed is not None and is_complete(resumed):
        console.say(
            f"This run is complete: print it with `infrarsi report {shown(resumed.path)}`, "
            "or start a new one."
        )
        return
    job = job_to_resume(resumed, target) if resumed else load_job(target)
    with opened(job, preferences, console, out=out, resume=resumed) as open_:
        conduct(open_, on_interrupt=on_interrupt, full_doctor=not no_doctor)
        state = open_.state
    console.say(summary(state))
    console.say(f"Report: {shown(open_.run.report)}")
    if state.promoted_id:
        folder = shown(open_.run.path)
        console.say(
            f"Show the change with `infrarsi apply {folder}`, write it with "
            f"`infrarsi apply --write {folder}`."
        )
