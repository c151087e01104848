"""`infrarsi init`: draft infrarsi.yaml."""

from pathlib import Path

from infrarsi.cli.options import Command, Entry, Force, Target


def init(
    target: Target = Path(),
    entry: Entry = None,
    command: Command = None,
    force: Force = False,
) -> None:
    """Read a training job, without running anything, and draft infrarsi.yaml for it."""
    from infrarsi.cli.console import Console
    from infrarsi.cli.drafting import draft_job
    from infrarsi.errors import UserError

    console = Console(verbose=True)
    job, is_new = draft_job(target, entry=entry, command=command, force=force, console=console)
    if not is_new:
        raise UserError(
            "there is an infrarsi.yaml already",
            where=str(job.contract),
            fix="add `--force` to draft it again (the old one is kept as infrarsi.yaml.bak)",
        )
    console.say(f"Wrote {job.contract}. Next: `infrarsi doctor`, `infrarsi run`.")
