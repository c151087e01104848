"""From what the user named to a project on disk: load infrarsi.yaml, or draft it."""

from collections.abc import Iterator
from pathlib import Path

from infrarsi.cli.console import Console, ask
from infrarsi.cli.workflow import Job
from infrarsi.contract import Project
from infrarsi.contract.files import load, write
from infrarsi.errors import Interrupted, UserError
from infrarsi.runs import RunDirectory, RunState, read

FILE_NAME = "infrarsi.yaml"


def draft_job(
    target: Path, *, entry: str | None, command: str | None, force: bool, console: Console
) -> tuple[Job, bool]:
    """The job behind a script, a folder or an infrarsi.yaml, and whether its file is new.

    An infrarsi.yaml that is there is used as it is, unless `force`; it must be of the same script.
    """
    if not target.exists():
        raise UserError(
            "there is no such file or folder",
            where=str(target),
            fix="name the launch script, its folder, or an infrarsi.yaml",
        )
    known = _existing(target)
    if known is not None and not force:
        job = _loaded(known)
        if entry or command:
            raise UserError(
                "`--entry` and `--command` only matter for a new draft, and there is one",
                where=str(known),
                fix="edit it, or add `--force` to draft it again",
            )
        _insist_same_script(job, target)
        console.say(f"Using {known}.")
        return job, False
    from infrarsi.draft import draft

    made = draft(target, entry=entry, command=command)
    write(made.path, made.project, made.comments)
    console.say(f"Drafted {made.path}.")
    for note in (*made.notes, *made.unknowns):
        console.say(f"  {note}")
    for question in made.questions:
        console.say(f"  check in {FILE_NAME}: {question.text} (now {question.default})")
    return _loaded(made.path), True


def load_job(target: Path) -> Job:
    """The job of an existing infrarsi.yaml; raises UserError where there is none."""
    known = _existing(target) if target.exists() else None
    if known is None:
        raise UserError(
            f"there is no {FILE_NAME}",
            where=str(target),
            fix="draft one with `infrarsi init`, or do everything with `infrarsi optimize`",
        )
    return _loaded(known)


def job_of_run(run: RunDirectory) -> Job:
    """The job that a run was started for, with the contract that it began with."""
    state = RunState.of(read(run.journal).events)
    if not state.started:
        raise UserError(
            "the run ended before it began anything",
            where=str(run.path),
            fix="start a new one with `infrarsi optimize`",
        )
    return Job(Path(state.started["project_root"]), run.contract, load(run.contract).project)


def confirm_plan(project: Project, console: Console, *, asks: bool) -> None:
    """Show what will be done; in a terminal, ask before any time is spent."""
    for line in plan_lines(project):
        console.say(line)
    if asks and ask("Start? [Enter: yes; q: quit] ") not in ("", "y", "yes"):
        raise Interrupted


def plan_lines(project: Project) -> Iterator[str]:
    """The plan in a few lines."""
    workload, budget = project.workload, project.search.budget
    knobs = ", ".join(knob.name for knob in project.knobs) or "none"
    limits = [f"{budget.screens} screens"]
    if budget.wall_hours is not None:
        limits.append(f"{budget.wall_hours:g} h")
    if budget.gpu_hours is not None:
        limits.append(f"{budget.gpu_hours:g} GPU-hours")
    if budget.target_speedup is not None:
        limits.append(f"until {budget.target_speedup:g}x")
    ends = "ended there by the witness" if workload.ends_by == "witness" else "its own end"
    yield f"  job       {project.launch.command} ({project.stack})"
    yield f"  a trial   {workload.optimizer_steps} optimizer steps, {ends}"
    yield f"  settings  {knobs}"
    yield f"  code      recipes on {', '.join(project.editable) or 'no file'}"
    yield f"  the same  work and data, loss within {100 * project.invariants.loss_tolerance:g} %"
    yield f"  budget    {', '.join(limits)}; no language model"


def _existing(target: Path) -> Path | None:
    """The infrarsi.yaml of a target: itself, beside it, or above it in its repository."""
    target = target.resolve()
    if target.is_file() and target.suffix in (".yaml", ".yml"):
        return target
    folder = target if target.is_dir() else target.parent
    while True:
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if (folder / ".git").exists() or folder == folder.parent:
            return None
        folder = folder.parent


def _loaded(path: Path) -> Job:
    """The job of a file; what a short file leaves out is drafted, what it says stays."""
    from infrarsi.draft.completing import complete, is_short

    loaded = load(path)
    project = complete(loaded).project if is_short(loaded.project) else loaded.project
    return Job(path.parent, path, project)


def _insist_same_script(job: Job, target: Path) -> None:
    script = job.project.launch.script
    if not target.is_file() or target.suffix in (".yaml", ".yml") or script is None:
        return
    if (job.root / script).resolve() != target.resolve():
        raise UserError(
            f"it is the contract of `{script}`, not of {target}",
            where=str(job.contract),
            fix="move it away, or add `--force` to draft it for this script",
        )
