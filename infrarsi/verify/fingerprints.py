"""Tensors as the witness saw them, [norm, projection] each, and how far two of them are apart.

The projection is the product with a fixed pattern of plus and minus ones over positions. For a
difference of two tensors it is about as large as that difference's norm, so a norm and a projection
that both agree leave little room: a change that keeps the norm shows in the projection.

Ranks either hold the same tensor or parts of one. Of parts, squared norms add up; projections do
not, since each rank's pattern starts anew.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from infrarsi.contract import RankRecord

Print = tuple[float, float]
BROKEN = 1e9
"""A distance beyond any band, yet a number: one side is NaN, infinite or unreadable."""
_AGREE = 1e-6  # relative: replicas that were reduced together agree to the last bit


def fingerprint(value: Any) -> Print | None:
    """[norm, projection] as two floats; None for None; NaN for what is neither."""
    if value is None:
        return None
    try:
        norm, projection = value
        return float(norm), float(projection)
    except (TypeError, ValueError, OverflowError):
        return math.nan, math.nan


def distance(ours: Print, theirs: Print, *, projected: bool = True) -> float:
    """The larger of both differences; 0 where both sides are broken, `BROKEN` where one is."""
    sides = [(ours[0], theirs[0]), *([(ours[1], theirs[1])] if projected else [])]
    worst = 0.0
    for a, b in sides:
        if math.isfinite(a) and math.isfinite(b):
            worst = max(worst, abs(a - b))
        elif math.isfinite(a) != math.isfinite(b):
            return BROKEN
    return worst


def whole(parts: Sequence[Print]) -> Print:
    """The fingerprint of a tensor that lies in parts over ranks; its projection is unknown."""
    return math.hypot(*(norm for norm, _ in parts)), 0.0


def apart(ours: Sequence[Print], theirs: Sequence[Print], *, in_parts: bool) -> float:
    """Distance of one tensor in two runs, each given by its ranks.

    Replicas: the largest distance of any of their ranks from our first. Parts: of the whole norms,
    since another sharding cuts the tensor elsewhere.
    """
    if not ours or not theirs:
        return 0.0 if not ours and not theirs else BROKEN
    if not in_parts:
        return max(distance(ours[0], other) for other in theirs)
    return distance(whole(ours), whole(theirs), projected=False)


def size(ours: Sequence[Print], *, in_parts: bool) -> float:
    """The norm of the tensor; 0 where it is not there or broken."""
    if not ours:
        return 0.0
    norm = whole(ours)[0] if in_parts else ours[0][0]
    return norm if math.isfinite(norm) else 0.0


def replicas_differ(prints: Sequence[Print]) -> bool:
    """Whether ranks that could be replicas of one tensor hold different values."""
    first = prints[0]
    return any(distance(first, other) > _AGREE * max(abs(first[0]), 1e-30) for other in prints[1:])


def model_lines(rank: RankRecord) -> tuple[dict[str, Any], ...]:
    """What a rank said of its models; records of older versions have one line."""
    lines = rank.models or ((rank.model,) if rank.model else ())
    return tuple(line for line in lines if isinstance(line, dict) and line)


def sharded_names(ranks: Iterable[RankRecord]) -> frozenset[str]:
    """Names of parameters of which a rank holds a part."""
    found: set[str] = set()
    for rank in ranks:
        for line in model_lines(rank):
            found |= {str(name) for name in line.get("sharded") or ()}
    return frozenset(found)


def renaming(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """Their name to ours, where a patch has put the model into another module or out of one.

    Then all names of one side have a prefix more. Names that are in both stand for themselves.
    """
    a, b = set(ours), set(theirs)
    if a == b or not a or not b:
        return {name: name for name in b}
    for inner, outer, flip in ((a, b, False), (b, a, True)):
        prefix = _common_prefix(outer)
        for cut in _ends(prefix):
            stripped = {name[cut:] for name in outer}
            if stripped == inner:
                pairs = {name: name[cut:] for name in outer}
                return {v: k for k, v in pairs.items()} if flip else pairs
    return {name: name for name in b}


def _common_prefix(names: set[str]) -> str:
    low, high = min(names), max(names)
    length = 0
    while length < min(len(low), len(high)) and low[length] == high[length]:
        length += 1
    return low[:length]


def _ends(prefix: str) -> list[int]:
    return [at + 1 for at, letter in enumerate(prefix) if letter == "."]


def by_name(
    ranks: Sequence[Mapping[str, Any]], names: Mapping[str, str] | None = None
) -> dict[str, list[Print]]:
    """The fingerprints of each tensor over the ranks that have it, under the names of `names`."""
    found: dict[str, list[Print]] = {}
    for of_rank in ranks:
        for name, value in of_rank.items():
            seen = fingerprint(value)
            if seen is not None:
                found.setdefault(names.get(name, name) if names else name, []).append(seen)
    return found
