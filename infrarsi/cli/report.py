"""`infrarsi report`: print a run's report."""

from pathlib import Path

from infrarsi.cli.options import Out, RunDir


def report(run: RunDir = None, out: Out = None) -> None:
    """Print the report of a run: verdicts, the recommended change, what it cost."""
    from infrarsi.errors import UserError

    folder = run or _newest(out or Path(".infrarsi") / "runs")
    path = folder / "REPORT.md"
    if not path.is_file():
        raise UserError(
            "this run has no report",
            where=str(folder),
            fix="name a folder under .infrarsi/runs, or complete it with `infrarsi finish`",
        )
    print(path.read_text(encoding="utf-8"), end="")


def _newest(root: Path) -> Path:
    from infrarsi.errors import UserError

    runs = sorted(p.parent for p in root.glob("*/journal.jsonl")) if root.is_dir() else []
    if not runs:
        raise UserError(
            "there is no run here", where=str(root), fix="start one with `infrarsi optimize`"
        )
    return runs[-1]
