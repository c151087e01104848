"""How many nodes a launch asks for: by torchrun, by srun or mpirun, or in its Slurm header."""

import re
from collections.abc import Iterator

from infrarsi.draft.target import Target
from infrarsi.errors import UserError

_HEADER = re.compile(r"^#(?:SBATCH|PBS|FLUX)\s+(.*)$")
_COUNT = re.compile(r"(?:^|\s)(?:-N|--nodes)[=\s]*([^\s]+)")
_TASKS = re.compile(r"(?:^|\s)(?:--n?tasks(?:-per-node)?[=\s]\s*|-n\s*)([^\s]+)")
_SRUN = re.compile(r"^[^#]*?(?:^|[\s;&|(])srun\s(.*)$")


def asked_nodes(target: Target) -> tuple[int, str]:
    """The largest number of nodes that anything asks for, and the place.

    Raises UserError where a number cannot be read: one node would be a guess.
    """
    found = [(_number(text, place), place) for text, place in _asked(target)]
    return max(found, default=(1, ""), key=lambda item: item[0])


def insist_on_tasks(target: Target) -> str:
    """A note where srun starts the training, else "".

    Raises UserError where srun starts several processes: their number and their GPUs are then
    Slurm's and not torchrun's.
    """
    lines = target.script.text.splitlines()
    at = target.training.line
    own = _SRUN.search(lines[at - 1]) if 0 < at <= len(lines) else None
    if own is None:
        return ""
    texts = [(m.group(1), n) for n, line in enumerate(lines, 1) if (m := _HEADER.match(line))]
    for text, number in [(own.group(1), at), *texts]:
        tasks = _TASKS.search(text)
        if tasks is not None and tasks.group(1).strip("\"'") != "1":
            raise UserError(
                f"srun starts {tasks.group(1)} processes of the training, but only those that "
                "torchrun starts are understood in this version",
                where=f"{target.where}:{number}",
                fix="start them by torchrun, or give such a command with --command",
            )
    return f"{target.where}:{at}: srun starts the training, so every run needs Slurm here"


def _asked(target: Target) -> Iterator[tuple[str, str]]:
    """Every count with its place; what only repeats the Slurm header is left out."""
    header: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    option = target.training.option("nnodes")
    if option is not None:
        text = option.expression if option.value is None else str(option.value)
        others.append((text, f"{target.where}:{option.line}"))
    for number, line in enumerate(target.script.text.splitlines(), start=1):
        for pattern, into in ((_HEADER, header), (_SRUN, others)):
            asked = pattern.search(line)
            count = _COUNT.search(asked.group(1)) if asked is not None else None
            if count is not None:
                into.append((count.group(1).strip("\"'"), f"{target.where}:{number}"))
    yield from header
    yield from (item for item in others if not (header and "SLURM_" in item[0]))


def _number(text: str, place: str) -> int:
    least, _, most = text.replace(":", "-").partition("-")
    values = [least, most or least]
    if not all(value.isdigit() and int(value) > 0 for value in values):
        raise UserError(
            f"the number of nodes is {text!r}, which only a run can tell",
            where=place,
            fix="write the number out; this version runs jobs of one node",
        )
    return max(int(value) for value in values)
