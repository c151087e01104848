"""`infrarsi report`: print a run's report."""

from pathlib import Path

from infrarsi.cli.options import Out, RunDir

_JOURNAL = "journal.jsonl"


def report(run: RunDir = None, out: Out = None) -> None:
    """Print the report of a run: verdicts, the recommended change, what it cost."""
    folder = run or max((out or Path(".infrarsi") / "runs").glob(f"*/{_JOURNAL}"), default=None)
    folder = folder.parent if folder and folder.name == _JOURNAL else folder
    path = folder / "REPORT.md" if folder else None
    if path and path.is_file():
        print(path.read_text(encoding="utf-8"), end="")
    else:
        print(_made(run, out), end="")


def _made(run: Path | None, out: Path | None) -> str:
    """The report of a run that was killed before it wrote one; raises UserError without a run."""
    from infrarsi.cli.workflow import promoted_diff
    from infrarsi.report import report as render
    from infrarsi.runs import DEFAULT_ROOT, RunDirectory, RunState, read

    folder = RunDirectory.open(run) if run else RunDirectory.newest(out or DEFAULT_ROOT)
    state = RunState.of(read(folder.journal).events)
    return render(state, patch=promoted_diff(state))
