"""Showing a run's verified change, and writing it once the user has agreed."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.cli.console import Console, ask, shown
from infrarsi.errors import UserError
from infrarsi.runs import RunDirectory, RunState, read

if TYPE_CHECKING:
    from infrarsi.workspace import Change


class Consent(StrEnum):
    """Whether the change that is shown is also written; `policy` binds the first two."""

    YES = "yes"  # the user said `--yes` before there was a change
    ASK = "ask"
    WRITE = "write"  # the user has asked for it in so many words
    NONE = "none"

    @classmethod
    def of(cls, *, yes: bool, asks: bool) -> "Consent":
        """What `--yes` and a terminal amount to."""
        return cls.YES if yes else cls.ASK if asks else cls.NONE


def adopt(run: RunDirectory, console: Console, *, consent: Consent, branch: str | None) -> None:
    """Show the change of a run and write it if the user consents.

    Where nothing is written, it says how to do it later.
    """
    state = RunState.of(read(run.journal).events)
    if state.finished is None:
        console.say(
            f"This run is not finished: complete it with `infrarsi finish {shown(run.path)}`."
        )
        return
    if state.promoted_id is None:
        console.say(f"There is nothing to apply. Report: {shown(run.report)}")
        return
    change, policy = _change(run, state)
    console.say("The change:\n")
    console.say(change.diff.rstrip("\n") or "(no text changes)")
    for refusal in change.refusals:
        console.say(f"The code is left alone: {refusal}.")
    if change.refusals:
        console.say("Only infrarsi_optimized.sh and infrarsi.patch are written.")
    later = f"Write it with `infrarsi apply --write {shown(run.path)}`."
    if policy == "never" and consent in (Consent.YES, Consent.ASK):
        console.say(f"Nothing was changed: infrarsi.yaml says `policy: {{apply: never}}`. {later}")
    elif _consents(consent, f"nothing was changed. {later}"):
        _write(run, console, change, branch)
    else:
        console.say(f"Nothing was changed. {later}")


def _consents(consent: Consent, otherwise: str) -> bool:
    if consent is Consent.ASK:
        return ask("Apply this change? [y/N] ", on_interrupt=otherwise) in ("y", "yes")
    return consent is not Consent.NONE


def _change(run: RunDirectory, state: RunState) -> "tuple[Change, str]":
    from infrarsi.contract import SnapshotRef
    from infrarsi.contract.files import load
    from infrarsi.workspace import Sources, digests, plan

    project = load(run.contract).project
    root = Path(state.started["project_root"])
    if not root.is_dir():
        raise UserError(
            "the project of this run is not there any more",
            where=str(root),
            fix=f"put it back; the change itself is in {shown(run.report)}",
        )
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
            console.say(f"Wrote {', '.join(change.paths)} in {shown(change.root)}.")
        if change.refusals:
            console.say("Apply the code by hand: `patch -p1 < infrarsi.patch`.")
        journal = Journal(run.journal, SystemClock())
        journal.append("applied", files=list(change.paths), branch=branch)
        write_outputs(run, RunState.of(journal.events))
        journal.close()
    finally:
        run.unlock()
    script = shown(change.root / change.script)
    where = f"`bash {script}`" + (f" on branch {branch}" if branch else "")
    console.say(f"Start the faster job with {where}. Report: {shown(run.report)}")
