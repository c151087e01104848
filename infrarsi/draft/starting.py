"""One way to start a job: the script whose text starts the training, through scripts that call it.

A launch script may be given by several steps: a batch script that runs `srun bash train.sh`, which
starts torchrun. Settings are put into the script that holds the training command itself.
"""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from infrarsi.draft.programs import SHELL_SUFFIXES, shell_text
from infrarsi.draft.slurm import Request
from infrarsi.errors import UserError
from infrarsi.scripts import Mount, Script, ScriptCall, TrainingCommand, Wrapping

TRAINING_NAME = re.compile(r"(^|_)(pre)?train(?!.*(eval|test|data|token))|finetune|fine_tune", re.I)
_MAX_DEPTH = 5
_SUBMITTING = re.compile(
    r"^[^#\n]*?\b(sbatch|qsub|bsub|kubectl\s+(?:apply|create)\b.*?\s-f)\s+(?:-\S+\s+)*"
    r"([\w./-]+\.(?:sh|sbatch|slurm|pbs|ya?ml|job))",
    re.M,
)


@dataclass(frozen=True)
class Start:
    """A script as it is started in `run_dir`; an inner one begins in `start_dir`.

    `outer` is the script that calls this one, `around` and `mounts` what stands between them.
    """

    run_dir: Path
    script_file: Path | None
    script: Script
    start_dir: Path
    request: Request | None = None
    outer: "Start | None" = None
    around: tuple[Wrapping, ...] = ()
    mounts: tuple[Mount, ...] = ()

    @property
    def outermost(self) -> "Start":
        """The script that the user starts."""
        return self if self.outer is None else self.outer.outermost

    @property
    def texts(self) -> str:
        """The text of all scripts on the way."""
        return self.script.text + (self.outer.texts if self.outer is not None else "")

    @cached_property
    def is_readable(self) -> bool:
        """Whether there is one training command; seen from a wrong folder there may be none."""
        try:
            self.script.training_command()
        except UserError:
            return False
        return True

    def training(self) -> TrainingCommand:
        """The training command, with what stands around the scripts that lead to it."""
        return self._around(self.script.training_command())

    def programs(self) -> tuple[TrainingCommand, ...]:
        """All programs of the script."""
        return tuple(self._around(program) for program in self.script.programs())

    def _around(self, training: TrainingCommand) -> TrainingCommand:
        return replace(
            training,
            wrappings=self.around + training.wrappings,
            mounts=self.mounts + training.mounts,
        )


def followed(start: Start, environ: Mapping[str, str]) -> Start:
    """The script that holds the training command: this one, or one that it calls.

    Raises UserError where several of them may be meant, or where one cannot be read.
    """
    if any(_is_training(program) for program in start.script.programs()):
        return start
    found = {
        inner.script_file: (inner, call)
        for call in start.script.calls()
        if (inner := _inner(start, call, environ)) is not None and inner.script.programs()
    }
    strong = {
        file: pair
        for file, pair in found.items()
        if any(_is_training(program) for program in pair[0].script.programs())
    }
    chosen = list((strong or ({} if start.script.programs() else found)).values())
    if not chosen:
        _insist_on_no_submission(start)
        return start
    if len(chosen) > 1:
        names = ", ".join(f"{i.script.path!r} in line {c.line}" for i, c in chosen)
        raise UserError(
            f"{len(chosen)} scripts that this one runs start a training: {names}",
            where=f"{start.script.where}:{chosen[0][1].line}",
            fix="name one of them, or give its command with --command",
        )
    return chosen[0][0]


def _is_training(program: TrainingCommand) -> bool:
    name = posixpath.basename(program.entry or "")
    return program.launcher != "python" or bool(TRAINING_NAME.search(name))


def _inner(start: Start, call: ScriptCall, environ: Mapping[str, str]) -> Start | None:
    """The script of a call, followed further; None where it is not a file of this machine."""
    depth, above = 0, start.outer
    while above is not None:
        depth, above = depth + 1, above.outer
    if call.path is None or call.cwd is None or depth >= _MAX_DEPTH:
        return None
    folder = (start.start_dir / call.cwd).resolve()
    path = (folder / call.path).resolve()
    if not path.is_file() or path.suffix == ".py" or path == start.script_file:
        return None
    if path.suffix not in SHELL_SUFFIXES and path.read_bytes()[:2] != b"#!":
        return None
    given = {name: found.value for name, found in call.environment.items()}
    script = Script.parse(
        shell_text(path),
        call.path,
        script_arguments=call.arguments,
        environ={**environ, **given},
        root=str(folder),
    )
    inner = Start(
        start.run_dir,
        path,
        script,
        folder,
        start.request,
        start,
        start.around + call.wrappings,
        start.mounts + call.mounts,
    )
    return followed(inner, environ)


def insist_on_mounted(start: Start) -> None:
    """A script that a container starts, and that is not to be found here, is the job itself."""
    if start.script.programs():
        return
    for call in start.script.calls():
        container = next((w for w in call.wrappings if w.is_container), None)
        if container is None:
            continue
        why = "which no mount of the container shows to be a script of this machine"
        if call.path is not None and call.cwd is None:
            why = "in a folder that is the image's own, or that no mount holds"
        raise UserError(
            f"`{container.name}` starts {call.path or 'a script'!r}, {why}",
            where=f"{start.script.where}:{call.line}",
            fix='mount the project (`"$PWD":/workspace`), give the folder to work in '
            "(`-w /workspace`), and start the script from there",
        )


def _insist_on_no_submission(start: Start) -> None:
    """A script that only hands another file to a scheduler is not the job itself."""
    if start.script.programs():
        return
    match = _SUBMITTING.search(start.script.text)
    if match is None:
        return
    line = start.script.text.count("\n", 0, match.start(1)) + 1
    raise UserError(
        f"this script does not train: it hands {match.group(2)!r} to `{match.group(1).split()[0]}`",
        where=f"{start.script.where}:{line}",
        fix=f"name {match.group(2)!r} instead",
    )
