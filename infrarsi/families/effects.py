"""Prior effects of a job's own values, and the searchable dimensions that they make."""

import math
from collections.abc import Mapping, Sequence

from infrarsi.contract import Dimension, DimensionKind, Effect, Knob, Project, Scalar
from infrarsi.families.catalogue import Device, Family, Prior, catalogue, key_of, same

UNKNOWN = Effect(0.0, 0.05, 0.0, 0.15)
"""What is believed of a value that the catalogue does not know: nothing, with room to be wrong."""

_NOTHING = Prior(source="the plain value", log_time=(0.0, 0.0), log_memory=(0.0, 0.0))


def effects(
    family: Family | str, values: Sequence[Scalar], reference: Scalar, device: Device
) -> tuple[Effect, ...]:
    """The prior effect of each value against the reference value; that of the reference is zero.

    A value or family that the catalogue does not know gets `UNKNOWN`.
    """
    known = catalogue().get(family) if isinstance(family, str) else family
    return tuple(
        Effect(0.0, 0.0, 0.0, 0.0)
        if same(value, reference)
        else _effect(known, value, reference, device)
        for value in values
    )


def dimensions(
    project: Project, recipes: Sequence[tuple[str, str]], device: Device
) -> tuple[Dimension, ...]:
    """One dimension for each knob with a choice, and one for each recipe (name, family).

    What changes the job (class J) is left out unless the contract's `allow` names it; so are
    recipes that `search.patches` does not ask for.
    """
    allow = tuple(project.allow)
    knobs = [
        _knob_dimension(knob, device)
        for knob in project.knobs
        if len(knob.values) > 1 and _is_allowed(knob.family, knob.name, allow)
    ]
    asked = project.search.patches
    patches = [
        _recipe_dimension(name, family, device)
        for name, family in recipes
        if (asked == "all" or name in asked) and _is_allowed(family, name, allow)
    ]
    return (*knobs, *patches)


def _knob_dimension(knob: Knob, device: Device) -> Dimension:
    values = tuple(knob.values)
    return Dimension(
        name=knob.name,
        family=knob.family,
        kind=DimensionKind.KNOB,
        values=values,
        reference=knob.reference,
        effects=effects(knob.family, values, knob.reference, device),
    )


def _recipe_dimension(name: str, family_name: str, device: Device) -> Dimension:
    family = catalogue().get(family_name)
    effect = UNKNOWN
    if family is not None and family.recipe_value is not None:
        plain = family.plain if family.plain is not None else 0
        (effect,) = effects(family, [family.recipe_value], plain, device)
    return Dimension(
        name=name,
        family=family_name,
        kind=DimensionKind.RECIPE,
        values=(False, True),
        reference=False,
        effects=(Effect(0.0, 0.0, 0.0, 0.0), effect),
    )


def _is_allowed(family_name: str, name: str, allow: tuple[str, ...]) -> bool:
    family = catalogue().get(family_name)
    return family is None or name in allow or family.is_allowed(allow)


def _effect(family: Family | None, value: Scalar, reference: Scalar, device: Device) -> Effect:
    if family is None:
        return UNKNOWN
    priors = family.effects[device]
    if family.law == "doubling":
        return _doubling(priors, value, reference)
    here, there = family.canonical(value), family.canonical(reference)
    if same(here, there):
        return Effect(0.0, 0.02, 0.0, 0.05)
    ours, theirs = _prior(family, here, priors), _prior(family, there, priors)
    if ours is None or theirs is None:
        return UNKNOWN
    return Effect(
        log_time=ours.log_time[0] - theirs.log_time[0],
        log_time_sd=math.hypot(ours.log_time[1], theirs.log_time[1]),
        log_memory=ours.log_memory[0] - theirs.log_memory[0],
        log_memory_sd=math.hypot(ours.log_memory[1], theirs.log_memory[1]),
        one_off_s=ours.one_off_s - theirs.one_off_s,
    )


def _prior(family: Family, value: Scalar, priors: Mapping[str, Prior]) -> Prior | None:
    if same(value, family.plain):
        return _NOTHING
    return priors.get(key_of(value))


def _doubling(priors: Mapping[str, Prior], value: Scalar, reference: Scalar) -> Effect:
    """The law of families that are numbers.

    effect = from_zero * ([value > 0] - [reference > 0]) + doubling * log2(value / reference)

    Standard deviations of the two parts add in squares; below 1 a number counts as 1.
    """
    try:
        here, there = float(value), float(reference)
    except ValueError:
        return UNKNOWN
    if not (math.isfinite(here) and math.isfinite(there)) or min(here, there) < 0:
        return UNKNOWN
    doublings = math.log2(max(here, 1.0)) - math.log2(max(there, 1.0))
    leaving = float(here > 0) - float(there > 0)
    each, zero = priors["doubling"], priors.get("from_zero", _NOTHING)
    return Effect(
        log_time=zero.log_time[0] * leaving + each.log_time[0] * doublings,
        log_time_sd=math.hypot(zero.log_time[1] * leaving, each.log_time[1] * doublings),
        log_memory=zero.log_memory[0] * leaving + each.log_memory[0] * doublings,
        log_memory_sd=math.hypot(zero.log_memory[1] * leaving, each.log_memory[1] * doublings),
        one_off_s=zero.one_off_s * leaving + each.one_off_s * doublings,
    )
