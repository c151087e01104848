"""Precisions by name: which is lower, and which the contract allows."""

from collections.abc import Iterable

from infrarsi.contract import Project

NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "tf32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp8": "float8",
}
_MANTISSA = {
    "float64": 52,
    "float32": 23,
    "tf32": 10,
    "float16": 10,
    "bfloat16": 7,
    "float8": 3,
    "float8_e4m3fn": 3,
    "float8_e4m3fnuz": 3,
    "float8_e5m2": 2,
    "float8_e5m2fnuz": 2,
    "float4_e2m1fn_x2": 1,
}
"""Bits of the mantissa."""
_FLOORS = {"tf32": "float16"}  # as many bits of the mantissa
_FLOOR_ORDER = ("float64", "float32", "float16", "bfloat16")


def canonical(name: object) -> str:
    """A precision under torch's name: `bf16`, `torch.bfloat16` and `bfloat16` are one."""
    text = str(name).strip().lower().removeprefix("torch.")
    return NAMES.get(text, text)


def bits(name: str) -> int | None:
    """Bits of the mantissa; None for what is no floating-point precision that is known."""
    return _MANTISSA.get(canonical(name))


def is_floating(name: object) -> bool:
    """Whether a dtype is a floating-point one, known or not."""
    return canonical(name).startswith(("float", "bfloat", "tf32"))


def within(found: str, menu: Iterable[str]) -> bool:
    """Whether a precision is on the menu, or strictly finer than something on it.

    float16 and bfloat16 are not exchanged for each other: one lacks mantissa, the other range.
    """
    name, allowed = canonical(found), [canonical(other) for other in menu]
    if name in allowed or (name.startswith("float8_") and "float8" in allowed):
        return True
    own = bits(name)
    if own is None:
        return False
    known = [other for other in (bits(entry) for entry in allowed) if other is not None]
    sixteen = {"float16", "bfloat16", "tf32"}
    finer = own >= 23 or name not in sixteen or not sixteen & set(allowed)
    return finer and any(own > other for other in known)


def allowed_names(project: Project) -> frozenset[str]:
    """Precisions that `allow` names, under torch's names."""
    return frozenset(
        canonical(name) for name in project.allow if canonical(name) in set(NAMES.values())
    )


def lower_of(reference: str, found: str, allowed: Iterable[str]) -> str:
    """The precision whose floors apply: the reference's, or a lower one, allowed and used.

    `reference` is a dtype or `numerics.CUDA_FLOAT32`. Whether TF32 is used a dtype does not tell.
    """
    own = reference.split(" ", 1)[0]
    names = {_FLOORS.get(name, name) for name in allowed} & set(_FLOOR_ORDER)
    lower = [n for n in names if _FLOOR_ORDER.index(n) > _FLOOR_ORDER.index(own)]
    if found in lower:
        return found
    return "float16" if "tf32" in set(allowed) and own in ("float64", "float32") else reference
