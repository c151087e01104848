"""What the user named, as a launch: the script, the folder it runs in, the program it starts."""

import difflib
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.draft.programs import (
    PYTHON_SUFFIXES,
    SHELL_SUFFIXES,
    SHELLS,
    files,
    is_python,
    listing,
    shell_text,
    steps_an_optimizer,
    trains,
)
from infrarsi.draft.repository import common_folder, git_root, is_tracked
from infrarsi.errors import UserError
from infrarsi.scripts import Script, TrainingCommand

_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_TRAINING = re.compile(r"(^|_)(pre)?train(?!.*(eval|test|data|token))|finetune|fine_tune", re.I)
_LAUNCH = re.compile(r"train|tune|launch|run|main|start", re.I)
_FOLDERS_ABOVE = 3  # outside a repository


@dataclass(frozen=True)
class Target:
    """A launch that is understood: paths are relative to `root`, `cwd` is where training runs.

    `script_path` is None where there is no launch script and settings edit the command itself.
    """

    root: Path
    command: str
    script_path: str | None
    script: Script
    training: TrainingCommand
    entry: str
    cwd: str

    @property
    def where(self) -> str:
        """The script (or `launch.command`) for messages."""
        return self.script_path or "launch.command"


@dataclass(frozen=True)
class _Launch:
    """One way to start: the script's text and name as seen from `run_dir`."""

    run_dir: Path
    script_file: Path | None
    script: Script


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
            target = _choose(target, entry, environ)
        is_bare = is_python(target)
        found = _from_python(target, environ) if is_bare else _from_script(target, (), environ)
    if entry is not None:
        _insist_on_entry(found, folder, entry)
    return found


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
        script = Script.parse(
            shell_text(folder / name),
            name,
            script_arguments=tuple(words[1:]),
            environ=environ,
            root=str(folder),
        )
        return _finish(_Launch(folder, folder / name, script), command, root)
    script = Script.parse(command, environ=environ, root=str(folder))
    return _finish(_Launch(folder, None, script), command, root)


def _from_python(path: Path, environ: Mapping[str, str]) -> Target:
    """A bare entry runs in its own folder; see `with_torchrun`."""
    command = f"python {shlex.quote(path.name)}"
    script = Script.parse(command, environ=environ, root=str(path.parent))
    return _finish(_Launch(path.parent, None, script), command)


def with_torchrun(target: Target, processes: int, environ: Mapping[str, str]) -> Target:
    """The same bare entry, started by torchrun."""
    command = f"torchrun --standalone --nproc_per_node={processes} {shlex.quote(target.entry)}"
    script = Script.parse(command, environ=environ, root=str(target.root))
    return _finish(_Launch(target.root, None, script), command)


def _from_script(path: Path, arguments: tuple[str, ...], environ: Mapping[str, str]) -> Target:
    """A script is run in its own folder, unless its entry is only found from a folder above."""
    text = shell_text(path)
    launches = []
    for folder in _run_folders(path):
        name = path.relative_to(folder).as_posix()
        script = Script.parse(
            text, name, script_arguments=arguments, environ=environ, root=str(folder)
        )
        launches.append(_Launch(folder, path, script))
    good = [launch for launch in launches if _entry_file(launch) is not None]
    if not good:
        known = [launch for launch in launches if _working_folder(launch) is not None]
        raise _no_entry((known or launches)[0])
    chosen = good[0]
    if len(good) > 1 and _working_folder(good[1]) == _working_folder(chosen):
        # The script changes to a folder of its own choice: the command from the top is plainer.
        chosen = good[-1] if _working_folder(good[-1]) == _working_folder(chosen) else good[1]
    return _finish(chosen, None)


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


def _finish(launch: _Launch, command: str | None, root: Path | None = None) -> Target:
    entry, cwd = _entry_file(launch), _working_folder(launch)
    if entry is None or cwd is None:
        raise _no_entry(launch)
    _insist_on_one(launch)
    root = root or _project_root(launch, entry, cwd)
    script_path = None
    if launch.script_file is not None:
        script_path = launch.script_file.relative_to(root).as_posix()
    if command is None:
        name = launch.script.path if launch.run_dir.is_relative_to(root) else script_path
        command = f"bash {shlex.quote(name or '')}"
    if launch.run_dir != root and launch.run_dir.is_relative_to(root):
        command = f"cd {shlex.quote(launch.run_dir.relative_to(root).as_posix())} && {command}"
    return Target(
        root=root,
        command=command,
        script_path=script_path,
        script=launch.script,
        training=launch.script.training_command(),
        entry=entry.relative_to(root).as_posix(),
        cwd=cwd.relative_to(root).as_posix(),
    )


def _project_root(launch: _Launch, entry: Path, cwd: Path) -> Path:
    """The repository if it tracks the launch script, else the smallest folder with all parts."""
    script_folder = launch.script_file.parent if launch.script_file else launch.run_dir
    needed = common_folder([script_folder, cwd, entry.parent])
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


def _working_folder(launch: _Launch) -> Path | None:
    cwd = launch.script.training_command().cwd
    return None if cwd is None else (launch.run_dir / cwd).resolve()


def _entry_file(launch: _Launch) -> Path | None:
    return _file_of(launch, launch.script.training_command())


def _file_of(launch: _Launch, training: TrainingCommand) -> Path | None:
    """The program that a command starts, None where it cannot be known or is not there."""
    cwd = None if training.cwd is None else (launch.run_dir / training.cwd).resolve()
    if cwd is None or not training.entry:
        return None
    if not training.is_module:
        path = (cwd / training.entry).resolve()
        return path if path.is_file() else None
    for folder in [cwd, *python_path(launch.script, cwd)]:
        module = folder / training.entry.replace(".", "/")
        for path in (module.with_name(module.name + ".py"), module / "__main__.py"):
            if path.is_file():
                return path.resolve()
    return None


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


def _insist_on_one(launch: _Launch) -> None:
    """A script that starts two trainings, or one of them twice, is not one job."""
    chosen = launch.script.training_command()
    where = launch.script.where
    fix = "make a script that starts only the one to be made faster, or give it with --command"
    if chosen.repeated:
        raise UserError(
            "the training command runs more than once (in a loop, or in a function that is called "
            "several times)",
            where=f"{where}:{chosen.line}",
            fix=fix,
        )
    for other in launch.script.programs():
        if (other.line, other.entry) == (chosen.line, chosen.entry):
            continue
        file = _file_of(launch, other)
        if _TRAINING.search(posixpath.basename(other.entry or "")) or (
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


def _no_entry(launch: _Launch) -> UserError:
    training = launch.script.training_command()
    where = f"{launch.script.path or 'launch.command'}:{training.line}"
    if not training.entry or training.cwd is None:
        return UserError(
            f"which program {training.entry_raw!r} starts, and where, depends on what only a run "
            "can tell",
            where=where,
            fix="write the program's path out, or give the whole command with --command",
        )
    folder = launch.run_dir / (training.cwd or ".")
    near = _nearest(folder, training.entry) if not training.is_module else None
    fix = "correct the path, or run the command from another folder with --command"
    error = MissingEntry(
        f"the entry {training.entry!r} does not exist in {folder}",
        where=where,
        fix=f"did you mean {near!r}? {fix[0].upper()}{fix[1:]}" if near else fix,
    )
    error.is_module = training.is_module
    return error


def _nearest(folder: Path, entry: str) -> str | None:
    """The Python file of a folder whose name is most like a missing one."""
    place = (folder / entry).parent
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    near = difflib.get_close_matches(
        posixpath.basename(entry), [name for name in names if name.endswith(PYTHON_SUFFIXES)], n=1
    )
    return posixpath.join(posixpath.dirname(entry), near[0]) if near else None


def _choose(folder: Path, entry: str | None, environ: Mapping[str, str]) -> Path:
    """The launch script or the entry of a folder; raises UserError unless there is just one."""
    if entry is not None and not (folder / entry).is_file():
        raise UserError(
            f"there is no {entry!r} in {folder}; there are {listing(folder)}",
            where="--entry",
            fix="give the Python file that trains, relative to the project",
        )
    scripts, broken = _scripts_of(folder, entry, environ)
    if not scripts and entry is not None:
        return folder / entry
    if not scripts and len(broken) == 1:  # another program instead of it would be another job
        raise next(iter(broken.values()))
    found = [*scripts, *broken]
    found = found or [path for path in files(folder, PYTHON_SUFFIXES) if trains(path)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(repr(path.relative_to(folder).as_posix()) for path in found[:12])
    if found:
        first = next(iter(broken.values()), None)
        why = f" ({first.where}: {first.what})" if first is not None else ""
        raise UserError(
            f"{len(found)} files may start the training: {names}{why}",
            where=str(folder),
            fix="name one of them, or choose with --entry or --command",
        )
    raise UserError(
        "no launch script and no Python file that trains was found in this folder; there are "
        + listing(folder),
        where=str(folder),
        fix="name the launch script, or give --entry or --command",
    )


def _scripts_of(
    folder: Path, entry: str | None, environ: Mapping[str, str]
) -> tuple[list[Path], dict[Path, UserError]]:
    """Scripts that start a training (`entry`, if it is given), and those that should but cannot."""
    scripts: list[Path] = []
    broken: dict[Path, UserError] = {}
    for path in files(folder, SHELL_SUFFIXES):
        try:
            target = _from_script(path.resolve(), (), environ)
        except UserError as error:
            if entry is None and _starts_a_program(path, environ):
                broken[path] = error
            continue
        started = (target.root / target.entry).resolve()
        if entry is None or started == (folder / entry).resolve():
            scripts.append(path)
    if scripts:  # a broken helper is no rival of a script that works, a launch script is one
        broken = {
            path: error
            for path, error in broken.items()
            if path.parent == folder and _LAUNCH.search(path.stem)
        }
    return scripts, broken


def _starts_a_program(path: Path, environ: Mapping[str, str]) -> bool:
    try:
        text = shell_text(path)
        return bool(Script.parse(text, path.name, environ=environ).programs())
    except UserError:
        return False
