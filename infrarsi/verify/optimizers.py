"""Optimizers and their settings at each step, whatever implementation computes them.

Settings are compared for parameters, not for groups: a patch may merge two groups of the same
settings, or split one. So an optimizer at a step is a count of parameter elements for each distinct
set of settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infrarsi.contract import RankRecord

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
            key = _key(line.get("cls"), values)
            found[key] = found.get(key, 0) + int(group.get("numel") or 0)
    return found


def change_steps(rank: RankRecord) -> set[int]:
    """Steps at which a setting changed; the first step always."""
    return {0} | {_index(change) for change in rank.settings}


def settings_difference(ours: RankRecord, theirs: RankRecord, steps: list[int]) -> str:
    """The first step with other settings, and which, in words; "" where there is none."""
    if not theirs.optimizers:
        return "no optimizer was seen"
    changes = sorted(step for step in change_steps(ours) | change_steps(theirs) if step in steps)
    for step in changes:
        difference = _difference(settings_at(ours, step), settings_at(theirs, step))
        if difference:
            return f"step {step}: {difference}"
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
