"""A first infrarsi.yaml for a job, read out of its script and its code."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infrarsi.configs import can_read
from infrarsi.contract import Knob, Launch, Project, Workload
from infrarsi.contract.layout import Comments
from infrarsi.contract.project import Requirements, Verify
from infrarsi.draft import knobs, stack
from infrarsi.draft import resuming as resumes
from infrarsi.draft.batch import Batch, batch_settings, micro_batch
from infrarsi.draft.containers import insist_on_reach
from infrarsi.draft.environment import environment_knobs
from infrarsi.draft.installed import installed_note
from infrarsi.draft.knobs import Found, Surroundings
from infrarsi.draft.launcher_settings import with_launcher_options
from infrarsi.draft.machine import Machine
from infrarsi.draft.native_facts import length_facts, split_facts
from infrarsi.draft.opaque import opaque
from infrarsi.draft.opaque import told as told_word
from infrarsi.draft.parsers import insist_on_known, undefined
from infrarsi.draft.placing import Placement, placement
from infrarsi.draft.programs import SHELL_SUFFIXES, files
from infrarsi.draft.reading import read_settings
from infrarsi.draft.roles import Role, digest, roles
from infrarsi.draft.settings import Setting
from infrarsi.draft.sinks import Sinks, find
from infrarsi.draft.slicing import cut_at
from infrarsi.draft.sources import Sources, uncollected
from infrarsi.draft.speech import is_there
from infrarsi.draft.stack_reading import read_stack
from infrarsi.draft.target import Target, locate, sources_of, with_torchrun
from infrarsi.draft.workload import Length, length
from infrarsi.draft.workload_facts import Fact
from infrarsi.errors import UserError

_FORMATS = "give a YAML, TOML, JSON or Python file"
_CPU_FLAGS = ("--use-cpu", "--no-cuda", "--cpu")
_DEVICE_FLAGS = ("--device", "--accelerator")


@dataclass(frozen=True)
class Evidence:
    """Where one value of the project was read: `path` names the value, `told` the place."""

    path: tuple[str, ...]
    told: str


@dataclass(frozen=True)
class Question:
    """Something only the user knows: `about` names the value, `default` what the draft has."""

    about: tuple[str, ...]
    text: str
    default: str


_RUN_SECTIONS = ("", "run", "train", "training", "trainer", "general", "system", "common")
_ON_GPUS = re.compile(r"cuda|nccl")
_STEPS = re.compile(r"\.(step|fit|train_step|train_batch)\(")


@dataclass(frozen=True)
class Draft:
    """A drafted project, its folder, and how it came about.

    `notes` are facts worth reading, `unknowns` what could not be read and is therefore not searched
    or not guarded by the draft; the witness still watches it. `facts` say what one update consumes.
    """

    project: Project
    root: Path
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    unknowns: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def path(self) -> Path:
        """Where the infrarsi.yaml belongs."""
        return self.root / "infrarsi.yaml"

    @property
    def comments(self) -> Comments:
        """The evidence as comments of the file."""
        return {item.path: item.told for item in self.evidence}


@uncollected()
def draft(
    target: Path,
    *,
    entry: str | None = None,
    config: str | None = None,
    command: str | None = None,
    requirements: Sequence[str] = (),
    machine: Machine | None = None,
    environ: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> Draft:
    """Read the job behind a launch script, a Python entry or a folder; nothing of it is run.

    `environ` is the environment that the job will be started in, `root` the project's folder where
    it is settled already. Raises UserError with the place
    for a job that cannot be understood or that writes where no trial may.
    """
    environ = os.environ if environ is None else environ
    machine = machine or Machine.here(environ)
    found = locate(target, entry=entry, command=command, environ=environ, root=root)
    sources = sources_of(found)
    questions: list[Question] = []
    if found.script_path is None and command is None:
        found = _bare_entry(found, sources, machine, environ, questions)
    kind = stack.recognise(found, sources)
    _insist_on_config(found, config)
    drafting = _Drafting(found, sources, machine, environ, questions, config, kind)
    if entry is not None and found.script_path is None and files(found.root, SHELL_SUFFIXES):
        drafting.notes.append(
            f"no launch script starts {found.entry}, so the job is `{found.command}`: check that "
            "the flags of your real runs are in it"
        )
    return drafting.project(tuple(requirements))


def _insist_on_config(target: Target, config: str | None) -> None:
    if config in target.written:
        return
    if config is not None and not (target.root / config).is_file():
        raise UserError(
            f"there is no {config!r} in {target.root}",
            where="--config",
            fix="give its path relative to the project",
        )
    if config is not None and not can_read(config):
        raise UserError(f"{config!r} is in no format that is read", where="--config", fix=_FORMATS)


def _bare_entry(
    target: Target,
    sources: Sources,
    machine: Machine,
    environ: Mapping[str, str],
    questions: list[Question],
) -> Target:
    place = stack.needs_launcher(sources)
    if place:
        target = with_torchrun(target, max(1, machine.gpus), environ)
        text = f"how is it started? it reads torchrun's variables ({place})"
    else:
        text = "how is it started?"
    questions.append(Question(("launch", "command"), text, target.command))
    return target


class _Drafting:
    """One draft under way: what was read, and what was found out on the way."""

    def __init__(
        self,
        target: Target,
        sources: Sources,
        machine: Machine,
        environ: Mapping[str, str],
        questions: list[Question],
        config: str | None,
        kind: stack.Stack,
    ) -> None:
        self.kind = kind
        self.target = target
        self.sources = sources
        self.environ = environ
        self.questions = questions
        self.notes: list[str] = []
        self.unknowns: list[str] = []
        self.evidence: list[Evidence] = []
        self.notes += [*target.notes, *insist_on_reach(target)]
        if target.module:
            self.notes.append(installed_note(target.module, sources))
        self.placement: Placement = placement(target)
        self.notes += self.placement.notes
        self.settings = self._settings(config)
        self.spawns = stack.spawns(sources) if target.training.launcher == "python" else ""
        self.around = self._surroundings(machine)
        self.reading = read_stack(
            kind,
            target,
            sources,
            self.settings,
            self.around,
            environ,
            self._world(),
            self.placement.nodes,
        )

    def tell(self, *path: str, told: str) -> None:
        """Keep where a value was read."""
        self.evidence.append(Evidence(path, told))

    def project(self, requirements: tuple[str, ...]) -> Draft:
        """All sections of the file."""
        batch = batch_settings(self.settings)
        size = length(self.settings, batch.accumulation, self.sources)
        offered, constraints = self.reading.bound(self._knobs(size), self.notes)
        sinks = find(self.target, self.sources, self.settings, self.kind.dialects)
        files = () if self.target.module else self._roles_of_files()
        self.tell("stack", told=self.reading.told)
        self._redirected()
        resuming = resumes.find(self.settings, self.sources, size, list(sinks.places))
        if resuming is not None:
            self.tell("verify", "resume", told=resuming.told)
        project = Project(
            schema="infrarsi-project-v1",
            name=self._name(),
            stack=self.kind.name,
            launch=self._launch(),
            workload=self._workload(size),
            knobs=self._told(offered),
            constraints=constraints,
            sinks=self._sinks(sinks),
            editable=[role.path for role in files if role.kind == "editable"],
            frozen={r.path: digest(self.target.root, r.path) for r in files if r.is_frozen},
            requirements=Requirements(text=list(requirements)),
            verify=Verify(resume=resuming.resume if resuming is not None else None),
        )
        self._roles(files)
        return Draft(
            project=project,
            root=self.target.root,
            evidence=tuple(self.evidence),
            notes=tuple(dict.fromkeys(self.notes)),
            questions=tuple(self.questions),
            unknowns=tuple(dict.fromkeys([*self.unknowns, *self.around.unknowns])),
            facts=self._facts(batch, size),
        )

    def _facts(self, batch: Batch, size: Length) -> tuple[Fact, ...]:
        """What an update consumes: the words of the stack first, then flags and code."""
        layout = self.reading.layout
        each = layout.data_parallel if layout is not None else None
        found: dict[str, Fact] = {}
        own_loop = self.kind.name in ("native-ddp", "hf-trainer") or not self.kind.dialects
        is_told = any(fact.name == "micro_batch" for fact in self.reading.update.facts)
        by_code = split_facts(batch, self.sources, each) if own_loop and not is_told else ()
        for fact in (*self.reading.update.facts, *by_code, *length_facts(size)):
            found.setdefault(fact.name, fact)
        return tuple(found.values())

    def _redirected(self) -> None:
        """A job that sets HOME keeps things elsewhere than in the user's own home."""
        home = self.target.training.environment.get("HOME")
        if home is not None:
            self.notes.append(
                f"{self.target.where}:{home.line}: the script sets HOME to "
                f"{home.value or home.raw!r}; runs read and write there, not in your own home"
            )

    def _settings(self, config: str | None) -> tuple[Setting, ...]:
        told = read_settings(self.target, self.sources, self.environ, config)
        insist_on_known(self.target, self.sources, told.arguments)
        self.unknowns += told.unknowns
        self._insist_on_steps()
        self.unknowns += [f"{path}: {why}" for path, why in self.sources.unread.items()]
        arguments = opaque(self.target.training.arguments)
        self.unknowns += [told_word(word, self.target.where) for word in arguments]
        is_empty = all(definition.is_env for definition in told.arguments.definitions)
        if is_empty and not told.files:
            self.notes.append(
                f"{self.target.entry} defines no arguments that can be read, and no configuration "
                "file is named, so fewer knobs are offered"
            )
        strange = list(undefined(told.settings))
        for setting in strange:
            self.notes.append(
                f"{setting.origin}: `{setting.place.name}` is passed, but no definition of it was "
                "found in the program; it stays as it is"
            )
        kept = tuple(setting for setting in told.settings if setting not in strange)
        if "accelerate" in self.kind.dialects:
            return with_launcher_options(kept, self.target)
        return kept

    def _insist_on_steps(self) -> None:
        """A program of its own that steps no optimizer is said not to train."""
        is_own = self.kind.name == "native-ddp" and not self.target.module
        if is_own and not any(_STEPS.search(file.text) for file in self.sources.files):
            self.notes.append(
                f"nothing in {self.target.entry}, or in the files of the project that it imports, "
                "steps an optimizer: check that it is the program that trains"
            )

    def _surroundings(self, machine: Machine) -> Surroundings:
        gpus, told = self.placement.gpus, self.placement.processes
        nodes = self.placement.nodes
        asked = gpus.number if gpus is not None and gpus.number else 0
        is_gpu = (machine.gpus > 0 or asked > 0) and self._uses_gpu()
        default = (asked or machine.gpus) if is_gpu else 1
        started = told.number if told is not None else None
        if not is_gpu and machine.gpus == 0 and started and self._uses_gpu():
            self.notes.append(
                f"{told.place if told is not None else ''}: the job starts {started} processes on "
                "a node, and can use GPUs, but there is none here: for nodes with GPUs set "
                f"`launch.gpus_per_node` to {started}"
            )
        self.unknowns += [f"{text}; {default} is assumed" for text in self.placement.unknowns]
        if told is None:
            alone = self.target.training.launcher == "python" and not self.spawns
            if self.spawns:
                self.unknowns.append(
                    f"how many processes the program starts by itself ({self.spawns}); {default} "
                    "are assumed"
                )
            return Surroundings(machine, 1 if alone else default, is_gpu, nodes=nodes)
        return Surroundings(machine, max(1, told.number or default), is_gpu, nodes=nodes)

    def _world(self) -> int | None:
        """The processes of the job; None where the launcher decides on what is not read here."""
        told, nodes = self.placement.processes, self.placement.nodes
        if told is not None:
            return None if told.number is None else told.number * nodes
        is_alone = self.target.training.launcher == "python" and self.kind.name == "native-ddp"
        is_alone = is_alone and not self.spawns
        return self.around.processes if is_alone and nodes == 1 else None

    def _uses_gpu(self) -> bool:
        for setting in self.settings:
            is_of_run = setting.key.rpartition(".")[0].lower() in _RUN_SECTIONS
            is_device = is_of_run and setting.words in _DEVICE_FLAGS
            if is_device and str(setting.value).startswith("cpu"):
                return False
            if setting.words in _CPU_FLAGS and is_there(setting):
                return False
        if self.kind.name != "native-ddp":
            return True  # these stacks take the GPUs that there are
        return any(_ON_GPUS.search(file.text) for file in self.sources.files)

    def _name(self) -> str:
        path = Path(self.target.script_path or self.target.entry)
        folder = self.target.root.name
        self.tell("name", told="the project's folder")
        if path.stem.lower() in ("train", "run", "main", "launch", "start"):
            return folder
        self.evidence[-1] = Evidence(("name",), "the project's folder and the script's name")
        return f"{folder}-{path.stem}"

    def _launch(self) -> Launch:
        training = self.target.training
        self.tell("launch", "command", told=f"starts {self.target.entry} by {training.launcher}")
        placed = self.placement
        by_srun = next((w for w in training.wrappings if w.kind == "slurm"), None)
        if by_srun is not None:
            self.notes.append(
                f"{self.target.where}:{by_srun.line}: srun starts the training, so every run needs "
                "Slurm here"
            )
        if placed.nodes != 1:
            self.tell("launch", "nodes", told=f"{placed.nodes_place} asks for as many")
            self.notes.append(
                f"{placed.nodes_place}: the job asks for {placed.nodes} nodes; this version runs "
                "jobs of one node only"
            )
        return Launch(
            command=self.target.command,
            nodes=placed.nodes,
            gpus_per_node=self._gpus(placed),
            script=self.target.script_path,
        )

    def _gpus(self, placed: Placement) -> int:
        """The GPUs of a node: as many as are asked for, else one for each process."""
        processes = self.around.processes
        if not self.around.is_gpu:
            self.tell("launch", "gpus_per_node", told="no GPU here, or the job uses none")
            return 0
        if placed.gpus is None or placed.gpus.number is None:
            self.tell("launch", "gpus_per_node", told=f"processes on a node: {processes}")
            return processes
        self.tell("launch", "gpus_per_node", told=f"{placed.gpus.place} asks for as many")
        if placed.gpus.number != processes:
            self.notes.append(
                f"{placed.gpus.place}: {placed.gpus.number} GPUs on a node are asked for, but "
                f"{processes} processes are started on it"
            )
        return placed.gpus.number

    def _workload(self, size: Length) -> Workload:
        self.tell("workload", "planned_steps", told=size.origin)
        if size.workload.ends_by == "job":
            told = "the whole job: it is short"
        else:
            told = "a trial ends after this many; the schedule stays that of the whole job"
        self.tell("workload", "optimizer_steps", told=told)
        if size.unknown:
            self.unknowns.append(size.unknown)
            default = str(size.workload.planned_steps)
            text = "how many optimizer steps does the real run take?"
            self.questions.append(Question(("workload", "planned_steps"), text, default))
        return self._consumed(size.workload)

    def _consumed(self, workload: Workload) -> Workload:
        """What an update consumes, where the settings say it; the first run measures it anyway."""
        update = self.reading.update
        found: dict[str, int] = {}
        if update.samples is not None and self.kind.name != "native-ddp":
            found["samples_per_update"] = update.samples
            self.tell("workload", "samples_per_update", told=update.told("global_batch"))
        if update.tokens is not None:
            found["tokens_per_update"] = update.tokens
            self.tell("workload", "tokens_per_update", told=update.told("tokens_per_update"))
        return workload.model_copy(update=found)

    def _knobs(self, size: Length) -> list[Found]:
        batch = batch_settings(self.settings)
        counts = size.in_micro_steps
        split, why = self.reading.split(self.sources, counts_micro_steps=counts) or micro_batch(
            batch, self.sources, self.around, counts_micro_steps=counts
        )
        if cut := cut_at(self.sources):
            self.unknowns.append(f"how large a micro-step is: {cut} cuts a batch into pieces")
        if why:
            self.notes.append(why)
        offered = [] if split is None else [split]
        offered += self.reading.knobs(self.placement.nodes)
        taken = {item.knob.family for item in offered}
        for item in knobs.from_settings(self.reading.other_settings, self.around):
            if item.knob.family not in taken:
                offered.append(item)
        taken = {item.knob.family for item in offered}
        threads_in_code = any("set_num_threads" in file.text for file in self.sources.files)
        for item in environment_knobs(self.target, self.around, self.environ):
            if item.knob.family in taken or (item.knob.family == "cpu_threads" and threads_in_code):
                continue
            offered.append(item)
        return offered

    def _told(self, offered: Sequence[Found]) -> list[Knob]:
        for item in offered:
            self.tell("knobs", item.knob.name, told=item.origin)
        return [item.knob for item in offered]

    def _sinks(self, sinks: Sinks) -> dict[str, str]:
        for place, origin in sinks.origins.items():
            self.tell("sinks", place, told=origin)
        self.notes += sinks.notes
        self.unknowns += sinks.unknowns
        return sinks.places

    def _roles_of_files(self) -> tuple[Role, ...]:
        """What may be edited and what not; a file that the script writes is neither."""
        written = self.target.written
        for path in (file.path for file in self.sources.files if file.path in written):
            self.notes.append(
                f"{written[path].where} writes {path} anew in every run, so no patch changes it"
            )
        return tuple(role for role in roles(self.sources) if role.path not in written)

    def _roles(self, files: Sequence[Role]) -> None:
        for role in files:
            section = "frozen" if role.is_frozen else "editable"
            self.tell(section, role.path, told=role.why)
