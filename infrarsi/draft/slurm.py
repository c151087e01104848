"""What a batch script asks Slurm for in its `#SBATCH` lines."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from infrarsi.errors import UserError
from infrarsi.scripts import Wrapping

_SHORT = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "G": "gpus",
    "a": "array",
    "D": "chdir",
    "w": "nodelist",
    "J": "job-name",
    "p": "partition",
}
_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?::[A-Za-z][\w.-]*)?(?::(\d+))?(?:\(|,|$)")
_TYPED = re.compile(r"(?:[A-Za-z][\w.-]*:)?(\d+)")
_SET = re.compile(r"(?:^|,)([A-Za-z_]\w*)=([^,]*)")
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
_OTHERS = re.compile(r"^#(PBS|BSUB|FLUX|COBALT|PJM|\$(?= +-))[ \t]")
_COUNTED = "nodes ntasks ntasks-per-node gpus-per-node gres gpus gpus-per-task cpus-per-task"


@dataclass(frozen=True)
class Asked:
    """One option with its value and its line."""

    value: str
    line: int


@dataclass(frozen=True)
class Request:
    """What is asked of Slurm, by the header of a script or by srun's own options.

    `where` is the script's name. Every number is None where it is not asked for.
    """

    where: str
    options: Mapping[str, Asked]

    def place(self, name: str) -> str:
        """The line that holds an option."""
        asked = self.options.get(name)
        return f"{self.where}:{asked.line}" if asked is not None else self.where

    def text(self, name: str) -> str | None:
        """An option's value as it is written."""
        asked = self.options.get(name)
        return None if asked is None else asked.value

    def number(self, name: str) -> int | None:
        """A count; raises UserError where it cannot be read."""
        text = self.text(name)
        if text is None:
            return None
        if name == "nodes":
            return self._nodes(text)
        match = _TYPED.fullmatch(text)
        if match is None or int(match.group(1)) == 0:
            raise self._unreadable(name, text)
        return int(match.group(1))

    def _nodes(self, text: str) -> int:
        """`2`, or `2-4`: the most that it may get."""
        least, _, most = text.partition("-")
        if not least.isdigit() or not (most or least).isdigit() or int(least) == 0:
            raise self._unreadable("nodes", text)
        return int(most or least)

    def _unreadable(self, name: str, text: str) -> UserError:
        return UserError(
            f"`--{name}` is {text!r}, which only a run can tell",
            where=self.place(name),
            fix="write the number out, or give the command that one node runs with --command",
        )

    @cached_property
    def nodes(self) -> int | None:
        """The number of nodes, also where only tasks or GPUs are counted."""
        nodes = self.number("nodes")
        per_node = self.number("ntasks-per-node")
        tasks = self.number("ntasks")
        if nodes is None and per_node and tasks:
            nodes = -(-tasks // per_node)
        return nodes

    @cached_property
    def tasks_per_node(self) -> int | None:
        """The processes that srun starts on a node; `--ntasks` counts over all nodes."""
        tasks, nodes = self.number("ntasks"), self.nodes
        if tasks is None:
            return self.number("ntasks-per-node")
        per_node = -(-tasks // (nodes or 1))
        most = self.number("ntasks-per-node")
        return per_node if most is None else min(per_node, most)

    @cached_property
    def gpus_per_node(self) -> int | None:
        """The GPUs on a node; raises UserError for a total that its nodes do not divide."""
        direct = self.number("gpus-per-node")
        if direct is not None:
            return direct
        gres = self.text("gres")
        if gres is not None:
            found = _GPUS.search(gres)
            if found is not None:
                return int(found.group(1) or 1)
            if "gpu" in gres:
                raise self._unreadable("gres", gres)
        per_task = self.number("gpus-per-task")
        if per_task is not None:
            return per_task * (self.tasks_per_node or 1)
        total, nodes = self.number("gpus"), self.nodes
        if total is None:
            return None
        if nodes is None or total % nodes:
            if nodes is None and total <= 1:
                return total
            raise UserError(
                f"`--gpus` asks for {total} GPUs, but not how many of them are on one node",
                where=self.place("gpus"),
                fix="add `#SBATCH --nodes=...` and `#SBATCH --gpus-per-node=...`",
            )
        return total // nodes

    @property
    def gpu_place(self) -> str:
        """The line that says how many GPUs there are."""
        names = ("gpus-per-node", "gres", "gpus-per-task", "gpus")
        return next((self.place(name) for name in names if name in self.options), self.where)

    def over(self, other: "Request") -> "Request":
        """These options with those of `other` where they say nothing."""
        kept = dict(other.options)
        if {"nodes", "ntasks", "ntasks-per-node"} & self.options.keys():
            kept.pop("ntasks", None)
        if {"gpus-per-node", "gres", "gpus", "gpus-per-task"} & self.options.keys():
            for name in ("gpus-per-node", "gres", "gpus", "gpus-per-task"):
                kept.pop(name, None)
        return Request(self.where, {**kept, **self.options})

    def variables(self) -> dict[str, str]:
        """What Slurm gives to the script for these options, as far as it is the same every time.

        Source: sbatch(1), output environment variables, Slurm 24.05.
        """
        nodes, tasks = self.nodes or 1, self.tasks_per_node
        found = {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
        found["SLURM_SUBMIT_DIR"] = "."
        if tasks is not None:
            total = self.number("ntasks") or tasks * nodes
            found["SLURM_NTASKS"] = found["SLURM_NPROCS"] = str(total)
            found["SLURM_TASKS_PER_NODE"] = f"{tasks}(x{nodes})" if nodes > 1 else str(tasks)
        if self.number("ntasks-per-node") is not None:
            found["SLURM_NTASKS_PER_NODE"] = str(self.number("ntasks-per-node"))
        gpus = self.gpus_per_node
        if gpus is not None:
            found["SLURM_GPUS_ON_NODE"] = str(gpus)
        if self.text("gpus-per-node") is not None:
            found["SLURM_GPUS_PER_NODE"] = self.text("gpus-per-node") or ""
        if self.text("cpus-per-task") is not None:
            found["SLURM_CPUS_PER_TASK"] = str(self.number("cpus-per-task"))
        if self.text("job-name") is not None:
            found["SLURM_JOB_NAME"] = self.text("job-name") or ""
        return found | self.exported

    @property
    def exported(self) -> dict[str, str]:
        """The variables that `--export=ALL,X=1` sets."""
        return dict(_SET.findall(self.text("export") or ""))


def header(text: str, where: str, *, is_given: bool = False) -> Request | None:
    """The request of a batch script, None where it has no `#SBATCH` line.

    As sbatch does, reading stops at the first line that is a command. Raises UserError for an
    array, for a job of several parts, and for the header of another scheduler; the latter not where
    the user gave the command (`is_given`).
    """
    options: dict[str, Asked] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        other = _OTHERS.match(line)
        if other is not None and not is_given:
            raise UserError(
                f"`#{other.group(1)}` is the header of another scheduler than Slurm; its request "
                "is not read",
                where=f"{where}:{number}",
                fix="give the command that one node runs with --command",
            )
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        for name, value in _options(match.group(1), f"{where}:{number}"):
            options[name] = Asked(value, number)
            _insist_on_one_job(name, value, f"{where}:{number}")
    return Request(where, options) if options else None


def of_srun(wrapping: Wrapping, where: str, line: int) -> Request:
    """What srun's own options ask for; raises UserError for one that cannot be known."""
    options: dict[str, Asked] = {}
    for name, value in wrapping.options:
        name = _SHORT.get(name, name)
        if name in ("het-group", "pack-group"):
            _insist_on_one_job("hetjob", "", f"{where}:{line}")
        if name not in _COUNTED.split():
            continue
        if value is None:
            raise UserError(
                f"`--{name}` of srun is what only a run can tell",
                where=f"{where}:{line}",
                fix="write the number out, or give the command that one node runs with --command",
            )
        options[name] = Asked(value, line)
    return Request(where, options)


def _options(text: str, place: str) -> Iterator[tuple[str, str]]:
    """The options of one line, with their long names."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise UserError(
            f"`#SBATCH {text}` is not understood: {error}", where=place, fix="close the quote"
        ) from error
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and at < len(words) and not words[at].startswith("-"):
                value = words[at]
                at += 1
            yield name, value
        elif word.startswith("-") and len(word) > 1:
            value = word[2:].lstrip("=")
            if not value and at < len(words) and not words[at].startswith("-"):
                value = words[at]
                at += 1
            yield _SHORT.get(word[1], word[1]), value
        elif word in ("hetjob", "packjob"):
            yield word, ""


def _insist_on_one_job(name: str, value: str, place: str) -> None:
    if name == "array":
        raise UserError(
            f"`--array={value}` makes several jobs of this script",
            where=place,
            fix="make a copy for one of them, without the array and with its index written out",
        )
    if name in ("hetjob", "packjob"):
        raise UserError(
            "this is a job of several parts (heterogeneous), each with nodes of its own",
            where=place,
            fix="make a script of the part that trains",
        )
