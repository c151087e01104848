"""Optimizers and their settings at each step, whatever implementation computes them.

Settings are compared for parameters, not for groups: a patch may merge two groups of the same
settings, or split one. So an optimizer at a step is a count of parameter elements for each distinct
set of settings.

Optimizers that share their parameters out over ranks (ZeRO, Megatron's distributed optimizer) hold
another count on each rank than replicated ones, in flattened and padded pieces. What is compared
then is the part that each set of settings has of all elements on all ranks; that every parameter
moves as in the reference is judged by `optimizer_steps`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infrarsi.contract import RankRecord
from infrarsi.verify.fingerprints import model_lines

IMPLEMENTATION = frozenset(
    # how it is computed, not what: torch; Apex and DeepSpeed; bookkeeping of schedulers and engines
    (
        *("foreach", "fused", "capturable", "differentiable", "set_grad_none", "master_weights"),
        *("use_triton", "initial_lr", "param_names", "name", "names"),
    )
)
DEFAULTS: Mapping[str, Any] = {
    # what a class that does not name a setting does
    "amsgrad": False,
    "maximize": False,
    "bias_correction": True,
    "momentum": 0,
    "dampening": 0,
    "nesterov": False,
    "weight_decay": 0,
    "centered": False,
}
FAMILIES: Mapping[str, frozenset[str]] = {
    # torch's own; `fused` and `foreach` are flags of the same class
    "AdamW": frozenset({"adamw"}),
    "Adam": frozenset({"adam"}),
    "SGD": frozenset({"sgd"}),
    # Apex, DeepSpeed and TransformerEngine: one class for both ways of weight decay, chosen by
    # `adam_w_mode`, which is no setting of a group: the weight path tells them apart
    "FusedAdam": frozenset({"adam", "adamw"}),
    "DeepSpeedCPUAdam": frozenset({"adam", "adamw"}),
    "FusedAdamW": frozenset({"adamw"}),
    "FusedSGD": frozenset({"sgd"}),
    # bitsandbytes in 32 bits; its 8-bit classes have other names and are another optimizer
    "AdamW32bit": frozenset({"adamw"}),
    "Adam32bit": frozenset({"adam"}),
}
WRAPPERS = frozenset(
    # step other optimizers that have lines of their own
    (
        *("AcceleratedOptimizer", "OptimizersContainer", "OptimizersInBackwardContainer"),
        *("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "FP16_Optimizer"),
        *("BF16_Optimizer", "Float16OptimizerWithFloat16Params", "FP32Optimizer"),
        *("ChainedOptimizer", "DistributedOptimizer"),
    )
)
_PADDING = 2e-3  # of all elements: flattened pieces are filled up to equal lengths
_TOLERANCE = 1e-6  # relative: a rate kept in a float32 tensor is another number in its 8th digit


@dataclass(frozen=True)
class Settings:
    """One distinct set of settings: which optimizer families it may be, and its scalars."""

    families: frozenset[str]
    values: tuple[tuple[str, Any], ...]


def family(cls: object, settings: Mapping[str, Any]) -> frozenset[str]:
    """What an optimizer class computes; a class that is not known is a family of its own.

    Without weight decay Adam and AdamW are the same.
    """
    path = str(cls)
    name = path.rsplit(".", 1)[-1]
    found = FAMILIES.get(name, frozenset({name}))
    if name == "Adam" and settings.get("decoupled_weight_decay"):
        found = frozenset({"adamw"})
    if found & {"adam", "adamw"} and not settings.get("weight_decay", 0):
        found = found | {"adam", "adamw"}
    return found


def settings_at(rank: RankRecord, step: int) -> dict[Settings, int]:
    """Parameter elements by settings, as they are in the updates of that step."""
    found: dict[Settings, int] = {}
    lines = [line for line in rank.optimizers if isinstance(line, dict)]
    real = [line for line in lines if _name(line) not in WRAPPERS] or lines
    for line in real:
        for number, group in enumerate(line.get("groups") or ()):
            values = dict(group.get("settings") or {})
            for change in rank.settings:
                same = change.get("optimizer") == line.get("name")
                if same and change.get("group") == number and _index(change) <= step:
                    values.update(change.get("settings") or {})
            key = _key(_class(line), values)
            found[key] = found.get(key, 0) + int(group.get("numel") or 0)
    return found


def _class(line: Mapping[str, Any]) -> object:
    """The class of an optimizer; of a job's own class the known one that it comes from.

    Such a class may step in its own way, which the weight path and the states tell.
    """
    if _name(line) in FAMILIES:
        return line.get("cls")
    return next((base for base in line.get("bases") or () if base in FAMILIES), line.get("cls"))


def change_steps(rank: RankRecord) -> set[int]:
    """Steps at which a setting changed; the first step always."""
    return {0} | {_index(change) for change in rank.settings}


def settings_difference(
    pairs: Sequence[tuple[RankRecord, RankRecord]], steps: Sequence[int]
) -> str:
    """The first rank and step with other settings, and which, in words; "" where there is none.

    `pairs` are ranks of the reference and of a run, as `structure.paired_ranks` gives them.
    """
    for ours, theirs in pairs:
        if ours.optimizers and not theirs.optimizers:
            return f"rank {theirs.rank}: no optimizer was seen"
    found = next((text for pair in pairs if (text := _rank_difference(*pair, steps))), "")
    sides = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
    if found and any(map(_is_shared_out, sides)):
        return _parts_difference(*sides, steps)
    return found


def _rank_difference(ours: RankRecord, theirs: RankRecord, steps: Sequence[int]) -> str:
    if not ours.optimizers:
        return ""
    for step in sorted((change_steps(ours) | change_steps(theirs)) & set(steps)):
        difference = _difference(settings_at(ours, step), settings_at(theirs, step))
        if difference:
            return f"rank {theirs.rank}: step {step}: {difference}"
    return ""


def _is_shared_out(ranks: Sequence[RankRecord]) -> bool:
    """Whether each rank optimizes a part of its parameters, and all of them together each once.

    Of a model that is itself split over ranks, each part once.
    """
    trainable = max(_trainable(rank) for rank in ranks)
    held = [sum(settings_at(rank, 0).values()) for rank in ranks]
    if not trainable or max(held) >= trainable:
        return False
    copies = sum(held) / trainable
    return round(copies) >= 1 and abs(copies - round(copies)) <= _PADDING * round(copies)


def _trainable(rank: RankRecord) -> int:
    return sum(int(line.get("trainable") or 0) for line in model_lines(rank))


def _parts_difference(
    reference: Sequence[RankRecord], run: Sequence[RankRecord], steps: Sequence[int]
) -> str:
    """As `settings_difference`, of the parts that settings have of all elements on all ranks."""
    changes: set[int] = set().union(*(change_steps(rank) for rank in (*reference, *run)))
    for step in sorted(changes & set(steps)):
        if difference := _part_difference(_parts_at(reference, step), _parts_at(run, step)):
            return f"step {step}: {difference}"
    return ""


def _parts_at(ranks: Sequence[RankRecord], step: int) -> dict[Settings, float]:
    counts: dict[Settings, int] = {}
    for rank in ranks:
        for settings, numel in settings_at(rank, step).items():
            counts[settings] = counts.get(settings, 0) + numel
    total = sum(counts.values()) or 1
    return {settings: numel / total for settings, numel in counts.items()}


def _part_difference(ours: dict[Settings, float], theirs: dict[Settings, float]) -> str:
    left = dict(theirs)
    for wanted, part in ours.items():
        same = [other for other in left if same_settings(wanted, other)]
        found = sum(left.pop(other) for other in same)
        if not same and left:
            near = min(left, key=lambda other: len(_changed(wanted, other)))
            return f"{', '.join(_changed(wanted, near))} ({left[near]:.1%} of the parameters)"
        if abs(found - part) > _PADDING:
            return (
                f"{found:.1%} of the parameters have {_text(wanted)}, in the reference {part:.1%}"
            )
    if sum(left.values()) > _PADDING:
        return f"{sum(left.values()):.1%} of the parameters have {_text(next(iter(left)))}, new"
    return ""


def _difference(ours: dict[Settings, int], theirs: dict[Settings, int]) -> str:
    left = dict(theirs)
    unmatched: dict[Settings, int] = {}
    for wanted, numel in ours.items():
        found = 0
        for other in [other for other in left if same_settings(wanted, other)]:
            found += left.pop(other)
        if found != numel:
            unmatched[wanted] = found
    if not unmatched and not left:
        return ""
    if not unmatched:
        return f"{sum(left.values())} parameters with {_text(next(iter(left)))} are new"
    wanted, found = next(iter(unmatched.items()))
    same_total = sum(ours.values()) == sum(theirs.values())
    others = left or (theirs if same_total else {})
    near = min(others, key=lambda entry: len(_changed(wanted, entry)), default=None)
    changed = ", ".join(_changed(wanted, near)) if near else ""
    if near and changed:
        return f"{changed} ({theirs[near]} parameters have it so)"
    return f"{found} parameters have {_text(wanted)}, in the reference {ours[wanted]}"


def same_settings(ours: Settings, theirs: Settings) -> bool:
    """Whether two sets of settings say the same, rounding of a stored rate aside."""
    return not _changed(ours, theirs)


def _changed(ours: Settings, theirs: Settings) -> list[str]:
    found = []
    if not ours.families & theirs.families:
        names = ["/".join(sorted(s.families)) for s in (theirs, ours)]
        found.append(f"the optimizer is {names[0]}, in the reference {names[1]}")
    a, b = dict(ours.values), dict(theirs.values)
    for key in sorted({*a, *b}):
        wanted, value = (side.get(key, DEFAULTS.get(key)) for side in (a, b))
        if key == "decoupled_weight_decay" and (key not in a or key not in b):
            continue  # older torch has no such setting; the family says it
        if not _close(wanted, value):
            found.append(f"`{key}` is {value!r}, in the reference {wanted!r}")
    return found


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or abs(a - b) <= _TOLERANCE * max(abs(a), abs(b)) or (a != a and b != b)
    return bool(a == b)


def _key(cls: object, values: Mapping[str, Any]) -> Settings:
    kept = {k: v for k, v in values.items() if k not in IMPLEMENTATION}
    frozen = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in kept.items()))
    return Settings(family(cls, kept), frozen)


def _text(settings: Settings) -> str:
    values = dict(settings.values)
    shown = [f"{key} {values[key]!r}" for key in ("lr", "weight_decay", "betas") if key in values]
    return f"{'/'.join(sorted(settings.families))} {' '.join(shown)}".strip()


def _name(line: Mapping[str, Any]) -> str:
    return str(line.get("cls")).rsplit(".", 1)[-1]


def _index(change: Mapping[str, Any]) -> int:
    return int(change.get("i", 0))
