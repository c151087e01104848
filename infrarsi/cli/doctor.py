"""`infrarsi doctor`: measure the reference."""

from typing import TYPE_CHECKING

from infrarsi.cli.options import HERE, Baseline, Experience, Out, RayAddress, Target, Verbose

if TYPE_CHECKING:
    from infrarsi.cli.baseline import LoadedBaseline
    from infrarsi.cli.console import Console
    from infrarsi.cli.workflow import Opened


def doctor(
    target: Target = HERE,
    out: Out = None,
    ray_address: RayAddress = None,
    experience: Experience = None,
    baseline: Baseline = None,
    verbose: Verbose = False,
) -> None:
    """Run the job as it is several times: signals, coverage of the checks, noise."""
    from infrarsi.cli.baseline import load_baseline
    from infrarsi.cli.console import Console, shown
    from infrarsi.cli.covering import coverage_lines
    from infrarsi.cli.drafting import load_job
    from infrarsi.cli.experience import coverage_line, matched_for, packs_to_use
    from infrarsi.cli.options import Preferences
    from infrarsi.cli.preferences import with_preferences
    from infrarsi.cli.workflow import opened
    from infrarsi.report import noise_warning, recipe_rows, repeated_notes

    console = Console(verbose=verbose)
    job = load_job(target)
    steps = job.project.workload.optimizer_steps
    known = load_baseline(baseline, optimizer_steps=steps) if baseline else None
    preferences = Preferences(ray_address=ray_address, experience=experience)
    with opened(job, preferences, console, out=out) as open_:
        facts = open_.campaign.doctor().facts
        prepared = open_.campaign.prepare()
    console.say(
        f"The smallest gain that {facts.max_pairs} pairs of runs can show: "
        f"{100 * facts.resolvable_gain:.1f} %."
    )
    warning = noise_warning(facts.step_log_sd)
    if warning:
        console.say(warning)
    for line in coverage_lines(open_.state.reference["coverage"], job.project):
        console.say(line)
    packs = packs_to_use(with_preferences(job.project, preferences), console.say)
    if packs:
        console.say(coverage_line(matched_for(open_.run, prepared.space, packs), prepared.space))
    else:
        console.say("Experience: none; there are no packs to start from.")
    _say_what_the_log_says(open_, console)
    console.say("Code changes by recipe:")
    recipes = [vars(recipe) for recipe in prepared.recipes]
    for name, status, why in recipe_rows(recipes):
        console.say(f"  {name:22s} {status}{f': {why}' if why else ''}")
    for note in repeated_notes(recipes):
        console.say(f"  {note.lstrip(chr(92))}")
    console.say(f"Next: `infrarsi run --resume {shown(open_.run.path)}` goes on from here.")
    if known is not None:
        _held_against(known, open_, console)


def _say_what_the_log_says(open_: "Opened", console: "Console") -> None:
    """Print the figures of the first timed run's log beside those of its record."""
    from infrarsi.cli.logged import logged_lines
    from infrarsi.cli.receipts import reference_results
    from infrarsi.contract import RunKind
    from infrarsi.node.figures import figures
    from infrarsi.verify.logged import logged_beside_record

    results = reference_results(open_.run, open_.state)
    timed = next((result for result in results if result.kind is RunKind.TIMED), None)
    if timed is None:
        return
    found = figures(open_.run.receipt(timed.execution_id) / "stdout.log")
    tokens = open_.job.project.workload.tokens_per_update
    for line in logged_lines(logged_beside_record(found, timed, tokens), found.restarts):
        console.say(line)


def _held_against(known: "LoadedBaseline", open_: "Opened", console: "Console") -> None:
    """Print the reference beside the baseline; raises UserError where it is off."""
    from infrarsi.cli.baseline import figures_of, insist, table
    from infrarsi.cli.receipts import reference_results
    from infrarsi.verify import reference_evidence

    evidence = reference_evidence(reference_results(open_.run, open_.state))
    workload = open_.job.project.workload
    figures = figures_of(known.figures, evidence, workload.tokens_per_update)
    console.say("The job as it runs here against the baseline:")
    console.show(table(figures))
    insist(figures, known)
