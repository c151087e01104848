"""One campaign from the command line: opened, run by stages, written out, closed."""

import json
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infrarsi import __version__
from infrarsi.campaign import Campaign, Start
from infrarsi.cli.console import Console
from infrarsi.cli.honoured import insist_on_honoured
from infrarsi.cli.options import OnInterrupt, Preferences
from infrarsi.contract import Project
from infrarsi.contract.files import dump
from infrarsi.errors import Interrupted, UserError
from infrarsi.runs import DEFAULT_ROOT, Journal, RunDirectory, RunState, write_atomically


@dataclass(frozen=True)
class Job:
    """A project on disk: its folder, its contract file and what that says."""

    root: Path
    contract: Path
    project: Project


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


def with_preferences(project: Project, preferences: Preferences) -> Project:
    """The project with the command line's values in place of the file's."""
    data = project.model_dump(by_alias=True)
    budget, search = data["search"]["budget"], data["search"]
    given: list[tuple[dict[str, Any], str, object]] = [
        (budget, "screens", preferences.screens),
        (budget, "wall_hours", preferences.wall_hours),
        (budget, "gpu_hours", preferences.gpu_hours),
        (budget, "target_speedup", preferences.target_speedup),
        (search, "searcher", preferences.searcher),
        (search, "seed", preferences.seed),
        (data["invariants"], "loss_tolerance", preferences.tolerance),
        (data["cluster"], "address", preferences.ray_address),
    ]
    for section, key, value in given:
        if value is not None:
            section[key] = value
    if preferences.llm is not None:
        backend, _, model = preferences.llm.partition(":")
        data["llm"].update(backend=_BACKEND_NAMES.get(backend, backend), model=model or None)
    return _validated(data)


_BACKEND_NAMES = {"claude": "claude-cli", "codex": "codex-cli"}


def _validated(data: dict[str, Any]) -> Project:
    from pydantic import ValidationError

    try:
        return Project.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"`{place}` is {first['input']!r}: {first['msg']}", where="command line"
        ) from None


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

    The report is written whatever happens, as far as the run got.
    """
    project = with_preferences(job.project, preferences)
    insist_on_honoured(project, str(job.contract))
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
        console.say(f"Run directory: {run.path}")
        if journal.note:
            console.say(journal.note)
        try:
            yield from _with_ray(job, project, run, journal, console, clock)
        finally:
            write_outputs(run, RunState.of(journal.events))
            journal.close()
            shutil.rmtree(run.path / "cache", ignore_errors=True)
    finally:
        run.unlock()
        console.close()


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
        campaign.begin(
            Start(str(job.root), assembly.tree_digest(), tuple(sys.argv[1:]), __version__)
        )
        try:
            yield Opened(job, run, campaign, console, assembly.interrupts.acknowledge)
        except (Interrupted, KeyboardInterrupt):
            campaign.note_interrupt("outside the search")
            raise


def _same_contract(run: RunDirectory, project: Project) -> None:
    started = RunState.of(Journal(run.journal, SystemClock()).events).started
    if started and started["contract_hash"] != project.contract_hash():
        raise UserError(
            "infrarsi.yaml's contract (launch, workload, knobs, constraints, sinks, allow, "
            "editable, frozen, invariants, requirements, verify) is not the one that this run "
            "began with",
            where=str(run.path),
            fix=f"put {run.contract} back in place, or start a new run",
        )


def _witness_key(run: RunDirectory) -> str:
    path = run.path / ".key"
    if not path.exists():
        write_atomically(path, secrets.token_hex(16))
        path.chmod(0o600)
    return path.read_text()


def write_outputs(run: RunDirectory, state: RunState) -> None:
    """result.json, REPORT.md and pack.yaml as far as the journal goes."""
    from infrarsi.experience import dumps, pack_of
    from infrarsi.report import report, result

    write_atomically(run.result, json.dumps(result(state), indent=2) + "\n")
    write_atomically(run.report, report(state, patch=promoted_diff(state)))
    if state.reference:
        write_atomically(run.pack, dumps(pack_of(state)))


def promoted_diff(state: RunState) -> str:
    """The promoted candidate's unified diff, "" where there is none."""
    candidate = state.candidates.get(state.promoted_id or "")
    return candidate.patch.diff if candidate and candidate.patch else ""


def conduct(opened_: Opened, *, on_interrupt: OnInterrupt, full_doctor: bool) -> str | None:
    """Reference, search and verification; returns the promoted candidate's id."""
    campaign = opened_.campaign
    campaign.doctor(full=full_doctor)
    campaign.prepare()
    stopped_by = campaign.search()
    if stopped_by == "interrupt":
        if on_interrupt is OnInterrupt.STOP:
            raise Interrupted
        opened_.acknowledge()
        opened_.console.say("Interrupted: verifying the best so far (Ctrl-C again: stop at once).")
    return campaign.verify()


def summary(state: RunState) -> str:
    """The last lines of a run for the terminal."""
    promoted = state.promoted_id
    if promoted is None:
        return "Nothing was faster beyond the noise and still the same job; your setup stays."
    entry = state.verified[promoted]
    lines = [
        f"Verified speed-up: {entry['speedup']:.3f}x "
        f"[{entry['low']:.3f}, {entry['high']:.3f}] over {len(state.pairs_of(promoted))} pairs: "
        f"{state.candidates[promoted].describe()}"
    ]
    if entry.get("net_speedup") is not None:
        lines.append(
            f"Over {state.started['planned_steps']} planned steps, one-off costs included: "
            f"{entry['net_speedup']:.3f}x"
        )
    return "\n".join(lines)
