"""The losses that a job printed, held against the losses that it trained on.

A log is no evidence, but a false one is: where the numbers that the reference prints follow from
its record, the candidate's must follow from the candidate's in the same way. How they follow is not
assumed but found on the reference's timed runs (`Relation`): which update a line is about (by its
counter, or by its order where it names none), whose loss it is (rank 0's, the mean of the ranks, or
their sum, where each has its share of a loss over all tokens, as torchtitan does), whether the sum
over micro-batches, its mean, or the undivided sum, and whether of one update or the mean since the
line before or since the start. A label that follows in none of these ways, such as one part of a
loss, is not judged.

Printed numbers are rounded, so they agree within half a unit of the last place that the label ever
had, and 0.1 % on the reference, 0.5 % on a candidate: a mean over ranks is taken in the job's own
precision.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol, TypeVar

from infrarsi.contract import ExecutionResult
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.joined import Joined

BAR, LEFT_OUT = "bar/", "(left out)"
"""As `infrarsi.node.printed` writes them."""
MIN_POINTS = 3
"""Fewer lines than this show no relation."""
_OWN, _THEIRS = 1e-3, 5e-3
_LAST_MICRO_BATCH = 0.3
_NOT_TRAINED = ("eval", "val", "test", "scale")

Point = Sequence[float]
"""`[step, value, line]`."""


class HasPlace(Protocol):
    """Something that says which update a line is about."""

    @property
    def place(self) -> "Place":
        """Which one."""
        ...


_Placed = TypeVar("_Placed", bound=HasPlace)


@dataclass(frozen=True)
class Place:
    """Which update a printed line is about.

    `stride` 0: the counter, less `offset`, divided by the micro-batches of an update if
    `per_micro_batch`. Else the order alone: every `stride` updates a line, the first about update
    `stride - 1 - offset`.
    """

    stride: int = 0
    offset: int = 0
    per_micro_batch: bool = False

    def update(self, order: int, step: float, micro_batches: int) -> int:
        """The index of the update."""
        if self.stride:
            return (order + 1) * self.stride - 1 - self.offset
        if not math.isfinite(step):
            return -1
        if self.per_micro_batch:
            return (int(step) - self.offset) // max(1, micro_batches)
        return int(step) - self.offset


Whose = Literal["rank 0's", "the mean of the ranks", "the sum of the ranks"]


@dataclass(frozen=True)
class Relation:
    """How a printed loss follows from the record."""

    place: Place
    whose: Whose
    scale: int  # times the number of micro-batches to this power
    window: str  # "update", "since the line before", "since the start"


@dataclass(frozen=True)
class Trained:
    """The losses of one run by update: of rank 0 and the mean of the ranks; NaN where not seen."""

    own: tuple[float, ...]
    mean: tuple[float, ...]
    micro_batches: tuple[int, ...]
    ranks: int = 1

    @classmethod
    def of(cls, result: ExecutionResult, run: Joined) -> "Trained":
        """From a result and its joined view."""
        first = min(result.ranks, key=lambda rank: rank.rank, default=None)
        own = {step.index: step for step in first.steps} if first else {}
        count = 1 + max(run.by_index, default=-1)
        mean = {index: update.loss for index, update in run.by_index.items()}
        return cls(
            tuple(_number(own[i].loss if i in own else None) for i in range(count)),
            tuple(_number(mean.get(i)) for i in range(count)),
            tuple(max(1, own[i].backwards) if i in own else 1 for i in range(count)),
            max(1, len(result.ranks)),
        )

    def of_whom(self, whose: Whose) -> tuple[float, ...]:
        """The losses that a line may be about."""
        if whose == "the sum of the ranks":
            return tuple(self.ranks * loss for loss in self.mean)
        return self.mean if whose == "the mean of the ranks" else self.own

    @property
    def accumulates(self) -> bool:
        """Whether any update has several micro-batches."""
        return any(number > 1 for number in self.micro_batches)


def points_of(result: ExecutionResult, label: str) -> list[Point]:
    """The lines of a label; what is no `[step, value, line]` is left out."""
    return [
        point
        for point in result.printed.get(label, ())
        if isinstance(point, Sequence)
        and len(point) == 3
        and all(isinstance(number, int | float) for number in point)
    ]


def printed_losses_disagree(comparison: Comparison) -> str | None:
    """The first printed training loss that is not what the run trained on, None without one."""
    result, evidence = comparison.result, comparison.evidence
    trained = Trained.of(result, comparison.candidate)
    reference = Trained.of(comparison.reference_result, comparison.reference)
    timed = [Trained.of(*each) for each in zip(evidence.timed, evidence.timed_runs, strict=True)]
    for label in comparison.reference_result.printed:
        if "loss" not in label or any(word in label for word in _NOT_TRAINED):
            continue
        points = points_of(result, label)
        known = points_of(comparison.reference_result, label)
        relations, misses = relations_of([points_of(run, label) for run in evidence.timed], timed)
        relations = [r for r in relations if _fits(r, known, reference, misses)]
        if not relations or len(points) < MIN_POINTS:
            continue
        found = _disagreement(label, relations, points, (reference, trained), misses)
        if found:
            return found
    return None


def relations_of(
    lines: Sequence[Sequence[Point]], trained: Sequence[Trained]
) -> tuple[list[Relation], int]:
    """The relations that hold in every timed run of the reference, and the misses allowed.

    `lines` are those of one label, by run.
    """
    if not lines or any(len(points) < MIN_POINTS for points in lines):
        return [], 0
    allowed = min(map(len, lines)) // 10
    runs = list(zip(lines, trained, strict=True))
    found = by_counter(
        [
            relation
            for relation in _candidates(lines[0], trained[0])
            if all(_fits(relation, points, one, allowed) for points, one in runs)
        ]
    )
    misses = max(
        (
            min(len(_misses(relation, points, one, _OWN)[0]) for relation in found)
            for points, one in runs
            if found
        ),
        default=0,
    )
    return found, misses


def places(points: Sequence[Point], updates: int) -> Iterator[Place]:
    """Every way in which lines may belong to updates."""
    for offset, per_micro_batch in itertools.product((0, 1), (False, True)):
        yield Place(0, offset, per_micro_batch)
    count = len(points)
    for stride in range(max(1, updates // (count + 1)), updates // max(1, count - 1) + 1):
        yield Place(stride, 0)
        yield Place(stride, stride - 1)


def by_counter(found: list[_Placed]) -> list[_Placed]:
    """Those that go by the counters of the lines, or all where none does.

    Beside lines that are true by their counters, more lines could be put so that each is at the
    place of a true one by its order.
    """
    return [one for one in found if not one.place.stride] or found


def resolution(points: Sequence[Point]) -> float:
    """One unit of the last decimal place that the values of a label have."""
    values = [value for _, value, _ in points if math.isfinite(value) and value != int(value)]
    exponents = [Decimal(repr(value)).as_tuple().exponent for value in values]
    finest = min((e for e in exponents if isinstance(e, int)), default=0)
    return float(10.0 ** max(finest, -9))


def expected(relation: Relation, points: Sequence[Point], trained: Trained) -> list[float | None]:
    """What each line should say, None where the record does not reach."""
    source = trained.of_whom(relation.whose)
    scaled = [
        loss * float(number) ** relation.scale
        for loss, number in zip(source, trained.micro_batches, strict=True)
    ]
    typical = trained.micro_batches[len(trained.micro_batches) // 2] if scaled else 1
    sums = list(itertools.accumulate(scaled, initial=0.0))
    out: list[float | None] = []
    before = -1
    for order, (step, _, _) in enumerate(points):
        index = relation.place.update(order, step, typical)
        begin = {"update": index, "since the line before": before + 1}.get(relation.window, 0)
        if not 0 <= begin <= index < len(scaled):
            out.append(None)
        elif relation.window == "update":
            out.append(scaled[index])
        else:
            out.append((sums[index + 1] - sums[begin]) / (index + 1 - begin))
        before = index
    return out


def _candidates(points: Sequence[Point], trained: Trained) -> Iterator[Relation]:
    windows = ("update", "since the line before", "since the start")
    scales = (0, -1, 1) if trained.accumulates else (0,)
    several: tuple[Whose, ...] = ("the mean of the ranks", "the sum of the ranks")
    sources: tuple[Whose, ...] = ("rank 0's", *(several if trained.ranks > 1 else several[:1]))
    for place in places(points, len(trained.own)):
        for whose, scale, window in itertools.product(sources, scales, windows):
            yield Relation(place, whose, scale, window)


def _fits(relation: Relation, points: Sequence[Point], trained: Trained, allowed: int) -> bool:
    missed, compared = _misses(relation, points, trained, _OWN, enough=allowed)
    return compared >= MIN_POINTS and len(missed) <= allowed


def _misses(
    relation: Relation,
    points: Sequence[Point],
    trained: Trained,
    tolerance: float,
    enough: int | None = None,
) -> tuple[list[tuple[Point, float]], int]:
    """Lines that are not as expected with what was expected, and how many were compared."""
    half = 0.51 * resolution(points)
    missed: list[tuple[Point, float]] = []
    compared = 0
    for point, value in zip(points, expected(relation, points, trained), strict=True):
        if value is None or math.isnan(value):
            continue
        compared += 1
        if not abs(point[1] - value) <= half + tolerance * abs(value):
            missed.append((point, value))
            if enough is not None and len(missed) > enough:
                break
    return missed, compared


def _disagreement(
    label: str,
    relations: Sequence[Relation],
    points: Sequence[Point],
    both: tuple[Trained, Trained],
    allowed: int,
) -> str | None:
    reference, trained = both
    if trained.accumulates and not reference.accumulates:
        # The reference cannot tell a sum from a mean from the last of several micro-batches.
        relations = [
            Relation(r.place, r.whose, scale, r.window) for r in relations for scale in (0, -1, 1)
        ]
    found = [_misses(relation, points, trained, _THEIRS) for relation in relations]
    found = [one for one in found if one[1] >= MIN_POINTS]
    if not found or any(len(missed) <= allowed for missed, _ in found):
        return None
    if trained.accumulates and not reference.accumulates:
        near = [_misses(relation, points, trained, _LAST_MICRO_BATCH)[0] for relation in relations]
        if any(len(missed) <= allowed for missed in near):
            return None
    missed, compared = min(found, key=lambda one: len(one[0]))
    (step, value, line), right = missed[0]
    return (
        f"stdout.log:{line:.0f}: the job printed `{label}` {value:g} at step {step:g}, but trained "
        f"on {right:.6g} ({len(missed)} of {compared} lines are off; the reference's agree)"
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value
