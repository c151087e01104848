"""Whole weights at the start and the end of an audit, optimizer states, and weights kept beside.

Each tensor is a norm and a projection. The projection is linear, so the projection of the way that
a tensor went is the difference of two of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infrarsi.contract import ExecutionResult, RankRecord
from infrarsi.verify.fingerprints import (
    BROKEN,
    Print,
    apart,
    by_name,
    fingerprint,
    model_lines,
    renaming,
    replicas_differ,
    sharded_names,
    size,
    whole,
)

_ROUNDING = {"exact": 0.0, "float64": 1e-12, "float32": 1e-6, "bfloat16": 2e-2, "float16": 2e-3}
_SAME = 1e-5  # relative: sums in another order, on another device


@dataclass(frozen=True)
class Gap:
    """The tensor that is furthest from the reference: its distance over its scale."""

    ratio: float
    name: str
    found: float
    wanted: float


@dataclass(frozen=True)
class Tensors:
    """Fingerprints of a run's tensors by (model, name), each rank's."""

    start: dict[str, list[Print]]
    end: dict[str, list[Print]]
    parts: frozenset[str]


def tensors(result: ExecutionResult) -> Tensors:
    """What the ranks recorded; empty in timed runs and old records. Names carry their model."""
    found = []
    for when in ("start", "end"):
        of_ranks = []
        for rank in result.ranks:
            lines = [line for line in rank.weights if line.get("when") == when]
            of_ranks.append(
                {f"{line.get('model', 0)}:{n}": v for line in lines for n, v in _named(line)}
            )
        found.append(by_name(of_ranks))
    split = {name for name in found[1] if name.split(":", 1)[-1] in sharded_names(result.ranks)}
    split |= {n for n, p in {**found[1], **found[0]}.items() if len(p) > 1 and replicas_differ(p)}
    return Tensors(found[0], found[1], frozenset(split))


def _named(line: dict[str, Any]) -> list[tuple[str, Any]]:
    named = line.get("tensors")
    return [(str(n), v) for n, v in named.items()] if isinstance(named, dict) else []


def renamed(ours: Tensors, theirs: Tensors) -> Tensors:
    """Theirs under our names, where a wrapper renamed them."""
    names = renaming(set(ours.start) | set(ours.end), set(theirs.start) | set(theirs.end))
    if all(old == new for old, new in names.items()):
        per_model = {}
        for index in {name.split(":", 1)[0] for name in names}:
            own = [
                {n.split(":", 1)[-1] for n in (*t.start, *t.end) if n.startswith(index + ":")}
                for t in (ours, theirs)
            ]
            per_model.update(
                {f"{index}:{old}": f"{index}:{new}" for old, new in renaming(*own).items()}
            )
        names = per_model
    new = [
        {names.get(n, n): prints for n, prints in side.items()}
        for side in (theirs.start, theirs.end)
    ]
    return Tensors(new[0], new[1], frozenset(names.get(n, n) for n in theirs.parts))


def parameter_names(result: ExecutionResult) -> set[str]:
    """Names of parameters, as far as the model lines list them."""
    return {
        f"{index}:{name}"
        for rank in result.ranks
        for index, line in enumerate(model_lines(rank))
        for name in line.get("names") or ()
    }


def start_difference(ours: Tensors, theirs: Tensors, parameters: set[str]) -> str:
    """The first tensor that does not start with the reference's values, in words.

    A buffer that never changes in the reference may be gone (a mask that a kernel makes itself).
    """
    split = ours.parts | theirs.parts
    for name, wanted in ours.start.items():
        found = theirs.start.get(name, [])
        label = name.split(":", 1)[-1]
        if not found:
            if name in parameters or not _constant(ours, name):
                return f"`{label}` has no recorded start, the reference has"
            continue
        least = _SAME * max(size(wanted, in_parts=name in split), 1e-6)
        if apart(wanted, found, in_parts=name in split) > least:
            return f"`{label}` starts {_text(found)}, in the reference {_text(wanted)}"
    return ""


def _constant(ours: Tensors, name: str) -> bool:
    """Whether the reference leaves a tensor alone; without its end nothing is known."""
    end = ours.end.get(name)
    return end is not None and apart(ours.start.get(name, []), end, in_parts=False) == 0.0


def standing(ours: Tensors, theirs: Tensors) -> list[str]:
    """Tensors that the reference moves and the run leaves exactly as they were."""
    return [
        name.split(":", 1)[-1]
        for name in ours.end
        if not _constant(ours, name)
        and name in theirs.end
        and _constant(theirs, name)
        and _moved_clearly(ours, name)
    ]


def _moved_clearly(ours: Tensors, name: str) -> bool:
    start, end = ours.start.get(name, []), ours.end[name]
    moved = apart(start, end, in_parts=False) if start else 0.0
    return moved > 1e-6 * max(size(end, in_parts=False), 1e-12)


def way_gaps(ours: Tensors, theirs: Tensors, dtype: str) -> list[Gap]:
    """Each moving tensor's end against the reference's, over the way it went there; least first.

    The scale is the way by norm and projection, but no less than a quarter of the root mean square
    of all tensors' ways: a single one may by chance be short. Empty where nothing moved.
    """
    split = ours.parts | theirs.parts
    ways = {
        name: _way(ours.start[name], end, name in split)
        for name, end in ours.end.items()
        if ours.start.get(name)
    }
    moved = {name: way for name, way in ways.items() if way > 0.0}
    if not moved:
        return []
    typical = math.sqrt(sum(way**2 for way in moved.values()) / len(moved))
    found = []
    for name, way in moved.items():
        prints = ours.end[name], theirs.end.get(name, [])
        if not prints[1]:
            continue
        norms = [size(side, in_parts=name in split) for side in prints]
        off = apart(*prints, in_parts=name in split)
        if off < BROKEN:
            off = max(0.0, off - _ROUNDING.get(dtype, 1e-6) * norms[0])
        ratio = off / max(way, 0.25 * typical)
        found.append(Gap(ratio, name.split(":", 1)[-1], norms[1], norms[0]))
    return sorted(found, key=lambda gap: gap.ratio)


def quantile(gaps: Sequence[Gap], share: float) -> Gap:
    """The gap below which that share of them lies; nothing off where there are none."""
    if not gaps:
        return Gap(0.0, "", 0.0, 0.0)
    return gaps[min(len(gaps) - 1, math.ceil(share * len(gaps)) - 1)]


def _way(start: Sequence[Print], end: Sequence[Print], split: bool) -> float:
    a, b = (whole(side) if split else side[0] for side in (start, end))
    way = abs(b[0] - a[0]) if split else math.hypot(b[0] - a[0], b[1] - a[1])
    return way if math.isfinite(way) else 0.0


def lost_ends(ours: Tensors, theirs: Tensors, parameters: set[str]) -> list[str]:
    """Tensors whose end the reference has and the run has not; constant buffers aside."""
    return [
        name.split(":", 1)[-1]
        for name in ours.end
        if name not in theirs.end and (name in parameters or not _constant(ours, name))
    ]


@dataclass(frozen=True)
class State:
    """One key of the optimizers' state, over all optimizers and ranks."""

    dtypes: frozenset[str]
    prints: tuple[Print, ...]


def states(result: ExecutionResult) -> dict[str, State]:
    """Optimizer state by key; norms are there in audits only."""
    dtypes: dict[str, set[str]] = {}
    prints: dict[str, list[Print]] = {}
    for rank in result.ranks:
        own: dict[str, list[Print]] = {}
        for line in rank.states:
            key = str(line.get("key"))
            dtypes.setdefault(key, set()).update(str(d) for d in line.get("dtypes") or ())
            if line.get("norm") is not None:
                seen = fingerprint((line.get("norm"), line.get("projection", 0.0)))
                if seen is not None:
                    own.setdefault(key, []).append(seen)
        for key, values in own.items():
            both = math.hypot(*(norm for norm, _ in values)), math.fsum(p for _, p in values)
            prints.setdefault(key, []).append(both)
    return {key: State(frozenset(d), tuple(prints.get(key, ()))) for key, d in dtypes.items()}


def state_gap(ours: dict[str, State], theirs: dict[str, State]) -> Gap:
    """The key whose values at the end are furthest from the reference's, over their norm."""
    worst = Gap(0.0, "", 0.0, 0.0)
    for key, wanted in ours.items():
        other = theirs.get(key)
        if key == "step" or not wanted.prints or other is None:
            continue
        split = any(
            len(side.prints) > 1 and replicas_differ(side.prints) for side in (wanted, other)
        )
        norm = size(wanted.prints, in_parts=split)
        distance = apart(wanted.prints, other.prints, in_parts=split)
        ratio = distance / max(norm, 1e-30)
        if ratio > worst.ratio:
            worst = Gap(ratio, key, size(other.prints, in_parts=split), norm)
    return worst


@dataclass(frozen=True)
class Companion:
    """Weights that are kept beside the trained model on one rank: how many, and where they went."""

    tensors: int
    numel: int
    cls: str
    start: Print | None
    end: Print | None

    @property
    def moved(self) -> bool:
        """Whether it changed, or came to be, during the run."""
        return self.end is not None and self.start != self.end


def companions(rank: RankRecord) -> list[Companion]:
    """The companions of a rank; start and end are matched by size, in the order of the lines."""
    sides: dict[str, dict[tuple[int, int], list[tuple[str, Print]]]] = {"start": {}, "end": {}}
    for line in rank.companions:
        seen = fingerprint((line.get("norm"), line.get("projection")))
        side = sides.get(str(line.get("when")))
        if side is not None and seen is not None:
            key = int(line.get("tensors") or 0), int(line.get("numel") or 0)
            side.setdefault(key, []).append((str(line.get("cls", "?")), seen))
    found = []
    for key in sorted({*sides["start"], *sides["end"]}):
        starts, ends = sides["start"].get(key, []), sides["end"].get(key, [])
        for at in range(max(len(starts), len(ends))):
            start = starts[at] if at < len(starts) else None
            end = ends[at] if at < len(ends) else None
            cls = (end or start or ("?", (0.0, 0.0)))[0]
            found.append(Companion(*key, cls, start and start[1], end and end[1]))
    return found


def lost_companions(ours: RankRecord, theirs: RankRecord) -> list[Companion]:
    """Companions that the reference moves and the run has not, or leaves where they were."""
    left = [c for c in companions(theirs) if c.moved]
    lost = []
    for wanted in (c for c in companions(ours) if c.moved):
        twins = [c for c in left if c.numel == wanted.numel]
        if not twins:
            lost.append(wanted)
        else:
            left.remove(min(twins, key=lambda c: _companion_ratio(wanted, c)))
    return lost


def companion_gap(ours: RankRecord, theirs: RankRecord) -> Gap:
    """The companion whose end is furthest from the reference's, over the way that it went."""
    left = [c for c in companions(theirs) if c.moved]
    worst = Gap(0.0, "", 0.0, 0.0)
    for wanted in (c for c in companions(ours) if c.moved):
        twins = [c for c in left if c.numel == wanted.numel]
        if not twins:
            continue
        twin = min(twins, key=lambda c: _companion_ratio(wanted, c))
        left.remove(twin)
        ratio = _companion_ratio(wanted, twin)
        if ratio > worst.ratio and wanted.end and twin.end:
            worst = Gap(ratio, wanted.cls, twin.end[0], wanted.end[0])
    return worst


def _companion_ratio(wanted: Companion, found: Companion) -> float:
    if wanted.end is None or found.end is None:
        return BROKEN
    start = wanted.start or (0.0, 0.0)
    way = math.hypot(wanted.end[0] - start[0], wanted.end[1] - start[1])
    distance = apart([wanted.end], [found.end], in_parts=False)
    rounding = _ROUNDING["float32"] * abs(wanted.end[0]) if math.isfinite(wanted.end[0]) else 0.0
    ratio = max(0.0, distance - rounding) / max(way, 1e-30)
    return ratio if math.isfinite(ratio) else BROKEN


def _text(prints: Sequence[Print]) -> str:
    return f"with norm {prints[0][0]:.6g} and projection {prints[0][1]:.6g}"
