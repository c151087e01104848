"""What a job's stack adds to its draft: knobs by its dialects, its layout, what an update is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import Knob, Place, PlaceKind, Scalar, ValueChange
from infrarsi.draft import deepspeed_batch, stack_knobs
from infrarsi.draft.bounds import canonical, with_rules
from infrarsi.draft.experts import Experts, experts
from infrarsi.draft.knobs import Found, Surroundings, spread
from infrarsi.draft.layout import Layout, layout
from infrarsi.draft.opaque import opaque
from infrarsi.draft.settings import Setting, guessed
from infrarsi.draft.sources import Sources
from infrarsi.draft.speech import Meaning, Speech, is_there, names_of
from infrarsi.draft.stack import Stack
from infrarsi.draft.target import Target
from infrarsi.draft.versions import Versions
from infrarsi.draft.workload_facts import Update, changing, update
from infrarsi.families import dialects

_OWN = ("micro_batch", "gradient_accumulation", "process_count")  # offered with the batch, or never
_BATCHES = {"megatron": "--global-batch-size", "torchtitan": "--training.global_batch_size"}
_OWN_LOADER = (
    "the program's own loader makes the micro batches, whatever DeepSpeed's file says of them; the "
    "micro batch is not searched"
)
_KEYS = {  # the dialects whose names may be added to a file that is written in the first of them
    "deepspeed": ("deepspeed",),
    "axolotl": ("axolotl",),
    "llama-factory": ("llama-factory", "hf-trainer"),
}
_SIGNS = {"deepspeed": 1, "axolotl": 2, "llama-factory": 1}
_NEED_WORKERS = ("dataloader_prefetch", "dataloader_persistent_workers")


@dataclass(frozen=True)
class StackReading:
    """A stack and what its settings mean; `world` is None where the processes are not known."""

    stack: Stack
    speech: Speech
    settings: tuple[Setting, ...]
    environment: tuple[Setting, ...]
    around: Surroundings
    today: Mapping[str, Meaning]
    layout: Layout | None
    update: Update
    experts: Experts | None
    changing: str | None = None  # the flag by which the batch changes while the job runs

    @property
    def told(self) -> str:
        """The stack with its sign, and whether there are experts."""
        if self.experts is None:
            return f"{self.stack.told}; dense: nothing shows experts"
        number = "" if self.experts.number is None else f"{self.experts.number} "
        return f"{self.stack.told}; {number}experts: {self.experts.place}"

    @property
    def other_settings(self) -> tuple[Setting, ...]:
        """The settings that no dialect knows: the program's own."""
        return tuple(s for s in self.settings if not self.speech.spellings(s))

    def split(
        self, sources: Sources, *, counts_micro_steps: bool
    ) -> tuple[Found | None, str] | None:
        """The micro batch of a stack that works the accumulation out by itself; None of others."""
        name = next((n for n in self.speech.names if n in _BATCHES), None)
        micro = self.today.get("micro_batch")
        if self.changing is not None:
            return None, (
                f"`{self.changing}` changes the batch while the job runs; the micro batch is not "
                "searched"
            )
        each = self.layout.data_parallel if self.layout is not None else None
        if self.stack.name == "deepspeed" and name is None:
            found = deepspeed_batch.split(
                self.settings, each, counts_micro_steps=counts_micro_steps
            )
            return (None, _OWN_LOADER) if found and not _feeds(sources) else found
        if name is None or micro is None:
            return None
        if each is None or not isinstance(micro.value, int):
            return None, (
                "how many processes share an update is not known, so the micro batch is not "
                "searched: another one could change the update"
            )
        return self._split(micro, micro.value, each, _BATCHES[name])

    def _split(self, micro: Meaning, size: int, each: int, whole: str) -> tuple[Found | None, str]:
        place, setting = str(micro.setting.place), self._named(whole)
        written = setting is not None and isinstance(setting.value, int) and setting.value > 0
        total = int(setting.value or 0) if setting is not None and written else size * each
        fitting = [n for n in range(1, total // each + 1) if total % (n * each) == 0]
        if size not in fitting:
            return None, f"{micro.setting.origin}: {size} x {each} does not divide {total}"
        beside = {} if written else {stack_knobs.beside(micro.setting, whole): total}
        values: dict[Scalar, ValueChange] = {
            n: ValueChange(set={place: n, **({} if n == size else beside)})
            for n in spread(size, fitting)
        }
        origin = (
            f"{micro.setting.origin}: {micro.setting.place.name} {size} on {each} data-parallel "
            f"processes; an update stays {total} samples"
        )
        if len(values) < 2:
            return None, f"{origin}: there is no other split"
        knob = Knob(name="micro_batch", family="micro_batch", values=values, reference=size)
        return Found(knob, origin), ""

    def _named(self, name: str) -> Setting | None:
        for setting in sorted(self.settings, key=lambda s: not s.is_given):
            own = setting.definition.names if setting.definition is not None else ()
            if name in (setting.place.name, *own):
                return setting
        return None

    def knobs(self, nodes: int) -> list[Found]:
        """The knobs that the stack's own names and the environment give."""
        own = (*self.settings, *self._absent())
        found = stack_knobs.from_settings(own, self.speech, self.around, but=_OWN)
        anywhere = replace(self.speech, names=("environment",))
        found += stack_knobs.from_settings(self.environment, anywhere, self.around, but=_OWN)
        if self.layout is not None and self.around.is_gpu:
            per_node = max(1, self.layout.world // max(1, nodes))
            found += self.layout.knobs(per_node)
        return self._with_workers(found)

    def _absent(self) -> Iterator[Setting]:
        """Keys that a dialect knows and a file that is written in it does not have."""
        written: dict[str, set[str]] = {}
        for setting in self.settings:
            if setting.place.kind is PlaceKind.CONFIG:
                written.setdefault(setting.place.file, set()).add(setting.place.key)
        changeable = {s.place.file for s in self.settings if s.is_known}
        for file, keys in written.items():
            if file not in changeable:
                continue
            first = next((n for n in _KEYS if n in self.speech.names and _is_of(n, keys)), None)
            for name in _KEYS.get(first or "", ()):
                for spelling in dialects()[name].spellings:
                    if spelling.name not in keys:
                        keys.add(spelling.name)
                        place = Place(PlaceKind.CONFIG, f"{file}:{spelling.name}")
                        yield Setting(place, None, dialects()[name].package, False, True, None)

    def _with_workers(self, found: Sequence[Found]) -> list[Found]:
        """Workers for the cores there are; what needs workers is bound to them, or left out."""
        workers = next((f.knob for f in found if f.knob.family == "dataloader_workers"), None)
        fixed = self.today.get("dataloader_workers")
        count = fixed.value if fixed is not None else None
        kept = []
        for item in found:
            if item.knob is workers:
                item = self._for_cores(item)
            if item.knob.family in _NEED_WORKERS:
                if workers is None and not count:
                    continue
                if workers is not None:
                    rule = f"{item.knob.family} == false or dataloader_workers > 0"
                    item = replace(item, constraints=(*item.constraints, rule))
            kept.append(item)
        return kept

    def _for_cores(self, item: Found) -> Found:
        room = self.around.cores_each if self.around.is_gpu else self.around.machine.cpus
        values = {
            value: change
            for value, change in dict(item.knob.values).items()  # type: ignore[arg-type]
            if value == item.knob.reference or int(value) <= room
        }
        return replace(item, knob=item.knob.model_copy(update={"values": values}))

    def bound(self, offered: Sequence[Found], notes: list[str]) -> tuple[list[Found], list[str]]:
        """(the knobs that can be kept within their families' rules, the constraints over all)."""
        fixed = self._fixed(offered)
        kept = with_rules(offered, fixed, notes)
        found = [text for item in kept for text in item.constraints]
        if self.layout is not None:
            for item in offered:
                if item not in kept:
                    fixed[item.knob.family] = canonical(item.knob, item.knob.reference)
            found += self.layout.constraints(kept, fixed)
        return kept, list(dict.fromkeys(found))

    def _fixed(self, offered: Sequence[Found]) -> dict[str, Scalar]:
        """Families that are no knobs, with the value that they have as far as it is said."""
        knobs = {item.knob.family for item in offered}
        found: dict[str, Scalar] = {"tensor_parallel": 1, "context_parallel": 1}
        found |= {"pipeline_parallel": 1, "expert_parallel": 1, "nccl_graph_register": True}
        if self.layout is not None and self.layout.unreadable:
            found = {}
        found |= {n: m.value for n, m in self.today.items() if m.value is not None}
        return {name: value for name, value in found.items() if name not in knobs}


def _is_of(dialect: str, keys: set[str]) -> bool:
    """Whether a file is written in a dialect: most of what it says of families are its names."""
    return sum(bool(dialects()[dialect].of_name(key)) for key in keys) >= _SIGNS[dialect]


def _feeds(sources: Sources) -> bool:
    """Whether DeepSpeed's micro batch decides on what the job reads."""
    return any(
        "train_micro_batch_size_per_gpu" in file.text or "training_data=" in file.text
        for file in sources.files
    )


def read_stack(
    stack: Stack,
    target: Target,
    sources: Sources,
    settings: Sequence[Setting],
    around: Surroundings,
    environ: Mapping[str, str],
    world: int | None,
    nodes: int,
) -> StackReading:
    """What the settings of a launch mean to its stack."""
    kept = tuple(settings)
    conditions = {"several"} if (world or 1) > 1 else set()
    conditions |= {"nodes"} if nodes > 1 else set()
    conditions |= {"megatron"} if stack.name == "megatron" else set()
    conditions |= (
        {"ddp"} if "several" in conditions and not _is_sharded(stack, kept, target) else set()
    )
    mixture = experts(kept, sources)
    conditions |= {"moe"} if mixture is not None else set()
    versions = Versions(target.root, target.script.text)
    speech = Speech(stack.dialects, versions, frozenset(conditions))
    today = speech.today(kept)
    stage = today.get("zero_stage")
    if stage is not None and stage.value not in (0, None):
        conditions |= {"zero", "zero3"} if stage.value == 3 else {"zero"}
        speech = replace(speech, conditions=frozenset(conditions))
    unseen = tuple(f"`{a.raw.strip()}`" for a in opaque(target.training.arguments))
    divided = None if world is None else layout(kept, speech, today, world, unseen)
    passed = [argument.name for argument in target.training.arguments] + [*unseen]
    passed += [setting.place.name for setting in kept if setting.is_given and is_there(setting)]
    launcher = target.training.launcher
    facts = update(kept, sources, stack, today, divided, passed, launcher)
    variables = environment_settings(target, environ)
    return StackReading(
        *(stack, speech, kept, variables, around, today, divided, facts, mixture),
        changing=changing(passed) if stack.dialects else None,
    )


def _is_sharded(stack: Stack, settings: Sequence[Setting], target: Target) -> bool:
    """Whether parameters or their states are shared out by something else than DDP."""
    options = {option.name.lstrip("-") for option in target.training.launcher_options}
    return (
        stack.name not in ("hf-trainer", "native-ddp")
        or "deepspeed" in stack.dialects
        or bool({"use_fsdp", "use_deepspeed"} & options)
        or any(
            name.partition(".")[0].lstrip("-") in ("fsdp", "fsdp_config", "deepspeed_config")
            for setting in settings
            if setting.is_given and is_there(setting)
            for name in names_of(setting)
        )
    )


def environment_settings(target: Target, environ: Mapping[str, str]) -> tuple[Setting, ...]:
    """The variables of the catalogue as settings of this launch, set or not."""
    found = []
    for name in dict.fromkeys(each.name for each in dialects()["environment"].spellings):
        place = Place(PlaceKind.ENV, name)
        assignment = target.training.environment.get(name)
        if assignment is not None:
            origin = f"{target.where}:{assignment.line}"
            value = None if assignment.value is None else guessed(assignment.value)
            why = "" if value is not None else f"it depends on `{assignment.raw}`"
            found.append(Setting(place, value, origin, True, value is not None, None, why))
        elif name in environ:
            value = guessed(environ[name])
            found.append(Setting(place, value, "the environment", True, True, None))
        else:
            found.append(Setting(place, None, "torch", False, True, None))
    return tuple(found)
