"""One campaign from the command line: opened, run by stages, written out, closed."""

import json
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infrarsi import __version__
from infrarsi.campaign import Campaign, Start
from infrarsi.cli.console import Console, shown
from infrarsi.cli.experience import insist_on_packs, keep
from infrarsi.cli.honoured import insist_on_files, insist_on_honoured
from infrarsi.cli.known import insist_on_known
from infrarsi.cli.options import OnInterrupt, Preferences
from infrarsi.cli.preferences import with_preferences
from infrarsi.contract import CONTRACT_KEYS, Project
from infrarsi.contract.files import LoadedProject, dump, load
from infrarsi.contract.wording import why_stopped
from infrarsi.errors import Interrupted, UserError
from infrarsi.runs import DEFAULT_ROOT, Journal, RunDirectory, RunState, read, write_atomically


@dataclass(frozen=True)
class Job:
    """A project on disk: its folder, its file, and the project with nothing left out."""

    root: Path
    file: LoadedProject
    project: Project

    @property
    def contract(self) -> Path:
        """The file that says it."""
        return self.file.path


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()


@dataclass(frozen=True)
class Opened:
    """A campaign that is ready to run."""

    job: Job
    run: RunDirectory
    campaign: Campaign
    console: Console
    acknowledge: Callable[[], None]

    @property
    def state(self) -> RunState:
        """The state as the journal has it now."""
        return self.campaign.state


def settled(job: Job, preferences: Preferences, *, is_new: bool) -> Project:
    """The project as it will run; raises UserError for what cannot be honoured or is missing."""
    project = with_preferences(job.project, preferences)
    insist_on_honoured(project, job.file)
    if is_new:  # a resumed run works on the snapshot that it took
        insist_on_files(job.file)
        insist_on_known(job.file)
        insist_on_packs(project, job.file)
    return project


@contextmanager
def opened(
    job: Job,
    preferences: Preferences,
    console: Console,
    *,
    out: Path | None = None,
    resume: RunDirectory | None = None,
) -> Iterator[Opened]:
    """A campaign in a new run directory, or in the one to resume; everything closed afterwards.

    The report is written whatever happens, as far as the run got; a run that never began leaves no
    directory.
    """
    project = settled(job, preferences, is_new=resume is None)
    clock = SystemClock()
    root = (out or DEFAULT_ROOT).resolve()
    run = resume or RunDirectory.create(root, now=clock.now())
    run.lock()
    try:
        if resume is not None:
            _same_contract(run, project)
        else:
            write_atomically(run.contract, dump(project))
        journal = Journal(run.journal, clock)
        console.log_to(run.log)
        console.say(f"Run directory: {shown(run.path)}")
        if journal.note:
            console.say(journal.note)
        if resume is not None:
            _say_what_differs(run, job.root, console)
        try:
            yield from _with_ray(job, project, run, journal, console, clock)
        except UserError as error:
            _own_paths(error, run, job.root)
            if journal.events:
                journal.append("failed", what=error.what, where=error.where, fix=error.fix)
            raise
        finally:
            journal.close()
            if journal.events:
                state = RunState.of(journal.events)
                write_outputs(run, state)
                keep(state, console.say)
            shutil.rmtree(run.path / "cache", ignore_errors=True)
    finally:
        run.unlock()
        console.close()
        run.remove_if_empty()


def _own_paths(error: UserError, run: RunDirectory, root: Path) -> None:
    """Name a file of a copy that is gone by the user's own file."""
    copy = re.compile(rf"{re.escape(str(run.path))}/receipts/[^/\s]+/work/{re.escape(root.name)}")
    error.what = copy.sub(str(root).replace("\\", r"\\"), error.what)
    error.args = (error.what,)


def _with_ray(
    job: Job,
    project: Project,
    run: RunDirectory,
    journal: Journal,
    console: Console,
    clock: SystemClock,
) -> Iterator[Opened]:
    from infrarsi.cli.assembly import Assembly

    with Assembly(job.root, project, run, console, clock) as assembly:
        campaign = Campaign(project, run, journal, assembly.parts, _witness_key(run))
        if campaign.state.started:
            campaign.resume()
        else:
            campaign.begin(
                Start(str(job.root), assembly.tree_digest(), tuple(sys.argv[1:]), __version__)
            )
        try:
            yield Opened(job, run, campaign, console, assembly.interrupts.acknowledge)
        except (Interrupted, KeyboardInterrupt):
            campaign.note_interrupt("outside the search")
            folder, state = shown(run.path), campaign.state
            found = state.ranking or any(line.trial.same_job for line in state.trials)
            raise Interrupted(
                f"continue with `infrarsi run --resume {folder}`"
                + (f", or verify what was found with `infrarsi finish {folder}`" if found else "")
            ) from None


def _say_what_differs(run: RunDirectory, root: Path, console: Console) -> None:
    """A resumed run goes on with the copy that it took; say where the user's files differ."""
    from infrarsi.contract import SnapshotRef
    from infrarsi.workspace import verify_unchanged

    if not (run.store / "snapshot" / "manifest.json").is_file():
        return
    snapshot = SnapshotRef("", str(run.store / "snapshot"), root.name)
    differing = [p for p in verify_unchanged(root, snapshot) if not p.startswith("infrarsi")]
    if differing:
        more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
        console.say(
            "This run goes on with the copy of your files that it began with; changed since: "
            f"{', '.join(differing[:5])}{more}. For the files as they are, start a new run."
        )


def _same_contract(run: RunDirectory, project: Project) -> None:
    started = RunState.of(read(run.journal).events).started
    if not started or started["contract_hash"] == project.contract_hash():
        return
    before = load(run.contract).project
    changed = [key for key in CONTRACT_KEYS if getattr(before, key) != getattr(project, key)]
    raise UserError(
        f"the contract is not the one that this run began with: {', '.join(changed)} changed",
        where=str(shown(run.path)),
        fix=f"put back what {shown(run.contract)} says, or start a new run",
    )


def is_complete(run: RunDirectory) -> bool:
    """Whether a run has come to its end."""
    return RunState.of(read(run.journal).events).finished is not None


def _witness_key(run: RunDirectory) -> str:
    path = run.path / ".key"
    if not path.exists():
        write_atomically(path, secrets.token_hex(16))
        path.chmod(0o600)
    return path.read_text()


def write_outputs(run: RunDirectory, state: RunState) -> None:
    """result.json, REPORT.md and pack.yaml as far as the journal goes."""
    from infrarsi.experience import as_yaml, pack_of
    from infrarsi.report import report, result

    write_atomically(run.result, json.dumps(result(state), indent=2) + "\n")
    write_atomically(run.report, report(state, patch=promoted_diff(state), run=command_name(run)))
    if state.reference:
        write_atomically(run.pack, as_yaml(pack_of(state)))


def command_name(run: RunDirectory) -> str:
    """How a command that is read later, in whatever folder, names a run.

    A run where runs are looked for goes by its name, another one by its whole path.
    """
    is_usual = run.path.parts[-3:-1] == DEFAULT_ROOT.parts
    return run.run_id if is_usual else str(run.path)


def promoted_diff(state: RunState) -> str:
    """The promoted candidate's unified diff, "" where there is none."""
    candidate = state.candidates.get(state.promoted_id or "")
    return candidate.patch.diff if candidate and candidate.patch else ""


def conduct(opened_: Opened, *, on_interrupt: OnInterrupt, full_doctor: bool) -> str | None:
    """Reference, search and verification; returns the promoted candidate's id."""
    from infrarsi.report import noise_warning

    campaign = opened_.campaign
    warning = noise_warning(campaign.doctor(full=full_doctor).facts.step_log_sd)
    if warning:
        opened_.console.say(warning)
    campaign.prepare()
    if campaign.search() == "interrupt":
        if on_interrupt is OnInterrupt.STOP or not campaign.ranking():
            raise Interrupted
        campaign.end_search("interrupt")
        opened_.acknowledge()
        opened_.console.say("Now the best so far is verified; Ctrl-C once more ends all at once.")
    return campaign.verify()


def summary(state: RunState) -> str:
    """The last lines of a run for the terminal."""
    from infrarsi.report import planned_note

    promoted = state.promoted_id
    if promoted is None:
        return f"{_why_nothing(state)} Your setup stays as it is."
    entry = state.verified[promoted]
    confidence = f"{100 * state.started['confidence']:.0f} %"
    lines = [
        f"Verified: {entry['speedup']:.3f}x faster, between {entry['low']:.3f}x and "
        f"{entry['high']:.3f}x with {confidence} confidence, by "
        f"{state.candidates[promoted].describe()}."
    ]
    if entry.get("net_speedup") is not None:
        lines.append(
            f"Over the {state.started['planned_steps']} planned steps, one-off costs included: "
            f"{entry['net_speedup']:.3f}x."
        )
    note = planned_note(state.started, entry)
    if note:
        lines.append(note)
    return "\n".join(lines)


def _why_nothing(state: RunState) -> str:
    if state.verified:
        reasons = [
            f"{state.candidates[candidate_id].describe()}: {entry['reason']}."
            for candidate_id, entry in state.verified.items()
        ]
        return "\n".join(["Nothing is recommended.", *reasons])
    if not state.counted_trials:
        why = why_stopped(state.stopped_by or "", state.started["budget"])
        return f"Nothing was tried: {why}."
    return "No trial was the same job and faster than the job as it is."
