"""What the user named, as a launch: the script, the folder it runs in, the program it starts."""

import difflib
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infrarsi.draft.choosing import choose
from infrarsi.draft.containers import unreachable
from infrarsi.draft.documents import Written, inside, written_files
from infrarsi.draft.installed import entry_of, installed, installed_sources
from infrarsi.draft.manifests import Count, looks_like_manifest, read_manifest
from infrarsi.draft.placeholders import insist_on_filled
from infrarsi.draft.programs import (
    PYTHON_SUFFIXES,
    SHELLS,
    is_python,
    listing,
    readable_text,
    shell_text,
    steps_an_optimizer,
)
from infrarsi.draft.repository import common_folder, git_root, is_tracked
from infrarsi.draft.slurm import Request, header
from infrarsi.draft.sources import Sources, read
from infrarsi.draft.starting import TRAINING_NAME, Start, followed, insist_on_mounted
from infrarsi.draft.transplanting import localized, nothing_here
from infrarsi.errors import UserError
from infrarsi.scripts import Script, TrainingCommand

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_FOLDERS_ABOVE = 3  # outside a repository


@dataclass(frozen=True)
class Target:
    """A launch that is understood: paths are relative to `root`, `cwd` is where training runs.

    `script_path` is None where there is no launch script and settings edit the command itself.
    `module` is the installed module that is the entry, where no file of the project is.
    `written` are files that the scripts write by heredocs before they train.
    `request` is what a batch script asks Slurm for, `replicas` and `gpus` are those of a manifest.
    """

    root: Path
    command: str
    script_path: str | None
    script: Script
    training: TrainingCommand
    entry: str
    cwd: str
    request: Request | None = None
    replicas: Count | None = None
    gpus: Count | None = None
    notes: tuple[str, ...] = ()
    module: str = ""
    written: Mapping[str, Written] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The script (or `launch.command`) for messages."""
        return self.script_path or "launch.command"


def locate(
    target: Path,
    *,
    entry: str | None,
    command: str | None,
    environ: Mapping[str, str],
    root: Path | None = None,
) -> Target:
    """The launch behind a script, a Python file, a folder, or a folder with a command.

    `root` fixes the project's folder for a command; otherwise it is found.

    Raises UserError where there is none, or more than one.
    """
    if not target.exists() and target.is_symlink():
        raise UserError(
            f"{target.name!r} is a link that leads nowhere",
            where=str(target),
            fix="name the launch script itself",
        )
    if not target.exists():
        raise UserError(
            f"there is no {target.name!r}; in {target.parent} there are {listing(target.parent)}",
            where=str(target),
            fix="name the launch script, the Python entry, or the folder of the job",
        )
    target = target.resolve()
    folder = target if target.is_dir() else target.parent
    if command is not None:
        found = _from_command(folder, command, environ, root)
    else:
        if target.is_dir():
            target = choose(target, entry, environ, lambda path: _program_of(path, environ))
        found = _from_file(target, environ)
    if entry is not None:
        _insist_on_entry(found, folder, entry)
    return found


def _from_file(path: Path, environ: Mapping[str, str]) -> Target:
    if is_python(path):
        return _from_python(path, environ)
    if looks_like_manifest(path):
        return _from_manifest(path, environ)
    return _from_script(path, (), environ)


def _is_found(launch: Start) -> bool:
    if not launch.is_readable:
        return False
    return _entry_file(launch) is not None or _is_elsewhere(launch)


def _is_elsewhere(launch: Start) -> bool:
    """Whether an installed program is started where the files that it is given lie."""
    cwd = _working_folder(launch)
    if cwd is None or not installed(launch.training()):
        return False
    given = [a.value for a in launch.training().arguments if isinstance(a.value, str)]
    return any(_is_there(launch, (cwd / value)) for value in given if value)


def _program_of(path: Path, environ: Mapping[str, str]) -> Path:
    """The program that a launch script starts."""
    target = _from_script(path, (), environ)
    return (target.root / target.entry).resolve()


def _insist_on_entry(found: Target, folder: Path, entry: str) -> None:
    """An entry that is not the one that the launch starts has no effect, so it is an error."""
    started = (found.root / found.entry).resolve()
    wanted = [(place / entry).resolve() for place in (folder, found.root, Path.cwd())]
    if started not in wanted:
        raise UserError(
            f"`--entry` is {entry!r}, but the job starts {found.entry!r}",
            where=f"{found.where}:{found.training.line}",
            fix="leave `--entry` out, correct the path in the script, or give the whole command "
            "with --command",
        )


def _from_command(
    folder: Path, command: str, environ: Mapping[str, str], root: Path | None
) -> Target:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(
            f"{command!r} is not a shell command: {error}", where="--command", fix="quote it"
        ) from error
    if words and words[0] in SHELLS:
        words = words[1:]
    if words and (folder / words[0]).is_file() and not is_python(folder / words[0]):
        name = posixpath.normpath(words[0])
        start = _script_start(folder, folder / name, tuple(words[1:]), environ, is_given=True)
        return _finish(start, command, root)
    script = Script.parse(command, environ=environ, root=str(folder))
    return _finish(followed(Start(folder, None, script, folder), environ), command, root)


def _from_python(path: Path, environ: Mapping[str, str]) -> Target:
    """A bare entry runs in its own folder; see `with_torchrun`."""
    command = f"python {shlex.quote(path.name)}"
    script = Script.parse(command, environ=environ, root=str(path.parent))
    return _finish(Start(path.parent, None, script, path.parent), command)


def with_torchrun(target: Target, processes: int, environ: Mapping[str, str]) -> Target:
    """The same bare entry, started by torchrun."""
    command = f"torchrun --standalone --nproc_per_node={processes} {shlex.quote(target.entry)}"
    script = Script.parse(command, environ=environ, root=str(target.root))
    return _finish(Start(target.root, None, script, target.root), command)


def _from_script(path: Path, arguments: tuple[str, ...], environ: Mapping[str, str]) -> Target:
    """A script is run in its own folder, unless its entry is only found from a folder above."""
    launches = [_script_start(f, path, arguments, environ) for f in _run_folders(path)]
    good = [launch for launch in launches if _is_found(launch)]
    if not good:
        insist_on_mounted(launches[0])
    if not good and not installed(launches[0].training()):
        launches[0].training()  # where even its own folder shows no training, that is the error
        known = [launch for launch in launches if launch.is_readable and _working_folder(launch)]
        raise _no_entry((known or launches)[0])
    good = good or launches[:1]  # an installed program with no file that says where it runs
    chosen = good[0]
    if len(good) > 1 and _working_folder(good[1]) == _working_folder(chosen):
        # The script changes to a folder of its own choice: the command from the top is plainer.
        chosen = good[-1] if _working_folder(good[-1]) == _working_folder(chosen) else good[1]
    return _finish(chosen, None)


def _script_start(
    folder: Path,
    path: Path,
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    is_given: bool = False,
) -> Start:
    """A script as it is run from a folder, with the variables that Slurm would give it."""
    text = shell_text(path)
    name = path.relative_to(folder).as_posix()
    insist_on_filled(text, name)
    request = header(text, name, is_given=is_given)
    seen = dict(environ) if request is None else {**environ, **request.variables()}
    script = Script.parse(text, name, script_arguments=arguments, environ=seen, root=str(folder))
    return followed(Start(folder, path, script, folder, request), seen)


def _run_folders(path: Path) -> list[Path]:
    """The folder of a script, and those above it that it may have been meant to be run in."""
    repository = git_root(path)
    folders = [path.parent]
    for folder in path.parent.parents:
        if folders[-1] == repository or folder in (Path(folder.anchor), Path.home()):
            break
        if repository is None and len(folders) > _FOLDERS_ABOVE:
            break
        folders.append(folder)
    return folders


def _finish(launch: Start, command: str | None, root: Path | None = None) -> Target:
    insist_on_mounted(launch)
    entry, cwd = _entry_file(launch), _working_folder(launch)
    module = installed(launch.training()) if entry is None and cwd is not None else ""
    if module and cwd is not None:
        entry = cwd / entry_of(module)
    if entry is None or cwd is None:
        raise _no_entry(launch)
    _insist_on_one(launch)
    root = root or _project_root(launch, cwd / "program" if module else entry, cwd)
    script_path = None
    if launch.script_file is not None:
        script_path = launch.script_file.relative_to(root).as_posix()
    first = launch.outermost
    if command is None:
        own = first.script_file.relative_to(root).as_posix() if first.script_file else ""
        name = first.script.path if launch.run_dir.is_relative_to(root) else own
        command = f"{_scheduler_variables(launch)}bash {shlex.quote(name)}"
    if launch.run_dir != root and launch.run_dir.is_relative_to(root):
        command = f"cd {shlex.quote(launch.run_dir.relative_to(root).as_posix())} && {command}"
    return Target(
        root=root,
        command=command,
        script_path=script_path,
        script=launch.script,
        training=launch.training(),
        entry=entry.relative_to(root).as_posix(),
        cwd=cwd.relative_to(root).as_posix(),
        request=launch.request,
        module=module,
        written=inside(written_files(launch), root),
    )


def _scheduler_variables(launch: Start) -> str:
    """What Slurm would give and the scripts use: a run here is not submitted to it."""
    if launch.request is None:
        return ""
    by_srun = any(wrapping.kind == "slurm" for wrapping in launch.training().wrappings)
    texts = launch.texts
    return "".join(
        f"{name}={shlex.quote(value)} "
        for name, value in launch.request.variables().items()
        if name in launch.request.exported
        or re.search(rf"\b{name}\b", texts)
        or (by_srun and name in ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))
    )


def _from_manifest(path: Path, environ: Mapping[str, str]) -> Target:
    """The command of a manifest's pods, with its folders named as they are here."""
    for folder in _run_folders(path):
        local = localized(read_manifest(readable_text(path), path.name), folder, environ)
        if local is None:
            continue
        script = Script.parse(local.command, environ=environ, root=str(folder))
        start = followed(Start(folder, None, script, folder), environ)
        found = _finish(start, local.command)
        return replace(
            found, replicas=local.nodes, gpus=local.gpus, notes=(*found.notes, *local.notes)
        )
    raise nothing_here(path)


def _project_root(launch: Start, entry: Path, cwd: Path) -> Path:
    """The repository if it tracks the launch script, else the smallest folder with all parts."""
    scripts = [s.script_file for s in (launch, launch.outermost) if s.script_file is not None]
    folders = [script.parent for script in scripts] or [launch.run_dir]
    script_folder = folders[0]
    needed = common_folder([*folders, cwd, entry.parent])
    if needed in (Path(needed.anchor), Path.home()):
        raise UserError(
            f"the script is in {script_folder} and its entry in {entry.parent}: they share no "
            "project folder",
            where=launch.script.path or "launch.command",
            fix="put the launch script into the folder of the job",
        )
    repository = git_root(entry)
    if repository is not None and is_tracked(repository, launch.script_file or entry):
        return common_folder([repository, needed])
    return needed


def _working_folder(launch: Start) -> Path | None:
    cwd = launch.training().cwd
    return None if cwd is None else (launch.start_dir / cwd).resolve()


def _entry_file(launch: Start) -> Path | None:
    return _file_of(launch, launch.training())


def _file_of(launch: Start, training: TrainingCommand) -> Path | None:
    """The program that a command starts, None where it cannot be known or is not there."""
    if training.script is not None and not training.is_module:
        path = (launch.start_dir / training.script).resolve()
        return path if _is_there(launch, path) else None
    cwd = None if training.cwd is None else (launch.start_dir / training.cwd).resolve()
    if cwd is None or not training.entry:
        return None
    if not training.is_module:
        path = (cwd / training.entry).resolve()
        return path if _is_there(launch, path) else None
    for folder in [cwd, *python_path(launch.script, cwd)]:
        module = folder / training.entry.replace(".", "/")
        for path in (module.with_name(module.name + ".py"), module / "__main__.py"):
            if _is_there(launch, path):
                return path.resolve()
    return None


def _is_there(launch: Start, path: Path) -> bool:
    """Whether there is a file, or a script writes it before it trains."""
    return path.is_file() or path in written_files(launch)


def sources_of(target: Target) -> Sources:
    """The files of the program; of one that is installed, what can be read of it."""
    if target.module:
        return installed_sources(target.module, f"{target.where}:{target.training.line}")
    texts = {
        path: file.text
        for path, file in target.written.items()
        if path.endswith(".py") and (path == target.entry or not file.document.why)
    }
    return read(target.root, target.entry, import_path(target), written=texts)


def import_path(target: Target) -> list[str]:
    """Where the program's imports are looked for, relative to the project."""
    folder = str(Path(target.entry).parent)
    first = target.cwd if target.training.is_module else folder
    search = [first, target.cwd]
    for path in python_path(target.script, target.root / target.cwd):
        if path.is_relative_to(target.root):
            search.append(path.relative_to(target.root).as_posix())
    return list(dict.fromkeys(search))


def python_path(script: Script, cwd: Path) -> list[Path]:
    """The folders of PYTHONPATH that the script sets, as far as they can be read."""
    assignment = script.training_command().environment.get("PYTHONPATH")
    if assignment is None:
        return []
    text = assignment.value
    if text is None:  # `PYTHONPATH="$ROOT/src:$PYTHONPATH"` is not known as a whole
        known = {name: found.value for name, found in script.assignments().items()}
        known["PWD"] = str(cwd)
        text = _VARIABLE.sub(
            lambda use: known.get(use.group(1)) or use.group(0),
            assignment.raw.partition("=")[2].strip("\"'").replace("$(pwd)", str(cwd)),
        )
    return [(cwd / item).resolve() for item in text.split(":") if item and "$" not in item]


def _insist_on_one(launch: Start) -> None:
    """A script that starts two trainings, or one of them twice, is not one job."""
    chosen = launch.training()
    where = launch.script.where
    fix = "make a script that starts only the one to be made faster, or give it with --command"
    if chosen.repeated:
        raise UserError(
            "the training command runs more than once (in a loop, or in a function that is called "
            "several times)",
            where=f"{where}:{chosen.line}",
            fix=fix,
        )
    for other in launch.programs():
        if (other.line, other.entry) == (chosen.line, chosen.entry):
            continue
        file = _file_of(launch, other)
        if TRAINING_NAME.search(posixpath.basename(other.entry or "")) or (
            file is not None and steps_an_optimizer(file)
        ):
            raise UserError(
                f"2 commands start a training: {chosen.entry!r} in line {chosen.line} and "
                f"{other.entry_raw!r} in line {other.line}",
                where=f"{where}:{min(chosen.line, other.line)}",
                fix=fix,
            )


class MissingEntry(UserError):
    """The program that a command starts is not there; a module may be installed elsewhere."""

    is_module = False


def _no_entry(launch: Start) -> UserError:
    training = launch.training()
    where = f"{launch.script.path or 'launch.command'}:{training.line}"
    error = unreachable(training, launch.script.path or "launch.command")
    if error is not None:
        return error
    if training.cwd is None and training.container is not None:
        return UserError(
            f"the folder that `{training.container.name}` runs {training.entry_raw!r} in is the "
            "image's own, or no mount holds it",
            where=where,
            fix="give the container's working folder, and mount the project there",
        )
    if not training.entry or training.cwd is None:
        return UserError(
            f"which program {training.entry_raw!r} starts, and where, depends on what only a run "
            "can tell",
            where=where,
            fix="write the program's path out, or give the whole command with --command",
        )
    folder = launch.start_dir / (training.cwd or ".")
    if training.is_module:
        missing = MissingEntry(
            f"the module {training.entry!r} is neither in {folder} nor installed for the Python "
            "that runs infrarsi",
            where=where,
            fix="run infrarsi in the environment that has it, correct the name, or run the command "
            "from another folder with --command",
        )
        missing.is_module = True
        return missing
    near = _nearest(folder, training.entry)
    fix = "correct the path, or run the command from another folder with --command"
    return MissingEntry(
        f"the entry {training.entry!r} does not exist in {folder}",
        where=where,
        fix=f"did you mean {near!r}? {fix[0].upper()}{fix[1:]}" if near else fix,
    )


def _nearest(folder: Path, entry: str) -> str | None:
    """The Python file of a folder whose name is most like a missing one."""
    place = (folder / entry).parent
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    near = difflib.get_close_matches(
        posixpath.basename(entry), [name for name in names if name.endswith(PYTHON_SUFFIXES)], n=1
    )
    return posixpath.join(posixpath.dirname(entry), near[0]) if near else None
