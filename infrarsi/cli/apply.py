"""`infrarsi apply`: show or write a run's verified change."""

from typing import Annotated

import typer

from infrarsi.cli import options as o


def apply(
    run: o.RunDir = None,
    write: Annotated[bool, typer.Option("--write", help="Write the change.")] = False,
    branch: o.Branch = None,
    project: o.ProjectDir = None,
    out: o.Out = None,
) -> None:
    """Show the change that a run verified; `--write` writes it into your files."""
    from infrarsi.cli.adoption import Consent, adopt
    from infrarsi.cli.console import Console
    from infrarsi.cli.finding import find_run

    folder = find_run(run, out)
    consent = Consent.WRITE if write or branch else Consent.NONE
    adopt(folder, Console(verbose=True), consent=consent, branch=branch, project=project)
