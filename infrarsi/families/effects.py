"""Prior effects of a job's own values, and the searchable dimensions that they make.

Notation: f the share of a step that one phase takes; b = log(1 - f) the largest change of log step
time that a family of this phase alone can bring (Amdahl 1967); m, s its prior mean and deviation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from infrarsi.contract import Dimension, DimensionKind, Effect, Knob, Project, Scalar
from infrarsi.families.catalogue import Device, Family, Prior, catalogue, key_of, same

UNKNOWN = Effect(0.0, 0.05, 0.0, 0.15)
"""What is believed of a value that the catalogue does not know: nothing, with room to be wrong."""

MIN_BOUNDED_SD = 0.005
"""What a bound leaves of a deviation at least: phases are measured, and not to the last bit."""
_MAX_SHARE = 0.95  # no phase is all of a step
_NO_SHARES: Mapping[str, float] = MappingProxyType({})

_NOTHING = Prior(source="the plain value", log_time=(0.0, 0.0), log_memory=(0.0, 0.0))


def effects(
    family: Family | str,
    values: Sequence[Scalar],
    reference: Scalar,
    device: Device,
    *,
    shares: Mapping[str, float] = _NO_SHARES,
) -> tuple[Effect, ...]:
    """The prior effect of each value against the reference value; that of the reference is zero.

    A value or family that the catalogue does not know gets `UNKNOWN`. `shares` are the measured
    shares of the reference's step by phase: a family of one phase is not believed to gain more.
    """
    known = catalogue().get(family) if isinstance(family, str) else family
    least = _least(known, device, shares)
    return tuple(
        Effect(0.0, 0.0, 0.0, 0.0)
        if same(value, reference)
        else bounded(_effect(known, value, reference, device), least)
        for value in values
    )


def bounded(effect: Effect, least: float) -> Effect:
    """The same belief, with m - 2 s at `least` (b, at most zero) or above.

    A mean of more than half of what is possible is taken to that half, then the deviation is cut
    to what is left; a mean on the slow side stays.
    """
    mean, sd = effect.log_time, effect.log_time_sd
    if mean - 2.0 * sd >= least:
        return effect
    mean = max(mean, least / 2.0)
    return replace(effect, log_time=mean, log_time_sd=max((mean - least) / 2.0, MIN_BOUNDED_SD))


def _least(family: Family | None, device: Device, shares: Mapping[str, float]) -> float:
    """The bound of a family, minus infinity where it has none.

    On a GPU the host's phases are the times of launches, so only waiting for data counts there.
    """
    if family is None or family.phase is None or family.phase not in shares:
        return -math.inf
    if device == "gpu" and family.phase != "data":
        return -math.inf
    return math.log1p(-min(max(shares[family.phase], 0.0), _MAX_SHARE))


def dimensions(
    project: Project,
    recipes: Sequence[tuple[str, str]],
    device: Device,
    *,
    shares: Mapping[str, float] = _NO_SHARES,
) -> tuple[Dimension, ...]:
    """One dimension for each knob with a choice, and one for each recipe (name, family).

    `shares` as for `effects`.

    What changes the job (class J) is left out unless the contract's `allow` names it, what rounds
    otherwise (class N) where the contract asks for equality to the last bit; so are recipes that
    `search.patches` does not ask for.
    """
    knobs = [
        _knob_dimension(knob, device, shares)
        for knob in project.knobs
        if len(knob.values) > 1 and _is_offered(knob.family, knob.name, project)
    ]
    asked = project.search.patches
    patches = [
        _recipe_dimension(name, family, device, shares)
        for name, family in recipes
        if (asked == "all" or name in asked) and _is_offered(family, name, project)
    ]
    return (*knobs, *patches)


def _knob_dimension(knob: Knob, device: Device, shares: Mapping[str, float]) -> Dimension:
    values = tuple(knob.values)
    return Dimension(
        name=knob.name,
        family=knob.family,
        kind=DimensionKind.KNOB,
        values=values,
        reference=knob.reference,
        effects=effects(knob.family, values, knob.reference, device, shares=shares),
        fault_signs=_signs(knob.family),
    )


def _recipe_dimension(
    name: str, family_name: str, device: Device, shares: Mapping[str, float]
) -> Dimension:
    family = catalogue().get(family_name)
    effect = UNKNOWN
    if family is not None and family.recipe_value is not None:
        plain = family.plain if family.plain is not None else 0
        (effect,) = effects(family, [family.recipe_value], plain, device, shares=shares)
    return Dimension(
        name=name,
        family=family_name,
        kind=DimensionKind.RECIPE,
        values=(False, True),
        reference=False,
        effects=(Effect(0.0, 0.0, 0.0, 0.0), effect),
        fault_signs=_signs(family_name),
    )


def _signs(family_name: str) -> tuple[str, ...]:
    family = catalogue().get(family_name)
    return family.fault_signs if family is not None else ()


def _is_offered(family_name: str, name: str, project: Project) -> bool:
    """Whether a contract lets a knob or recipe of that name and family be searched."""
    family = catalogue().get(family_name)
    if family is None:
        return True
    if family.is_too_coarse(project):
        return False
    return name in project.allow or family.is_allowed(tuple(project.allow))


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
