"""How a job divides its processes: tensor, pipeline, context and expert parallel, the rest data.

    data parallel = world / (tensor x pipeline x context)

The sizes become knobs only where the numbers that they must divide are known: layers, heads,
experts, sequence length and the global batch. They are bound so that every size divides what it
must, and so that the global batch stays: a multiple of micro batch x data parallel.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infrarsi.contract import Knob, Scalar
from infrarsi.draft.bounds import bind
from infrarsi.draft.knobs import Found
from infrarsi.draft.settings import Setting
from infrarsi.draft.speech import Meaning, Speech

SIZES = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
_OTHERS = ("expert_tensor_parallel", "virtual_pipeline")
_FACTS = {
    "layers": ("--num-layers",),
    "heads": ("--num-attention-heads",),
    "groups": ("--num-query-groups",),
    "experts": ("--num-experts",),
    "sequence": ("--seq-length",),
    "update": ("--global-batch-size",),
}
_MANY = 5
_ONES = re.compile(r" \* 1(?=[ )])")
_DIVISION = "world % (tensor_parallel * pipeline_parallel * context_parallel) == 0"
_UPDATE = (
    "update % (micro_batch * (world // (tensor_parallel * pipeline_parallel * context_parallel)))"
    " == 0"
)
_RULES = (
    "heads % tensor_parallel == 0",
    "groups % tensor_parallel == 0",
    "layers % pipeline_parallel == 0",
    "layers % (pipeline_parallel * virtual_pipeline) == 0",
    "context_parallel == 1 or sequence % (2 * context_parallel) == 0",
)
_OF_EXPERTS = (
    "experts % expert_parallel == 0",
    "world % (pipeline_parallel * expert_parallel * expert_tensor_parallel) == 0",
    "tensor_parallel == 1 or sequence_parallel == true",
)


@dataclass(frozen=True)
class Layout:
    """The processes of a job, the sizes of its groups today, and the numbers that they divide.

    A size that is written but cannot be read is in `unreadable`, and then nothing is divided.
    """

    world: int
    sizes: Mapping[str, Meaning] = field(default_factory=dict)
    facts: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def data_parallel(self) -> int | None:
        """Processes that each see other samples; None where the sizes do not say it."""
        if self.unreadable:
            return None
        inner = 1
        for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
            inner *= self.size(name)
        return self.world // inner if inner and self.world % inner == 0 else None

    def size(self, name: str) -> int:
        """The size of a group today, 1 where the job does not say it."""
        meaning = self.sizes.get(name)
        value = meaning.value if meaning is not None else None
        return value if isinstance(value, int) and value > 0 else 1

    def known(self) -> dict[str, Scalar]:
        """Everything that a rule may name, but what is not known."""
        found: dict[str, Scalar] = {"world": self.world, **self.facts}
        if not self.unreadable:
            found |= {name: self.size(name) for name in (*SIZES, "expert_tensor_parallel")}
        if "virtual_pipeline" in self.sizes:
            found["virtual_pipeline"] = self.size("virtual_pipeline")
        if "groups" not in found and "heads" in found:
            found["groups"] = found["heads"]
        return found

    def knobs(self, per_node: int) -> list[Found]:
        """The sizes that can be searched: each with values that divide what is known."""
        found = []
        for name in SIZES:
            meaning = self.sizes.get(name)
            values = self._values(name, per_node)
            if meaning is None or len(values) < 2 or self.data_parallel is None:
                continue
            place = str(meaning.setting.place)
            knob = Knob(
                name=name, family=name, at=place, values=list(values), reference=self.size(name)
            )
            verb = "passes" if meaning.setting.is_given else "defaults to"
            told = f"{meaning.setting.origin} {verb} {meaning.setting.place.name} {self.size(name)}"
            found.append(Found(knob, told))
        return found

    def _values(self, name: str, per_node: int) -> list[int]:
        divided = {
            "tensor_parallel": [self.facts.get("heads"), per_node],
            "pipeline_parallel": [self.facts.get("layers"), self.world],
            "context_parallel": [self.facts.get("sequence"), self.world],
            "expert_parallel": [self.facts.get("experts"), self.world],
        }[name]
        if any(not number for number in divided) or "update" not in self.facts:
            return []
        if name == "context_parallel" and self.size(name) == 1:
            return []  # it only enables long sequences; nothing is gained where one fits
        most = min(int(number or 0) for number in divided)
        powers = [2**n for n in range(most.bit_length())]
        fitting = [n for n in powers if all((number or 0) % n == 0 for number in divided)]
        return sorted({*fitting[:_MANY], self.size(name)})

    def constraints(self, offered: Sequence[Found], fixed: Mapping[str, Scalar]) -> list[str]:
        """What keeps the sizes and the global batch consistent, over the knobs that there are."""
        knobs = [item.knob for item in offered]
        known = {**fixed, **self.known()}
        found: list[str] = []
        rules = [*self._of_the_update(knobs), *_RULES]
        if self.facts.get("experts"):
            rules += _OF_EXPERTS
        for rule in rules:
            found += bind(rule, knobs, known) or []
        return [_ONES.sub("", text) for text in found]

    def _of_the_update(self, knobs: Sequence[Knob]) -> list[str]:
        """The rules of the global batch: short where no size of a group is searched."""
        if any(knob.family in SIZES for knob in knobs) or self.data_parallel is None:
            return [_DIVISION, _UPDATE]
        return [f"update % (micro_batch * {self.data_parallel}) == 0"]


def layout(
    settings: Sequence[Setting],
    speech: Speech,
    today: Mapping[str, Meaning],
    world: int,
    unseen: Sequence[str] = (),
) -> Layout:
    """The layout that the settings say; `unseen` are words that may hold a size that none gives."""
    sizes = {name: today[name] for name in (*SIZES, *_OTHERS) if name in today}
    unreadable = tuple(
        f"`{m.setting.place.name}` ({m.setting.origin})"
        for m in sizes.values()
        if not isinstance(m.value, int)
    )
    unreadable += tuple(
        f"`{s.place.name}` ({s.origin})" for s in settings if _is_hidden_size(s, speech, sizes)
    )
    given = [name for name in sizes if sizes[name].setting.is_given]
    if _is_sized(settings, speech) and not set(SIZES[:2]) <= set(given):
        unreadable += tuple(unseen)
    facts = _facts(settings) if "megatron" in speech.names else {}
    return Layout(world, sizes, facts, unreadable)


def _is_sized(settings: Sequence[Setting], speech: Speech) -> bool:
    """Whether the program takes sizes of groups at all."""
    return any(each.family in SIZES for s in settings for _, each in speech.spellings(s))


def _is_hidden_size(setting: Setting, speech: Speech, sizes: Mapping[str, Meaning]) -> bool:
    """Whether a size is not written, and what it is without is made by code."""
    families = {spelling.family for _, spelling in speech.spellings(setting)} & set(SIZES)
    told = {name for name in families if name in sizes and sizes[name].setting.is_given}
    return not setting.is_known and not setting.is_given and bool(families - told)


def _facts(settings: Sequence[Setting]) -> dict[str, int]:
    found: dict[str, int] = {}
    for setting in sorted(settings, key=lambda s: not s.is_given):
        names = setting.definition.names if setting.definition is not None else ()
        for fact, flags in _FACTS.items():
            if {setting.place.name, *names} & set(flags) and isinstance(setting.value, int):
                found.setdefault(fact, setting.value)
    return found
