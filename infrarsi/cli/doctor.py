"""`infrarsi doctor`: measure the reference."""

from infrarsi.cli.options import HERE, Out, RayAddress, Target, Verbose


def doctor(
    target: Target = HERE,
    out: Out = None,
    ray_address: RayAddress = None,
    verbose: Verbose = False,
) -> None:
    """Run the job as it is several times: signals, coverage of the checks, noise."""
    from infrarsi.cli.console import Console, shown
    from infrarsi.cli.drafting import load_job
    from infrarsi.cli.options import Preferences
    from infrarsi.cli.workflow import opened

    console = Console(verbose=verbose)
    job = load_job(target)
    preferences = Preferences(ray_address=ray_address)
    with opened(job, preferences, console, out=out) as open_:
        facts = open_.campaign.doctor().facts
        prepared = open_.campaign.prepare()
    console.say(
        f"The smallest gain that {facts.max_pairs} pairs of runs can show: "
        f"{100 * facts.resolvable_gain:.1f} %."
    )
    console.say("Checks of whether a change leaves it the same job:")
    for check, why in facts.coverage.items():
        console.say(f"  {check:22s} {why if why == 'covered' else f'not covered: {why}'}")
    console.say("Code changes by recipe:")
    for recipe in prepared.recipes:
        status = recipe.status.replace("_", " ")
        console.say(f"  {recipe.name:22s} {status}{f': {recipe.reason}' if recipe.reason else ''}")
    console.say(f"Next: `infrarsi run --resume {shown(open_.run.path)}` goes on from here.")
