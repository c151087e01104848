"""The settings of a job that mean something to the catalogue, as knobs with sensible values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from infrarsi.contract import Knob, PlaceKind, Scalar, ValueChange
from infrarsi.draft.machine import Machine
from infrarsi.draft.settings import Setting
from infrarsi.families import Family, catalogue

_MANY = 6  # values of one knob
_BUCKETS_MB = (10, 25, 50, 100)
_PREFETCH = (2, 4, 8)
_WORKERS = (0, 1, 2, 4, 8, 12, 16)
_NEVER = ("micro_batch", "gradient_accumulation", "process_count")


@dataclass(frozen=True)
class Found:
    """A knob, where its reference value was read, and constraints that come with it."""

    knob: Knob
    origin: str
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Surroundings:
    """What values depend on: the machine, the processes on it, whether they use GPUs.

    `nodes` is how many such machines there are.
    """

    machine: Machine
    processes: int
    is_gpu: bool
    unknowns: list[str] = field(default_factory=list)
    nodes: int = 1

    @property
    def world(self) -> int:
        """The processes on all nodes: by so many an update is divided."""
        return self.processes * self.nodes

    @property
    def cores_each(self) -> int:
        """Cores for one process."""
        return max(1, self.machine.cpus // max(1, self.processes))


def from_settings(settings: Sequence[Setting], around: Surroundings) -> list[Found]:
    """One knob for each family that the job's own flags or variables set; the first flag counts."""
    found: dict[str, Found] = {}
    for setting in sorted(settings, key=lambda s: (not s.is_given, s.words.startswith("--no-"))):
        family = _family(setting)
        if family is None or family.name in _NEVER or family.name in found:
            continue
        if ("gpu" if around.is_gpu else "cpu") not in family.devices:
            continue
        if not setting.is_known:
            around.unknowns.append(f"`{setting.place.name}` ({setting.origin}): {setting.why}")
            continue
        made = _made(family, setting, around)
        if made is not None:
            found[family.name] = made
    return [_with_workers(item, found) for item in found.values()]


def _family(setting: Setting) -> Family | None:
    if setting.place.kind is PlaceKind.ENV:
        by_env = catalogue().by_env(setting.place.name)
        if by_env is not None:
            return None  # the environment of the process is offered apart, see `environment`
    for name in setting.spellings:
        family = catalogue().by_flag(name)
        if family is None and name.startswith("--no-") and setting.is_switch:
            family = catalogue().by_flag("--" + name[5:])
        if family is not None:
            return family
    return None


def _made(family: Family, setting: Setting, around: Surroundings) -> Found | None:
    if setting.is_switch:
        return _switch(family, setting)
    definition = setting.definition
    if definition is not None and setting.place.name in definition.negatives:
        return _negated(family, setting)
    if definition is not None and definition.kind == "truthy":
        return None  # no word but the empty one says no
    if definition is not None and definition.kind == "bool" and isinstance(setting.value, bool):
        words = definition.words
        return _listed(family, setting, words, words[setting.value])
    if setting.definition is not None and setting.definition.choices:
        choices = setting.definition.choices
        usable = [c for c in choices if family.canonical(c) in family.values]
        if setting.value in usable:
            return _listed(family, setting, usable, setting.value)
        return None
    if family.law == "doubling" and isinstance(setting.value, int):
        return _listed(family, setting, _numbers(family, setting.value, around), setting.value)
    if set(family.values) == {False, True} and setting.value in (0, 1):
        return _listed(family, setting, (0, 1), setting.value)
    return None


def _listed(
    family: Family, setting: Setting, values: Sequence[Scalar], reference: Scalar | None
) -> Found | None:
    if reference is None or reference not in values or len(values) < 2:
        return None
    knob = Knob(
        name=family.name,
        family=family.name,
        at=str(setting.place),
        values=list(values),
        reference=reference,
    )
    return Found(knob, _told(setting))


def _negated(family: Family, setting: Setting) -> Found | None:
    """`--nocompile` today: the other value takes it away and writes `--compile=true`."""
    definition = setting.definition
    if definition is None or not definition.is_joined:
        return None
    off, on = family.canonical(False), family.canonical(True)
    if off == on or setting.value is not False:
        return None
    negative = f"flag:{setting.place.name}"
    changes = {
        off: ValueChange(set={negative: True}),
        on: ValueChange(set={f"flag:{definition.flag}=": definition.words[1]}, remove=[negative]),
    }
    knob = Knob(name=family.name, family=family.name, values=changes, reference=off)
    return Found(knob, _told(setting))


def _switch(family: Family, setting: Setting) -> Found | None:
    """A flag without a value: `--x` sets, `--no-x` (store_false) clears."""
    if not isinstance(setting.value, bool) or setting.definition is None:
        return None
    flag = setting.place.name
    is_negative = flag.startswith("--no-") and setting.definition.action == "store_true"
    present, absent = f"flag:{flag}", f"flag:{setting.definition.negative}"
    if setting.definition.action == "optional":
        on = ValueChange(set={present: True}, remove=[absent])
        off = ValueChange(set={absent: True}, remove=[present])
    elif is_negative or setting.definition.action == "store_false":
        on, off = ValueChange(remove=[present]), ValueChange(set={present: True})
    else:
        on, off = ValueChange(set={present: True}), ValueChange(remove=[present])
    value = setting.value != is_negative
    words: dict[bool, Scalar] = {False: family.canonical(False), True: family.canonical(True)}
    if words[False] == words[True]:
        return None
    knob = Knob(
        name=family.name,
        family=family.name,
        values={words[False]: off, words[True]: on},
        reference=words[value],
    )
    return Found(knob, _told(setting))


def _numbers(family: Family, reference: int, around: Surroundings) -> list[Scalar]:
    limit = around.cores_each
    if family.name == "dataloader_workers":
        room = around.machine.cpus if not around.is_gpu else limit
        wanted = [n for n in _WORKERS if n <= room]
    elif family.name == "cpu_threads":
        wanted = powers_up_to(limit)
    elif family.name == "ddp_bucket":
        wanted = list(_BUCKETS_MB)
    elif family.name == "dataloader_prefetch":
        wanted = list(_PREFETCH)
    else:
        wanted = []
    return sorted({*wanted, reference})


def _with_workers(found: Found, all_found: dict[str, Found]) -> Found:
    """Prefetching and persistent workers need workers; torch refuses them otherwise."""
    name, reference = found.knob.family, found.knob.reference
    if name not in ("dataloader_prefetch", "dataloader_persistent_workers"):
        return found
    if "dataloader_workers" not in all_found:
        return found
    spelled = str(reference).lower() if not isinstance(reference, str) else f"'{reference}'"
    return Found(found.knob, found.origin, (f"{name} == {spelled} or dataloader_workers > 0",))


def powers_up_to(limit: int) -> list[int]:
    """1, 2, 4, ... up to `limit`, and `limit` itself."""
    powers = [2**n for n in range(int(math.log2(max(1, limit))) + 1)]
    return sorted({*powers, max(1, limit)})


def spread(reference: int, candidates: Sequence[int]) -> list[int]:
    """At most six candidates, those nearest to the reference; larger ones count as nearer."""

    def far(value: int) -> float:
        doublings = math.log2(value / reference)
        return doublings if doublings >= 0 else -1.5 * doublings

    return sorted(sorted(candidates, key=far)[:_MANY])


def _told(setting: Setting) -> str:
    value = setting.value
    shown = str(value).lower() if isinstance(value, bool) else value
    verb = "passes" if setting.is_given else "defaults to"
    return f"{setting.origin} {verb} {setting.place.name} {shown}"
