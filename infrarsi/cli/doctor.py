"""`infrarsi doctor`: measure the reference."""

from infrarsi.cli.options import HERE, Out, RayAddress, Target, Verbose


def doctor(
    target: Target = HERE,
    out: Out = None,
    ray_address: RayAddress = None,
    verbose: Verbose = False,
) -> None:
    """Run the job as it is several times: signals, coverage of the checks, noise."""
    from infrarsi.cli.console import Console
    from infrarsi.cli.drafting import load_job
    from infrarsi.cli.options import Preferences
    from infrarsi.cli.workflow import opened

    console = Console(verbose=verbose)
    job = load_job(target)
    preferences = Preferences(ray_address=ray_address)
    with opened(job, preferences, console, out=out) as open_:
        facts = open_.campaign.doctor().facts
        console.say(
            f"Smallest gain that {facts.max_pairs} pairs can tell from noise: "
            f"{100 * facts.resolvable_gain:.1f} %"
        )
        for check, why in facts.coverage.items():
            console.say(f"  {check}: {why}")
        prepared = open_.campaign.prepare()
        for recipe in prepared.recipes:
            console.say(f"  recipe {recipe.name}: {recipe.status}. {recipe.reason}")
