"""`infrarsi optimize`: all five stages."""

from typing import Annotated

import typer

from infrarsi.cli import options as o


def optimize(
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
    entry: o.Entry = None,
    command: o.Command = None,
    force: o.Force = False,
    no_doctor: o.NoDoctor = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the change at the end, write nothing.")
    ] = False,
    branch: o.Branch = None,
    yes: o.Yes = False,
    interactive: o.Interactive = None,
    on_interrupt: o.Interrupt = o.OnInterrupt.VERIFY,
    out: o.Out = None,
    ray_address: o.RayAddress = None,
    verbose: o.Verbose = False,
) -> None:
    """Draft, measure, search, verify and apply: the same training job, faster."""
    from infrarsi.cli.adoption import Consent, adopt
    from infrarsi.cli.console import Console, is_terminal
    from infrarsi.cli.drafting import confirm_plan, draft_job
    from infrarsi.cli.preferences import check
    from infrarsi.cli.workflow import conduct, opened, settled, summary

    console = Console(verbose=verbose)
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
    job = draft_job(target, entry=entry, command=command, force=force, console=console)
    asks = (is_terminal() if interactive is None else interactive) and not yes
    confirm_plan(job, settled(job, preferences, is_new=True), console, asks=asks)
    with opened(job, preferences, console, out=out) as open_:
        conduct(open_, on_interrupt=on_interrupt, full_doctor=not no_doctor)
        console.say(summary(open_.state))
    consent = Consent.of(yes=yes, asks=asks) if not dry_run else Consent.NONE
    adopt(open_.run, console, consent=consent, branch=branch)
