"""From what the user named to a project on disk: load infrarsi.yaml, or draft it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.cli.console import Console, ask, shown
from infrarsi.cli.finding import project_of
from infrarsi.cli.options import HERE
from infrarsi.cli.workflow import Job
from infrarsi.contract import Project
from infrarsi.contract.files import load, write
from infrarsi.contract.wording import counted
from infrarsi.errors import Interrupted, UserError
from infrarsi.runs import RunDirectory, RunState, read

if TYPE_CHECKING:
    from infrarsi.draft import Draft

FILE_NAME = "infrarsi.yaml"
_COLUMN = 17
_YES = ("", "y", "yes")


def draft_job(
    target: Path, *, entry: str | None, command: str | None, force: bool, console: Console
) -> Job:
    """The job behind a script, a folder or an infrarsi.yaml; drafts the file if there is none.

    An infrarsi.yaml that is there is used as it is, unless `force`; it must be of the same script.
    """
    if not target.exists():
        raise UserError(
            "there is no such file or folder",
            where=str(target),
            fix="name the launch script, its folder, or an infrarsi.yaml",
        )
    known = existing(target)
    if known is not None and not force:
        if entry or command:
            raise UserError(
                "`--entry` and `--command` only matter for a new draft, and there is one",
                where=str(shown(known)),
                fix="edit it, or add `--force` to draft it again",
            )
        job = _loaded(known)
        _insist_same_script(job, target)
        console.say(f"Using {shown(known)}.")
        return job
    from infrarsi.draft import draft

    made = draft(target, entry=entry, command=command)
    write(made.path, made.project, made.comments)
    console.say(f"Drafted {shown(made.path)}.")
    for fact in made.facts:
        name = fact.name.replace("_", " ")
        console.say(f"  {name:<{_COLUMN}} {fact.value} ({fact.told})", milestone=False)
    for line in _drafted_lines(made):
        console.say(line, milestone=False)
    for note in (*made.notes, *made.unknowns):
        console.say(f"  {note}")
    for question in made.questions:
        console.say(f"  check in {FILE_NAME}: {question.text} (now {question.default})")
    return _loaded(made.path)


def _drafted_lines(made: "Draft") -> Iterator[str]:
    """What the draft does with the job, to be confirmed beside the facts."""
    project = made.project
    length = made.comments.get(("workload", "planned_steps"), "")
    if length and not length.startswith("a guess"):
        yield _row("steps", f"{project.workload.planned_steps} ({length})")
    yield _row("settings to try", ", ".join(knob.name for knob in project.knobs) or "none")
    fresh = [place.partition(":")[2] for place, value in project.sinks.items() if value == "fresh"]
    if fresh:
        yield _row("writes to", f"{', '.join(fresh)}: a fresh folder in every run")
    others = [f"{p.partition(':')[2]}={v}" for p, v in project.sinks.items() if v != "fresh"]
    if others:
        yield _row("trackers", ", ".join(others))
    yield _row("code to change", ", ".join(project.editable) or "none")
    if project.frozen:
        yield _row("code that stays", ", ".join(project.frozen))


def _row(name: str, text: str) -> str:
    return f"  {name:<{_COLUMN}} {text}"


def load_job(target: Path) -> Job:
    """The job of an existing infrarsi.yaml; raises UserError where there is none."""
    known = existing(target) if target.exists() else None
    if known is None:
        raise UserError(
            f"there is no {FILE_NAME}",
            where=str(target),
            fix="draft one with `infrarsi init`, or do everything with `infrarsi optimize`",
        )
    return _loaded(known)


def job_to_resume(run: RunDirectory, target: Path) -> Job:
    """The job that a run continues with: as its file is now, so that preferences may change."""
    if target != HERE:
        return load_job(target)
    job = job_of_run(run)
    return _loaded(job.root / FILE_NAME) if (job.root / FILE_NAME).is_file() else job


def job_of_run(run: RunDirectory, project: Path | None = None) -> Job:
    """The job that a run was started for, with the contract that it began with.

    `project` names its folder where the run was moved or copied. Raises UserError where it is not
    plain which folder is meant.
    """
    state = RunState.of(read(run.journal).events)
    if not state.started:
        raise UserError(
            "the run ended before it began anything",
            where=str(shown(run.path)),
            fix="start a new one with `infrarsi optimize`",
        )
    file = load(run.contract)
    return Job(project_of(run.path, state.started, project)[0], file, file.project)


def confirm_plan(job: Job, project: Project, console: Console, *, asks: bool) -> None:
    """Show what will be done; in a terminal, ask before any time is spent."""
    kind, guessed = _kind_of(job, project), planned_is_guessed(job)
    for line in plan_lines(project, kind=kind, guessed=guessed):
        console.say(line)
    untouched = "nothing was started"
    if asks and ask("Start? [Enter: yes; q: quit] ", on_interrupt=untouched) not in _YES:
        raise Interrupted(untouched)


def planned_lines(job: Job) -> list[str]:
    """What was assumed of the length of the real run, nothing where it is known."""
    return list(_planned(job.project, guessed=planned_is_guessed(job)))


def planned_is_guessed(job: Job) -> bool:
    """Whether `workload.planned_steps` is still what the draft assumed, by its comment."""
    line = job.file.line("workload", "planned_steps")
    lines = job.file.text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    return "planned_steps" not in written or "# a guess" in written


def plan_lines(project: Project, *, kind: str = "", guessed: bool = False) -> Iterator[str]:
    """The plan in a few lines."""
    workload, budget = project.workload, project.search.budget
    knobs = ", ".join(knob.name for knob in project.knobs) or "none"
    limits = [counted(budget.screens, "trial")]
    if budget.wall_hours is not None:
        limits.append(f"{budget.wall_hours:g} h")
    if budget.gpu_hours is not None:
        limits.append(f"{budget.gpu_hours:g} GPU-hours")
    if budget.target_speedup is not None:
        limits.append(f"until {budget.target_speedup:g}x")
    ends = "then it is ended" if workload.ends_by == "witness" else "to the job's own end"
    yield f"  job       {project.launch.command} ({kind or project.stack})"
    yield f"  a trial   {workload.optimizer_steps} optimizer steps, {ends}"
    yield from _planned(project, guessed=guessed)
    yield f"  settings  {knobs}"
    yield f"  code      changes by recipe in {', '.join(project.editable) or 'no file'}"
    yield f"  kept      work and data; loss within {100 * project.invariants.loss_tolerance:g} %"
    yield f"  budget    {', '.join(limits)}; no language model"
    yield (
        "  time      the job runs a few times as it is, then once a trial, then in pairs; how long "
        "that is in all is said after its first run"
    )


def _planned(project: Project, *, guessed: bool) -> Iterator[str]:
    """The length of the real run where it was assumed: one-off costs are charged against it."""
    workload = project.workload
    own = workload.optimizer_steps if workload.ends_by == "job" else None
    if own is not None and own != workload.planned_steps:
        said = f"; your job says {own}"
    elif guessed:
        said = "; how long your job is could not be read"
    else:
        return
    yield (
        f"  planned   assumed: {workload.planned_steps} steps{said}; one-off costs are charged "
        "against them (`workload.planned_steps`)"
    )


def _kind_of(job: Job, project: Project) -> str:
    """The stack in words: a job without DDP is not called by its name."""
    from infrarsi.draft import today

    found = today(job.root, project) if project.stack == "native-ddp" else None
    if found is None:
        return project.stack
    return "PyTorch DDP" if found.is_distributed else "plain PyTorch, one process"


def existing(target: Path) -> Path | None:
    """The infrarsi.yaml of a target: itself, beside it, or above it in its repository."""
    target = target.resolve()
    if target.is_file() and target.suffix in (".yaml", ".yml") and not _is_manifest(target):
        return target
    folder = target if target.is_dir() else target.parent
    above = [folder, *folder.parents]
    tops = [i for i, place in enumerate(above) if (place / ".git").exists()]
    inside = above[: tops[0] + 1] if tops else above[:1]
    return next((p / FILE_NAME for p in inside if (p / FILE_NAME).is_file()), None)


def _is_manifest(path: Path) -> bool:
    from infrarsi.draft.manifests import looks_like_manifest

    return path.name != FILE_NAME and looks_like_manifest(path)


def _loaded(path: Path) -> Job:
    """The job of a file; what a short file leaves out is drafted, what it says stays."""
    from infrarsi.draft.completing import complete, is_short

    loaded = load(shown(path))
    project = complete(loaded).project if is_short(loaded.project) else loaded.project
    return Job(loaded.root, loaded, project)


def _insist_same_script(job: Job, target: Path) -> None:
    script = job.project.launch.script
    if not target.is_file() or target.suffix in (".yaml", ".yml") or script is None:
        return
    if (job.root / script).is_file() and (job.root / script).resolve() != target.resolve():
        raise UserError(
            f"it is the contract of `{script}`, not of {target}",
            where=str(job.contract),
            fix="move it away, or add `--force` to draft it for this script",
        )
