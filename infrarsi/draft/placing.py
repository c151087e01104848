"""How many nodes, processes and GPUs a launch asks for, and which line says so."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from infrarsi.draft.launch_files import (
    AccelerateConfig,
    Host,
    accelerate_config,
    chosen_hosts,
    hosts_of_file,
    hosts_of_list,
    text_of,
)
from infrarsi.draft.slurm import Request, of_srun
from infrarsi.draft.target import Target
from infrarsi.errors import UserError
from infrarsi.scripts import CONSOLE, Argument, TrainingCommand, Wrapping

_ALL_GPUS = ("gpu", "auto", "cuda", "cpu", "xpu")
_BY_HOME = (
    "it is one for each GPU that it sees, unless accelerate's own file in your home "
    "(`~/.cache/huggingface/accelerate/default_config.yaml`), which is not read, says otherwise"
)
_FIX = "write the number out, or give the command that one node runs with --command"


@dataclass(frozen=True)
class Told:
    """A number and the place that says it; `number` None: as many as the node has GPUs."""

    number: int | None
    place: str


@dataclass(frozen=True)
class Placement:
    """The nodes of a job, and the processes and GPUs on each; `notes` say what else is known.

    `processes` is None where nothing says it; a `Told` without a number means one for each GPU.
    """

    nodes: int
    nodes_place: str
    processes: Told | None
    gpus: Told | None
    notes: tuple[str, ...] = ()
    unknowns: tuple[str, ...] = ()


def placement(target: Target) -> Placement:
    """What the launch asks for.

    Raises UserError where a number cannot be read: one node would be a guess.
    """
    return _Placing(target).result()


class _Placing:
    """One launch, and what was found out about it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.training = target.training
        self.notes: list[str] = []
        self.unknowns: list[str] = []
        self.srun = next((w for w in self.training.wrappings if w.kind == "slurm"), None)
        self.mpi = next((w for w in self.training.wrappings if w.kind == "mpi"), None)
        self.request = self._request()

    def result(self) -> Placement:
        """All of it; the largest number of nodes that anything asks for counts."""
        claims = list(self._nodes())
        nodes = max((told.number or 1 for told in claims), default=1)
        place = next((told.place for told in claims if told.number == nodes), "")
        differing = [told for told in claims if told.number != nodes]
        if differing:
            self.notes.append(
                f"{differing[0].place}: {differing[0].number} nodes are asked for here, but "
                f"{nodes} at {place}; {nodes} are drafted"
            )
        gpus = self._gpus() or self._visible()
        processes = self._processes(nodes)
        if processes is not None and processes.number is None:
            processes = self._visible() or processes
            if processes.number is None and gpus is None:
                self.notes.append(
                    f"{processes.place}: one process is started for each GPU, so how many depends "
                    "on where it runs; the GPUs of this machine are drafted"
                )
        return Placement(nodes, place, processes, gpus, tuple(self.notes), tuple(self.unknowns))

    # -- Slurm and manifests

    def _request(self) -> Request | None:
        """What srun asks for, over what the header asks for."""
        header = self.target.request
        if self.srun is None:
            return header
        own = of_srun(self.srun, self.target.where, self.srun.line)
        return own if header is None else own.over(header)

    def _gpus(self) -> Told | None:
        if self.target.gpus is not None:
            return Told(self.target.gpus.number, self.target.gpus.place)
        if self.request is None or self.request.gpus_per_node is None:
            return None
        return Told(self.request.gpus_per_node, self.request.gpu_place)

    def _visible(self) -> Told | None:
        """The GPUs that the script leaves visible."""
        assigned = self.training.environment.get("CUDA_VISIBLE_DEVICES")
        text = (assigned.value or "") if assigned is not None else ""
        if assigned is None or not re.fullmatch(r"\d+(,\d+)*", text):
            return None
        return Told(text.count(",") + 1, f"{self.target.where}:{assigned.line}")

    # -- nodes

    def _nodes(self) -> Iterator[Told]:
        if self.target.replicas is not None:
            yield Told(self.target.replicas.number, self.target.replicas.place)
        if self.request is not None and self.request.nodes is not None:
            yield Told(self.request.nodes, self.request.place("nodes"))
        elif self.request is not None and (self.request.number("ntasks") or 1) > 1:
            self.unknowns.append(
                f"the nodes that Slurm spreads the tasks over ({self.request.place('ntasks')}); "
                "one node is assumed"
            )
        if self.mpi is not None:
            yield from self._mpi_nodes(self.mpi)
        yield from _BY_LAUNCHER.get(_family(self.training), _no_nodes)(self)

    def torchrun_nodes(self) -> Iterator[Told]:
        """torchrun's own option, or its variable."""
        given = self._given("nnodes", "PET_NNODES")
        if given is None:
            return
        text, place = given
        if text is None or not text:
            if self._scheduler_says(place):
                return
            raise self._unreadable("the number of nodes", given, "nnodes")
        least, colon, most = text.partition(":")
        if not least.isdigit() or not (most or least).isdigit() or int(most or least) < 1:
            if self._scheduler_says(place):
                return
            raise self._unreadable("the number of nodes", given, "nnodes")
        if colon and least != most:
            self.notes.append(
                f"{place}: from {least} to {most} nodes may take part; every run here has "
                f"all {most}"
            )
        yield Told(int(most or least), place)

    def accelerate_nodes(self) -> Iterator[Told]:
        """`--num_machines`, or the configuration's."""
        found = self._from_accelerate("num_machines")
        if found is not None:
            yield found

    def deepspeed_nodes(self) -> Iterator[Told]:
        """`--num_nodes`, or the hosts that are named."""
        option = self.training.option("num_nodes")
        hosts = self._deepspeed_hosts()
        if option is not None:
            yield Told(self._integer(option, "the number of nodes"), self._place(option))
        elif hosts is not None:
            yield Told(len(hosts[0]), hosts[1])
        if hosts is not None and len(hosts[0]) > 1 and not self.training.option("no_ssh"):
            self._say_remote("deepspeed", hosts[1])

    def _mpi_nodes(self, mpi: Wrapping) -> Iterator[Told]:
        hosts = self._mpi_hosts(mpi)
        per_node = self._mpi_number(mpi, "N", "npernode", "ppn", "perhost")
        total = self._mpi_number(mpi, "np", "n", "c")
        place = f"{self.target.where}:{mpi.line}"
        if hosts is not None:
            yield Told(len(hosts), place)
            if len(hosts) > 1:
                self._say_remote("mpirun", place)
        elif per_node and total:
            yield Told(-(-total // per_node), place)

    def _say_remote(self, name: str, place: str) -> None:
        self.notes.append(
            f"{place}: {name} starts the other hosts by itself; runs here are placed by InfraRSI "
            "on its own nodes, so give the command that one node runs with --command (for example "
            "with torchrun, which gets the rendezvous from the environment)"
        )

    # -- processes

    def _processes(self, nodes: int) -> Told | None:
        """The processes on one node."""
        started = _PROCESSES.get(_family(self.training), _no_processes)(self, nodes)
        outside = self._started_outside(nodes)
        if outside is None:
            return started
        if _family(self.training) == "python":
            return outside
        if outside.number != 1:
            raise UserError(
                f"{outside.number} processes on a node start {self.training.launcher} each",
                where=outside.place,
                fix="start one for each node (`--ntasks-per-node=1`), or the program itself",
            )
        return started

    def _started_outside(self, nodes: int) -> Told | None:
        """What srun or mpirun starts on each node."""
        if self.mpi is not None:
            place = f"{self.target.where}:{self.mpi.line}"
            per_node = self._mpi_number(self.mpi, "N", "npernode", "ppn", "perhost")
            total = self._mpi_number(self.mpi, "np", "n", "c")
            hosts = self._mpi_hosts(self.mpi)
            if per_node is not None:
                return Told(per_node, place)
            if total is not None:
                return Told(self._divided(total, nodes, place), place)
            slots = hosts[0].slots if hosts else None
            return Told(slots, place) if slots is not None else None
        if self.srun is None or self.request is None:
            return Told(1, f"{self.target.where}:{self.srun.line}") if self.srun else None
        tasks = self.request.tasks_per_node
        name = "ntasks-per-node" if "ntasks-per-node" in self.request.options else "ntasks"
        return Told(tasks or 1, self.request.place(name))

    def torchrun_processes(self, nodes: int) -> Told | None:
        """torchrun's own option, or its variable; one where neither is given."""
        given = self._given("nproc_per_node", "PET_NPROC_PER_NODE")
        if given is None:
            return Told(1, f"{self.target.where}:{self.training.line}")
        text, place = given
        if text in _ALL_GPUS:
            return Told(None, place)
        if text is None or not text.isdigit():
            self.unknowns.append(f"the processes on a node ({place}: `{self._why(given)}`)")
            return None
        return Told(int(text), place)

    def accelerate_processes(self, nodes: int) -> Told | None:
        """`--num_processes` counts over all machines."""
        total = self._from_accelerate("num_processes")
        if total is None:
            if self._config is None:
                place = f"{self.target.where}:{self.training.line}"
                self.unknowns.append(
                    f"the processes that accelerate starts ({place}): without `--num_processes` or "
                    f"`--config_file` {_BY_HOME}"
                )
            return None
        return Told(self._divided(total.number or 1, nodes, total.place), total.place)

    def deepspeed_processes(self, nodes: int) -> Told | None:
        """`--num_gpus`, or the slots of the hosts; else one for each GPU."""
        option = self.training.option("num_gpus")
        if option is not None and option.value != "-1":
            return Told(self._integer(option, "the number of GPUs"), self._place(option))
        hosts = self._deepspeed_hosts()
        if hosts is None:
            return Told(None, f"{self.target.where}:{self.training.line}")
        slots = {host.slots for host in hosts[0]}
        if len(slots) > 1:
            raise UserError(
                f"the hosts have different numbers of slots: {sorted(s or 0 for s in slots)}",
                where=hosts[1],
                fix="use hosts of one kind",
            )
        return Told(slots.pop(), hosts[1])

    def console_processes(self, nodes: int) -> Told | None:
        """`llamafactory-cli` starts one for each GPU; the others hand it to accelerate."""
        place = f"{self.target.where}:{self.training.line}"
        given = next((a for a in self.training.arguments if _is_processes(a)), None)
        if given is not None:
            place = self._place(given)
            return Told(self._divided(self._integer(given, given.name), nodes, place), place)
        if self.training.launcher == "llamafactory-cli":
            assigned = self.training.environment.get("NPROC_PER_NODE")
            if assigned is None:
                return Told(None, place)
            text = assigned.value or ""
            number = int(text) if text.isdigit() else None
            return Told(number, f"{self.target.where}:{assigned.line}")
        named = self._in_its_file() if self.training.launcher == "trl" else None
        if named is not None:
            return Told(self._divided(named.number or 1, nodes, named.place), named.place)
        self.unknowns.append(
            f"the processes that {self.training.launcher} starts ({place}): without "
            f"`--num_processes` {_BY_HOME}"
        )
        return None

    def _in_its_file(self) -> Told | None:
        """`num_processes` of the file that `trl --config` names, which it hands to accelerate."""
        named = next((a for a in self.training.arguments if a.name == "--config"), None)
        if named is None or not isinstance(named.value, str):
            return None
        path = self.target.root / self.target.cwd / named.value
        written = self.target.written.get(os.path.normpath(f"{self.target.cwd}/{named.value}"))
        text = text_of(path, named.value, self._place(named)) if written is None else written.text
        config = accelerate_config(text, named.value)
        number = config.number("num_processes")
        return None if number is None else Told(number, config.place("num_processes"))

    def _divided(self, total: int, nodes: int, place: str) -> int:
        if total % nodes:
            raise UserError(
                f"{total} processes cannot be the same number on each of {nodes} nodes",
                where=place,
                fix="make the number of processes a multiple of the number of nodes",
            )
        return total // nodes

    # -- where the numbers come from

    def _given(self, option: str, variable: str) -> tuple[str | None, str] | None:
        """A launcher's option as text with its place, or the variable that stands for it."""
        found = self.training.option(option)
        if found is not None:
            return (None if found.value is None else str(found.value)), self._place(found)
        assigned = self.training.environment.get(variable)
        if assigned is not None:
            return assigned.value, f"{self.target.where}:{assigned.line}"
        return None

    def _scheduler_says(self, place: str) -> bool:
        """Whether a number that only a run knows is the scheduler's, which is read elsewhere."""
        has_nodes = self.request is not None and self.request.nodes is not None
        if not has_nodes and self.target.replicas is None:
            return False
        found = self.training.option("nnodes")
        text = found.raw if found is not None else ""
        named = any(word in text for word in ("SLURM_", "NNODES", "NODES", "PET_", "WORLD_SIZE"))
        if named:
            self.notes.append(f"{place}: the number of nodes is taken from the scheduler's request")
        return named

    @property
    def _config(self) -> AccelerateConfig | None:
        option = self.training.option("config_file")
        if option is None:
            return None
        told_by = self._place(option)
        if not isinstance(option.value, str):
            raise UserError(
                f"which file accelerate reads is `{option.expression or option.raw}`, which only a "
                "run can tell",
                where=told_by,
                fix="write its path out",
            )
        path = self.target.root / self.target.cwd / option.value
        written = self.target.written.get(os.path.normpath(f"{self.target.cwd}/{option.value}"))
        text = text_of(path, option.value, told_by) if written is None else written.text
        return accelerate_config(text, option.value)

    def _from_accelerate(self, name: str) -> Told | None:
        option = self.training.option(name)
        if option is not None:
            return Told(self._integer(option, f"`--{name}`"), self._place(option))
        config = self._config
        number = None if config is None else config.number(name)
        return None if number is None or config is None else Told(number, config.place(name))

    def _deepspeed_hosts(self) -> tuple[tuple[Host, ...], str] | None:
        option, hosts, place = self.training.option("hostfile"), None, ""
        if option is not None:
            place = self._place(option)
            if not isinstance(option.value, str):
                raise self._unreadable("the list of hosts", (None, place), "hostfile")
            path = self.target.root / self.target.cwd / option.value
            hosts = hosts_of_file(path, option.value, place)
        include, exclude = self.training.option("include"), self.training.option("exclude")
        for chosen in (include, exclude):
            place = self._place(chosen) if chosen is not None else place
            if chosen is not None and chosen.value is None:
                raise self._unreadable("the list of hosts", (None, place), chosen.name)
        found = chosen_hosts(hosts, _text(include), _text(exclude))
        return None if found is None else (found, place)

    def _mpi_hosts(self, mpi: Wrapping) -> tuple[Host, ...] | None:
        place = f"{self.target.where}:{mpi.line}"
        for names, read in _HOST_OPTIONS:
            if not mpi.has(*names):
                continue
            value = mpi.option(*names)
            if value is None:
                raise self._unreadable("the list of hosts", (None, place), names[0])
            return read(value, self.target.root / self.target.cwd, place)
        return None

    def _mpi_number(self, mpi: Wrapping, *names: str) -> int | None:
        if not mpi.has(*names):
            return None
        value = mpi.option(*names)
        if value is None or not value.isdigit() or int(value) == 0:
            place = f"{self.target.where}:{mpi.line}"
            raise self._unreadable("the number of processes", (value, place), names[0])
        return int(value)

    def _integer(self, option: Argument, what: str) -> int:
        text = option.value if isinstance(option.value, str) else ""
        if not text.isdigit() or int(text) == 0:
            raise self._unreadable(what, (None, self._place(option)), option.name)
        return int(text)

    def _why(self, given: tuple[str | None, str]) -> str:
        option = self.training.option("nproc_per_node")
        return (option.expression if option is not None else "") or given[0] or "a variable"

    def _place(self, option: Argument) -> str:
        return f"{self.target.where}:{option.line}"

    def _unreadable(self, what: str, given: tuple[str | None, str], name: str) -> UserError:
        option = self.training.option(name)
        text = given[0] or (option.expression or option.raw if option is not None else name)
        return UserError(f"{what} is {text!r}, which only a run can tell", where=given[1], fix=_FIX)


def _family(training: TrainingCommand) -> str:
    return "torchrun" if training.launcher.startswith("python -m") else training.launcher


def _is_processes(argument: Argument) -> bool:
    return argument.name.lstrip("-").replace("-", "_") == "num_processes"


def _text(option: Argument | None) -> str | None:
    return option.value if option is not None and isinstance(option.value, str) else None


def _no_nodes(_: _Placing) -> Iterator[Told]:
    return iter(())


def _no_processes(placing: _Placing, _: int) -> Told | None:
    return None


def _from_file(value: str, folder: Path, place: str) -> tuple[Host, ...]:
    return hosts_of_file(folder / value, value, place)


def _from_list(value: str, folder: Path, place: str) -> tuple[Host, ...]:
    return hosts_of_list(value)


_HOST_OPTIONS: tuple[tuple[tuple[str, ...], Callable[[str, Path, str], tuple[Host, ...]]], ...] = (
    (("H", "host", "hosts"), _from_list),
    (("hostfile", "machinefile", "f", "default-hostfile"), _from_file),
)
_BY_LAUNCHER: dict[str, Callable[[_Placing], Iterator[Told]]] = {
    "torchrun": _Placing.torchrun_nodes,
    "accelerate launch": _Placing.accelerate_nodes,
    "deepspeed": _Placing.deepspeed_nodes,
}
_PROCESSES: dict[str, Callable[[_Placing, int], Told | None]] = {
    "torchrun": _Placing.torchrun_processes,
    "accelerate launch": _Placing.accelerate_processes,
    "deepspeed": _Placing.deepspeed_processes,
    **dict.fromkeys(CONSOLE, _Placing.console_processes),
}
