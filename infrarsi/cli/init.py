"""`infrarsi init`: draft infrarsi.yaml."""

from infrarsi.cli.options import HERE, Command, Entry, Force, Target


def init(
    target: Target = HERE,
    entry: Entry = None,
    command: Command = None,
    force: Force = False,
) -> None:
    """Read a training job, without running anything, and draft infrarsi.yaml for it."""
    from infrarsi.cli.console import Console, shown
    from infrarsi.cli.drafting import draft_job, existing, planned_lines
    from infrarsi.errors import UserError

    console = Console(verbose=True)
    known = existing(target) if target.exists() else None
    if known is not None and not force:
        raise UserError(
            "there is an infrarsi.yaml already",
            where=str(shown(known)),
            fix="add `--force` to draft it again (the old one is kept as infrarsi.yaml.bak)",
        )
    job = draft_job(target, entry=entry, command=command, force=force, console=console)
    for line in planned_lines(job):
        console.say(line)
    console.say(f"Read it through: {job.contract}. Then: `infrarsi optimize {shown(target)}`.")
