"""How far floating inputs of two runs are apart where their exact digests differ.

A sketch (`witness/guest/sketches.py`) is a number of rows R, the rounding unit of their dtype, and
sums over rows of sines and cosines of projections: another order of operations moves them by some
roundings, another row by about 1. So inputs count as the same to rounding where no sum is off by
more than

    unit (SINGLE sqrt(R) + COMMON R)     in 32 and 64 bits
    unit COARSE sqrt(R)                  in 16 bits

Rounding that differs from row to row adds up as the root of R; a constant that is rounded
otherwise (1 / 255) moves all rows alike, as R. In 16 bits one rounding is nearly as much as a lower
precision is, and only what was computed in more bits before it was cast passes: there few elements
differ at all. Figures: README.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Digest = tuple[int, int]
Sketch = Sequence[float]
SINGLE, COMMON, COARSE = 256.0, 16.0, 0.5
MOST_ROWS = 8192
"""Beyond, what all rows may share is as much as inputs that were rounded to 16 bits once."""
_FINE_UNIT = 2.0**-20
_FACTS = 2  # rows and roundings: equal or not, no sums


@dataclass(frozen=True)
class Inputs:
    """What a run consumed in one update: by input the exact digest, of floating ones a sketch."""

    digests: Mapping[str, Digest]
    sketches: Mapping[str, Sketch]

    def without(self, left_out: frozenset[str]) -> "Inputs":
        """The same without some inputs."""
        kept = {name: digest for name, digest in self.digests.items() if name not in left_out}
        return Inputs(kept, self.sketches)


def apart(ours: Sketch | None, theirs: Sketch | None) -> float | None:
    """The sum that is furthest off, as a share of what rounding may do; None where none says.

    Infinite for other rows or another dtype.
    """
    if not ours or not theirs or len(ours) != len(theirs) or len(ours) <= _FACTS:
        return None
    if not all(math.isfinite(number) for number in (*ours, *theirs)):
        return None
    rows, roundings = ours[:_FACTS]
    if not rows > 0.0 or not roundings > 0.0 or rows > MOST_ROWS:
        return None
    if tuple(ours[:_FACTS]) != tuple(theirs[:_FACTS]):
        return math.inf
    unit, root = roundings / rows, math.sqrt(rows)
    allowed = unit * (SINGLE * root + COMMON * rows) if fine(ours) else unit * COARSE * root
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / allowed


def fine(sketch: Sketch | None) -> bool:
    """Whether these are numbers of at least 32 bits, whose sketch tells rounding from all else."""
    return sketch is not None and len(sketch) > 1 and sketch[1] <= _FINE_UNIT * sketch[0]


def differing(ours: Inputs, theirs: Inputs) -> list[tuple[str, str]] | None:
    """Inputs of which no equal one is in the other run, each with the one there that is nearest.

    Names take no part unless nothing else tells. None where the numbers of inputs are not equal.
    """
    mine, other = _unequal(ours.digests, theirs.digests), _unequal(theirs.digests, ours.digests)
    if len(mine) != len(other):
        return None
    found = []
    for name in mine:
        nearest = min(other, key=lambda twin: _rank(ours, theirs, name, twin))
        other.remove(nearest)
        found.append((name, nearest))
    return found


def same_to_rounding(ours: Inputs, theirs: Inputs) -> bool:
    """Whether every input that differs is a floating one, and the same to rounding."""
    pairs = differing(ours, theirs)
    if pairs is None:
        return False
    shares = [apart(ours.sketches.get(a), theirs.sketches.get(b)) for a, b in pairs]
    return all(share is not None and share <= 1.0 for share in shares)


def summed_sketches(
    sketches: Sequence[Mapping[str, Sketch]], digests: Sequence[Mapping[str, Digest]]
) -> dict[str, tuple[float, ...]]:
    """The sketch of all ranks together, of inputs that every rank with a digest has one of."""
    total: dict[str, tuple[float, ...]] = {}
    for name in sorted({name for of_rank in digests for name in of_rank}):
        parts = [
            of_rank.get(name, ())
            for of_rank, exact in zip(sketches, digests, strict=True)
            if name in exact
        ]
        if all(parts) and len({len(part) for part in parts}) == 1:
            total[name] = tuple(math.fsum(column) for column in zip(*parts, strict=True))
    return total


def _unequal(ours: Mapping[str, Digest], theirs: Mapping[str, Digest]) -> list[str]:
    left = list(theirs.values())
    found = []
    for name in sorted(ours, key=lambda name: theirs.get(name) != ours[name]):
        if ours[name] in left:
            left.remove(ours[name])
        else:
            found.append(name)
    return sorted(found)


def _rank(ours: Inputs, theirs: Inputs, name: str, twin: str) -> tuple[float, bool]:
    share = apart(ours.sketches.get(name), theirs.sketches.get(twin))
    return (math.inf if share is None else share, name != twin)
