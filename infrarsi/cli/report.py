"""`infrarsi report`: print a run's report."""

from pathlib import Path

from infrarsi.cli.finding import JOURNAL, find_run, run_path
from infrarsi.cli.options import Out, Rejudge, RunDir


def report(run: RunDir = None, out: Out = None, rejudge: Rejudge = False) -> None:
    """Print the report of a run: verdicts, the recommended change, what it cost."""
    if rejudge:
        _judge_again(run, out)
        return
    folder = run_path(run, out)
    if folder and _is_up_to_date(folder):
        print((folder / "REPORT.md").read_text(encoding="utf-8"), end="")
    else:
        print(_made(folder or run, out), end="")


def _judge_again(run: Path | None, out: Path | None) -> None:
    """Print all verdicts of a run, then and now; raises UserError where they differ."""
    from infrarsi.cli.rejudge import insist_on_same, rejudge, shown
    from infrarsi.runs import RunState, read

    folder = find_run(run, out)
    events = read(folder.journal).events
    judged = rejudge(folder, events)
    print(shown(judged, RunState.of(events)))
    insist_on_same(judged, folder)


def _is_up_to_date(folder: Path) -> bool:
    """Whether nothing was journalled after the report was written, as by a run that goes on."""
    try:
        written = (folder / "REPORT.md").stat().st_mtime_ns
        return written >= (folder / JOURNAL).stat().st_mtime_ns
    except OSError:
        return False


def _made(run: Path | None, out: Path | None) -> str:
    """The report of a run that has none as of now; raises UserError without a run."""
    from infrarsi.cli.workflow import command_name, promoted_diff
    from infrarsi.report import report as render
    from infrarsi.runs import RunState, read

    folder = find_run(run, out)
    state = RunState.of(read(folder.journal).events)
    return render(state, patch=promoted_diff(state), run=command_name(folder))
