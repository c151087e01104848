"""Showing a run's verified change, and writing it once the user has agreed."""

from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.cli.console import Console, ask
from infrarsi.runs import RunDirectory, RunState, read

if TYPE_CHECKING:
    from infrarsi.workspace import Change


def adopt(
    run: RunDirectory,
    console: Console,
    *,
    yes: bool,
    asks: bool,
    dry_run: bool,
    branch: str | None,
) -> None:
    """Show the change of a run and, with `yes` or after asking, write it.

    Nothing is written for a dry run, or when nobody agreed; then it says how to do it later.
    """
    state = RunState.of(read(run.journal).events)
    if state.finished is None:
        console.say("This run is not finished: complete it with `infrarsi finish`.")
        return
    if state.promoted_id is None:
        console.say(f"There is nothing to apply. Report: {run.report}")
        return
    change, policy = _change(run, state)
    console.say(change.diff.rstrip("\n") or "(no text changes)")
    for refusal in change.refusals:
        console.say(f"The code is left alone: {refusal}.")
    later = f"Write it with `infrarsi apply --write {_shown(run.path)}`."
    if dry_run or policy == "never":
        console.say(later)
        return
    if asks and ask("Apply this change? [y/N] ") not in ("y", "yes"):
        console.say(f"Nothing was changed. {later}")
        return
    if not asks and not yes:
        console.say(f"Nothing was changed. {later}")
        return
    _write(run, console, change, branch)


def _change(run: RunDirectory, state: RunState) -> "tuple[Change, str]":
    from infrarsi.contract import SnapshotRef
    from infrarsi.contract.files import load
    from infrarsi.workspace import Sources, digests, plan

    project = load(run.contract).project
    root = Path(state.started["project_root"])
    snapshot = SnapshotRef(state.started["snapshot"], state.started["snapshot_root"], root.name)
    candidate = state.candidates[state.promoted_id or ""]
    change = plan(
        root,
        project,
        candidate,
        sources=Sources.of(snapshot),
        expected=digests(snapshot),
        run_id=run.run_id,
    )
    return change, project.policy.apply


def _write(run: RunDirectory, console: Console, change: "Change", branch: str | None) -> None:
    from infrarsi.cli.workflow import SystemClock, write_outputs
    from infrarsi.runs import Journal
    from infrarsi.workspace import write, write_on_branch

    run.lock()
    try:
        if branch:
            commit = write_on_branch(change, branch)
            console.say(f"Committed as {commit[:12]} on branch {branch}; your work tree is as is.")
        else:
            write(change)
            console.say(f"Wrote {', '.join(change.paths)} in {change.root}.")
        if change.refusals:
            console.say("Apply the code by hand: `patch -p1 < infrarsi.patch`.")
        journal = Journal(run.journal, SystemClock())
        journal.append("applied", files=list(change.paths), branch=branch)
        write_outputs(run, RunState.of(journal.events))
        journal.close()
    finally:
        run.unlock()
    console.say(f"Start the faster job with `bash {change.script}`. Report: {run.report}")


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
