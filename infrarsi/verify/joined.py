"""One run as all its ranks did it together: what each optimizer update consumed and left behind.

Ranks and micro-batches are how a job is laid out, not what it does, so counts and digests are
added over both, and everything that is compared later is compared per update.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from infrarsi.contract import ExecutionResult, RankRecord, StepRecord
from infrarsi.verify.sketches import Inputs, summed_sketches

_MODULUS = 2**64


@dataclass(frozen=True)
class Update:
    """One optimizer update, summed over ranks and micro-batches.

    `end_s` is when the slowest rank had ended it, on the harness's clock. `loss` is the mean over
    the ranks that have one. `shapes`: for each input name, how often each full shape came.
    `digests` are empty unless every rank looked closely. `weights` are those of the lowest rank.
    `calls`: how often each optimizer stepped, on the rank where it stepped most. `skipped`: steps
    that a gradient scaler skipped, on the rank with most. `compile_s`: what torch's compiler took,
    on the rank where it took longest. `ranks`: what each rank recorded, lowest rank first.
    """

    index: int
    close_look: bool
    end_s: float
    loss: float | None
    forwards: int
    backwards: int
    samples: int
    elements: dict[str, int]
    shapes: dict[str, dict[tuple[int, ...], int]]
    digests: dict[str, tuple[int, int]]
    weights: tuple[float, ...]
    calls: dict[str, int]
    learning_rates: tuple[float, ...]
    skipped: int
    eval_calls: int
    compile_s: float = 0.0
    ranks: tuple[StepRecord, ...] = ()

    @cached_property
    def inputs(self) -> Inputs:
        """What training consumed: digests, and sketches of floating inputs."""
        sketches = summed_sketches(
            [step.sketches for step in self.ranks], [step.digests for step in self.ranks]
        )
        return Inputs(self.digests, sketches)

    @property
    def has_uneven_rows(self) -> bool:
        """Whether rows of one input came in several lengths: padded to one in a micro-batch."""
        return any(len({shape[1:] for shape in shapes}) > 1 for shapes in self.shapes.values())

    @property
    def floating_inputs(self) -> frozenset[str]:
        """Inputs that only ever came in a floating-point dtype."""
        dtypes: dict[str, set[bool]] = {}
        for step in self.ranks:
            for key in step.shapes:
                name, dtype, _ = key.rsplit(":", 2) if key.count(":") >= 2 else (key, "", "")
                dtypes.setdefault(name, set()).add("float" in dtype)
        return frozenset(name for name, found in dtypes.items() if found == {True})


@dataclass(frozen=True)
class Joined:
    """The updates that every rank recorded, in order; `start_s` is when the first began.

    `ended_by_job`: the job ended by itself, so its last update lasts to its exit and holds the
    final evaluation and checkpoint; else the witness ended it at the last update's boundary.
    """

    updates: tuple[Update, ...]
    start_s: float | None = None
    ranks: int = 0
    uneven: bool = False
    ended_by_job: bool = False
    by_index: dict[int, Update] = field(default_factory=dict, compare=False, repr=False)


def join(result: ExecutionResult) -> Joined:
    """The joined view of a result; without updates where no rank recorded one."""
    ranks = result.ranks
    if not ranks or not all(rank.steps for rank in ranks):
        return Joined((), None, len(ranks), any(rank.steps for rank in ranks))
    columns = [{step.index: step for step in rank.steps} for rank in ranks]
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    lossy = [any(step.loss is not None for step in rank.steps) for rank in ranks]
    updates = tuple(_update([column[index] for column in columns], lossy) for index in shared)
    uneven = any(len(column) != len(shared) for column in columns)
    by_index = {update.index: update for update in updates}
    by_job = not any(rank.end.get("how") == "witness" for rank in ranks)
    return Joined(updates, _start(ranks), len(ranks), uneven, by_job, by_index)


def _start(ranks: Sequence[RankRecord]) -> float | None:
    """When the last rank opened its record: the start of its first update."""
    stamps = [float(rank.head["at"]) for rank in ranks if "at" in rank.head]
    return max(stamps) if len(stamps) == len(ranks) else None


def _update(steps: Sequence[StepRecord], lossy: Sequence[bool]) -> Update:
    """`lossy`: which ranks have losses at all; a mean over a part of them would be another one."""
    seen = [step.loss for step, has in zip(steps, lossy, strict=True) if has]
    losses = [loss for loss in seen if loss is not None]
    close = all(step.close_look for step in steps)
    return Update(
        index=steps[0].index,
        close_look=any(step.close_look for step in steps),
        end_s=max(step.harness_s for step in steps),
        loss=math.fsum(losses) / len(losses) if losses and len(losses) == len(seen) else None,
        forwards=sum(step.forwards for step in steps),
        backwards=sum(step.backwards for step in steps),
        samples=sum(step.samples for step in steps),
        elements=_summed([step.elements for step in steps]),
        shapes=_shapes([step.shapes for step in steps]),
        digests=summed_digests([step.digests for step in steps])
        if close and all(step.digests for step in steps)
        else {},
        weights=steps[0].weights,
        calls=_most([step.optimizer_calls for step in steps]),
        learning_rates=steps[0].learning_rates,
        skipped=max(step.skipped for step in steps),
        eval_calls=sum(step.eval_calls for step in steps),
        compile_s=max(step.compile_s for step in steps),
        ranks=tuple(steps),
    )


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = sorted({name for count in counts for name in count})
    return {name: sum(count.get(name, 0) for count in counts) for name in names}


def _most(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    names = sorted({name for count in counts for name in count})
    return {name: max(count.get(name, 0) for count in counts) for name in names}


def summed_digests(digests: Sequence[dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """The digest of everything that these are digests of, by input."""
    total: dict[str, tuple[int, int]] = {}
    for of_rank in digests:
        for name, (rows, elements) in of_rank.items():
            before = total.get(name, (0, 0))
            total[name] = ((before[0] + rows) % _MODULUS, (before[1] + elements) % _MODULUS)
    return total


def _shapes(counts: Sequence[dict[str, int]]) -> dict[str, dict[tuple[int, ...], int]]:
    """Keys are `name:dtype:shape`; a shape is read as its numbers, whatever joins them."""
    found: dict[str, dict[tuple[int, ...], int]] = {}
    for key, count in ((key, count) for each in counts for key, count in each.items()):
        name, _, shape = key.rsplit(":", 2) if key.count(":") >= 2 else (key, "", "")
        sizes = tuple(int(number) for number in re.findall(r"\d+", shape))
        of_name = found.setdefault(name, {})
        of_name[sizes] = of_name.get(sizes, 0) + count
    return found
