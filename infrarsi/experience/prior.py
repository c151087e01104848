"""What packs make likely of a space: prior effects, failures and points to start from.

Notation: m, s mean and deviation of a pack's effect; q the similarity of its context, 0 to 1; k
estimates of one effect with variances v.

A pack's effect is believed of another job with the variance s^2 + t^2, where

    t = SAME_JOB_SD + (1 - q) / q * (OTHER_JOB_SD + OTHER_JOB_SHARE * |m|).

Several packs are combined as studies whose true effects differ (random effects; the variance
between them by the moments of DerSimonian and Laird 1986), so that packs which contradict one
another widen the belief. What comes of them is multiplied with the catalogue's prior. Whether it
holds for this job is not decided here: the searcher keeps the catalogue's priors beside it and
believes those that explain the trials better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import Dimension, Effect, Experience, Normal, Outcome, Scalar, Space
from infrarsi.experience.canonical import Words
from infrarsi.experience.pack import Context, Pack, is_same
from infrarsi.experience.similarity import similarity

# What the linear models miss of an effect: for time their lack of fit and rounding, for memory that
# of a log-additive form on a measured table (1.7 GiB of about 10).
SAME_JOB_SD = {"log_time": 0.015, "log_memory": 0.15}
OTHER_JOB_SD = {"log_time": 0.03, "log_memory": 0.1}
OTHER_JOB_SHARE = 0.3
MIN_SIMILARITY = 0.1  # packs less alike are left out: t is at least three times the effect
MAX_FAILURE_ODDS = 5.0  # what a sure failure on the same job makes of a value's prior odds
MAX_STARTS = 3


@dataclass(frozen=True)
class Matched:
    """The packs that are used for a space, the best fitting first, and what they make of it.

    `covered` are the dimensions that a pack has an effect of.
    """

    experience: Experience
    packs: tuple[tuple[str, float], ...]
    covered: frozenset[str]


def matched(space: Space, here: Context, packs: Sequence[Pack]) -> Matched:
    """What `packs` say of `space`, whose job runs in the context `here`."""
    weighed = [(pack, similarity(here, pack.context)) for pack in packs]
    used = sorted(
        ((pack, q) for pack, q in weighed if q >= MIN_SIMILARITY),
        key=lambda one: (-one[1], one[0].id),
    )
    words = Words(space.dimensions)
    by_name = {d.name: _informed(d, family, words, used) for family, d in words.dimensions.items()}
    covered = frozenset(n for n, d in by_name.items() if d.effects != space.dimension(n).effects)
    dimensions = tuple(by_name.get(d.name, d) for d in space.dimensions)
    starts = _starts(space, words, used)
    informed = replace(space, dimensions=dimensions) if covered else None
    return Matched(Experience(informed, starts), tuple((pack.id, q) for pack, q in used), covered)


def _informed(
    dimension: Dimension, family: str, words: Words, used: Sequence[tuple[Pack, float]]
) -> Dimension:
    reference = words.reference[family]
    effects = []
    for value, prior in zip(dimension.values, dimension.effects, strict=True):
        word = words.word(dimension.name, value)
        if word is None or value == dimension.reference or is_same(word[1], reference):
            effects.append(prior)
            continue
        time = _estimates("log_time", family, word[1], reference, used)
        memory = _estimates("log_memory", family, word[1], reference, used)
        effects.append(
            Effect(
                *_updated((prior.log_time, prior.log_time_sd), time),
                *_updated((prior.log_memory, prior.log_memory_sd), memory),
                one_off_s=prior.one_off_s,
                failure_odds=prior.failure_odds * _failure_odds(family, word[1], used),
            )
        )
    return replace(dimension, effects=tuple(effects))


def _estimates(
    half: str, family: str, value: Scalar, reference: Scalar, used: Sequence[tuple[Pack, float]]
) -> list[Normal]:
    """What each pack makes of leaving `reference` for `value` in another job."""
    found = []
    for pack, q in used:
        there, here = (_against_own(pack, half, family, v) for v in (value, reference))
        if there is None or here is None:
            continue
        mean = there[0] - here[0]
        other = (1.0 - q) / q * (OTHER_JOB_SD[half] + OTHER_JOB_SHARE * abs(mean))
        found.append((mean, math.hypot(there[1], here[1], SAME_JOB_SD[half] + other)))
    return found


def _against_own(pack: Pack, half: str, family: str, value: Scalar) -> Normal | None:
    """A value against the pack's own reference."""
    if family in pack.reference and is_same(pack.reference[family], value):
        return (0.0, 0.0)
    effect = pack.effect(family, value)
    found: Normal | None = getattr(effect, half) if effect is not None else None
    return found


def _updated(prior: Normal, estimates: Sequence[Normal]) -> Normal:
    """The product of a prior and what the estimates come to."""
    if not estimates:
        return prior
    found = combined(estimates)
    before, after = 1.0 / max(prior[1], 1e-4) ** 2, 1.0 / found[1] ** 2
    total = before + after
    return (before * prior[0] + after * found[0]) / total, math.sqrt(1.0 / total)


def combined(estimates: Sequence[Normal]) -> Normal:
    """Mean and deviation of what at least one study estimates; they need not agree."""
    variances = [max(sd, 1e-4) ** 2 for _, sd in estimates]
    weights = [1.0 / v for v in variances]
    total = sum(weights)
    mean = sum(w * m for w, (m, _) in zip(weights, estimates, strict=True)) / total
    heterogeneity = sum(w * (m - mean) ** 2 for w, (m, _) in zip(weights, estimates, strict=True))
    spread = total - sum(w**2 for w in weights) / total
    between = 0.0
    if spread > 0:
        between = max(0.0, (heterogeneity - (len(estimates) - 1)) / spread)
    weights = [1.0 / (v + between) for v in variances]
    total = sum(weights)
    mean = sum(w * m for w, (m, _) in zip(weights, estimates, strict=True)) / total
    return mean, math.sqrt(1.0 / total)


def _failure_odds(family: str, value: Scalar, used: Sequence[tuple[Pack, float]]) -> float:
    """Out-of-memory failures count through the memory effects alone."""
    blame = [
        q * failure.probability
        for pack, q in used
        for failure in pack.failures
        if failure.outcome not in (Outcome.OOM_GPU, Outcome.OOM_HOST)
        and len(failure.values) == 1
        and family in failure.values
        and is_same(failure.values[family], value)
    ]
    return 1.0 + (MAX_FAILURE_ODDS - 1.0) * max(blame, default=0.0)


def _starts(
    space: Space, words: Words, used: Sequence[tuple[Pack, float]]
) -> tuple[dict[str, Scalar], ...]:
    """The verified changes of the best fitting packs, as far as this job has their values."""
    found: list[dict[str, Scalar]] = []
    for pack, _ in used:
        point = space.reference
        for family, word in (pack.change.values if pack.change else {}).items():
            value = words.value(family, word) if family in words.dimensions else None
            if value is not None:
                point[words.dimensions[family].name] = value
        if point != space.reference and point not in found and space.is_valid(point):
            found.append(point)
    return tuple(found[:MAX_STARTS])
