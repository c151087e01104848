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


def adopt(
    run: RunDirectory,
    console: Console,
    *,
    consent: Consent,
    branch: str | None,
    project: Path | None = None,
) -> None:
    """Show the change of a run and write it if the user consents.

    The folder that is written into is named first: that of the run's project, or `project`. Where
    nothing is written, it says how to do it later. Raises UserError where the user has asked for a
    change to be written and the run has none, or where it is not plain which folder is meant.
    """
    state = RunState.of(read(run.journal).events)
    if state.finished is None or state.promoted_id is None:
        _nothing_to_apply(run, state, console, consent)
        return
    change, policy = _change(run, state, project)
    if change.is_applied and not branch:
        _say_applied(run, change, console)
        return
    files = (*change.there, *change.files) if branch else change.files
    console.say(f"The change, to {', '.join(f.path for f in files)} in {_folder(change.root)}:\n")
    console.show(change.diff.rstrip("\n") or "(no text changes)")
    for refusal in change.refusals:
        console.say(f"The code is left alone: {refusal}.")
    if change.refusals:
        console.say("Only infrarsi_optimized.sh and infrarsi.patch are written.")
    named = f" --project {shown(project)}" if project else ""
    later = f"Write it with `infrarsi apply --write {shown(run.path)}{named}`."
    if policy == "never" and consent in (Consent.YES, Consent.ASK):
        console.say(f"Nothing was changed: infrarsi.yaml says `policy: {{apply: never}}`. {later}")
    elif _consents(consent, f"nothing was changed. {later}"):
        _write(run, console, change, branch)
    else:
        console.say(f"Nothing was changed. {later}")


def _nothing_to_apply(
    run: RunDirectory, state: RunState, console: Console, consent: Consent
) -> None:
    """Say that a run has no change; an error where one was to be written."""
    if state.finished is None:
        what = "this run is not finished, so nothing of it is verified"
        fix = f"complete it with `infrarsi finish {shown(run.path)}`"
    else:
        what = "this run recommends nothing, so there is nothing to apply"
        fix = f"read why with `infrarsi report {shown(run.path)}`"
    if consent is Consent.WRITE:
        raise UserError(what, where=str(shown(run.path)), fix=fix)
    console.say(f"{what[0].upper()}{what[1:]}; {fix}.")


def _say_applied(run: RunDirectory, change: "Change", console: Console) -> None:
    names = ", ".join(file.path for file in change.there)
    if change.refusals:
        console.say(f"{names} in {_folder(change.root)} are there already; nothing was changed.")
        for refusal in change.refusals:
            console.say(f"The code is left alone: {refusal}.")
        console.say("Apply the code by hand: `patch -p1 < infrarsi.patch`.")
        return
    console.say(f"Already applied by this run; nothing to do: {names} in {_folder(change.root)}.")
    console.say(f"Report: {shown(run.report)}")


def _folder(root: Path) -> str:
    """A folder by its name from here, and by its whole path where that is not the same."""
    near = shown(root)
    return f"{near} ({root})" if near != root else str(root)


def _consents(consent: Consent, otherwise: str) -> bool:
    if consent is Consent.ASK:
        return ask("Apply this change? [y/N] ", on_interrupt=otherwise) in ("y", "yes")
    return consent is not Consent.NONE


def _change(run: RunDirectory, state: RunState, named: Path | None) -> "tuple[Change, str]":
    from infrarsi.cli.finding import project_of
    from infrarsi.contract import SnapshotRef
    from infrarsi.contract.files import load
    from infrarsi.workspace import Sources, digests, plan

    root, snapshot_root = project_of(run.path, state.started, named)
    project = load(run.contract).project
    snapshot = SnapshotRef(state.started["snapshot"], str(snapshot_root), root.name)
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
