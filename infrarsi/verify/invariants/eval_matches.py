"""The run evaluates as often as the reference, on the same data, with the same results.

Why: evaluation takes time and changes no weight, so leaving it out, shortening it, or returning a
remembered number makes a job faster and leaves its training as it was.

What is compared, for each update that both runs made (evaluation belongs to the update before it):

- samples, over ranks; batches only where samples are not counted, since the same rows in bigger
  batches are the same evaluation. Where the number of ranks differs, each rank may evaluate all of
  the data in one run and a share in the other: then either the sums must agree or the largest
  rank's;
- digests of what was evaluated, wherever both runs looked closely, in whatever order; floating
  inputs may differ by rounding;
- losses seen in evaluation: their mean within the declared tolerance and the loss's band. Their
  number may differ (some jobs compute losses outside the model);
- in audit runs the norms of the outputs, in order of size (two models may be asked in turn or one
  after the other), within the same band: for jobs whose metric is no loss. Bigger batches have
  other outputs, and only the losses are left.

A forward without gradients that comes between an update and the next one (a teacher that is asked
before its student) is counted with the update before. So a run whose evaluation fits the reference
when it is moved by one update, the first left out, is as good.

With dropout active (timed runs) the weights differ honestly, so that only the declared tolerance
holds; the audit run judges the rest. What the reference itself does not repeat, evaluation on
random data or sampled outputs, is left out.

Not covered where the reference evaluates nothing within the run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import CheckResult, StepRecord
from infrarsi.verify import sketches
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.floors import FLOORS
from infrarsi.verify.invariants.same_data import repeats, same_to_rounding
from infrarsi.verify.joined import Joined, Update, summed_digests
from infrarsi.verify.numerics import band, own_pairs

CHECK = "eval_matches"
_SAME_OUTPUT = 1e-4  # relative: outputs for other samples have other norms in the second digit


@dataclass(frozen=True)
class _Sides:
    """Both runs, by index of their updates."""

    reference: dict[int, Update]
    candidate: dict[int, Update]

    @property
    def updates(self) -> list[tuple[Update, Update]]:
        """(reference, candidate) of each update that both have."""
        return [(u, self.candidate[i]) for i, u in self.reference.items() if i in self.candidate]


def judge(comparison: Comparison) -> CheckResult:
    """Whether evaluation is the reference's."""
    evaluated = [update for update in comparison.reference.updates if update.eval_calls]
    if not evaluated:
        return uncovered(CHECK, "the reference evaluates nothing within the run")
    if not comparison.updates:
        return uncovered(CHECK, "no update was seen in both runs")
    sides = _Sides(comparison.reference.by_index, comparison.candidate.by_index)
    difference = _difference(comparison, sides)
    if difference and not any(_difference(comparison, moved) == "" for moved in _moved(sides)):
        return failed(CHECK, difference)
    calls = sum(update.eval_calls for update in evaluated)
    return passed(CHECK, f"{calls} evaluation forwards after {len(evaluated)} updates, as before")


def _difference(comparison: Comparison, sides: _Sides) -> str:
    for ours, theirs in sides.updates:
        difference = _work(ours, theirs) or _data(comparison, ours, theirs)
        if difference:
            return f"step {ours.index}: {difference}"
    if comparison.same_kind:
        for what, values in (("loss", _losses), ("output norm", _outputs)):
            difference = _values(comparison, sides, what, values)
            if difference:
                return difference
    return ""


def _moved(sides: _Sides) -> list[_Sides]:
    """Evaluation of either run counted with the update after it, where that is the usual place.

    Only where nearly every update has some in both runs: then it is part of the training step.
    """
    found = []
    for late, early in ((sides.reference, sides.candidate), (sides.candidate, sides.reference)):
        shared = [i for i in late if i in early and i - 1 in early]
        usual = [i for i in shared if late[i].eval_calls and early[i - 1].eval_calls]
        if len(usual) < 3 or len(usual) < len(shared):
            continue
        kept = {i: late[i] for i in shared}
        moved = {i: _with_evaluation(early[i], early[i - 1]) for i in shared}
        last = shared[-1]  # in a job that ends by itself it keeps what comes after it as well
        whole = {**moved, last: _with_evaluation(early[last], early[last - 1], early[last])}
        for other in (moved, whole):
            pair = (kept, other) if late is sides.reference else (other, kept)
            found.append(_Sides(*pair))
    return found


def _with_evaluation(update: Update, *others: Update) -> Update:
    """The update with what the other ones evaluated, one after the other."""
    ranks = tuple(
        replace(
            step,
            close_look=all(source.close_look for source in sources),
            eval_calls=sum(source.eval_calls for source in sources),
            eval_samples=sum(source.eval_samples for source in sources),
            eval_losses=tuple(v for source in sources for v in source.eval_losses),
            eval_digests=summed_digests([source.eval_digests for source in sources]),
            eval_sketches=sketches.summed_sketches(
                [source.eval_sketches for source in sources],
                [source.eval_digests for source in sources],
            ),
            eval_outputs=tuple(v for source in sources for v in source.eval_outputs),
        )
        for step, *sources in zip(update.ranks, *(other.ranks for other in others), strict=False)
    )
    return replace(update, eval_calls=sum(other.eval_calls for other in others), ranks=ranks)


def _work(ours: Update, theirs: Update) -> str:
    counted = all(any(step.eval_samples for step in update.ranks) for update in (ours, theirs))
    what, count = ("samples", _samples) if counted else ("batches", _batches)
    a, b = [[count(step) for step in update.ranks] for update in (ours, theirs)]
    if sum(a) == sum(b) or (len(a) != len(b) and max(a) == max(b)):
        return ""
    return f"{sum(b)} evaluation {what}, in the reference {sum(a)}"


def _batches(step: StepRecord) -> int:
    return step.eval_calls


def _samples(step: StepRecord) -> int:
    return step.eval_samples


def _data(comparison: Comparison, ours: Update, theirs: Update) -> str:
    a, b = _bags(ours), _bags(theirs)
    if not a[0] or not all(step.close_look for step in theirs.ranks):
        return ""
    if ours.index in _unrepeated(comparison):
        return ""
    if not b[0]:
        return "" if not comparison.same_kind else "what was evaluated has no digest"
    if a[0] == b[0] or (len(ours.ranks) != len(theirs.ranks) and a[1] in b):
        return ""
    if _to_rounding(comparison, ours, theirs):
        return ""
    return "other samples are evaluated than in the reference"


def _to_rounding(comparison: Comparison, ours: Update, theirs: Update) -> bool:
    """Whether other digests may be rounding of floating inputs: by their sketches, or by what comes
    out.

    The latter is asked only where what the model trains on is floating too, and differs in this run
    by rounding.
    """
    if not comparison.bitwise and sketches.same_to_rounding(_inputs(ours), _inputs(theirs)):
        return True
    steps = [
        a.index for a, b in comparison.close_updates if sorted(a.digests) and a.digests != b.digests
    ]
    if not steps or not ours.floating_inputs or not same_to_rounding(comparison, steps):
        return False
    for values in (_outputs, _losses):
        wanted, found = values(ours), values(theirs)
        if wanted and (len(wanted) != len(found) or not _off(wanted, found) <= _SAME_OUTPUT):
            return False
    return True


def _inputs(update: Update) -> sketches.Inputs:
    """What all ranks together evaluated."""
    exact = [step.eval_digests for step in update.ranks]
    return sketches.Inputs(
        summed_digests(exact),
        sketches.summed_sketches([step.eval_sketches for step in update.ranks], exact),
    )


def _bags(update: Update) -> list[list[tuple[int, int]]]:
    """Digests of all ranks together, then of the first rank alone."""
    whole = summed_digests([step.eval_digests for step in update.ranks])
    first = update.ranks[0].eval_digests if update.ranks else {}
    return [sorted(whole.values()), sorted(first.values())]


def _unrepeated(comparison: Comparison) -> set[int]:
    """Updates after which the reference's own runs evaluate different data."""
    found = set()
    for first, second in repeats(comparison):
        for update in first.updates:
            other = second.by_index.get(update.index)
            bags = [_bags(u)[0] for u in (update, other) if u is not None]
            if len(bags) == 2 and all(bags) and bags[0] != bags[1]:
                found.add(update.index)
    return found


def _losses(update: Update) -> list[float]:
    values = [float(v) for step in update.ranks for v in step.eval_losses]
    return [math.fsum(values) / len(values)] if values else []


def _outputs(update: Update) -> list[float]:
    values = [float(v) for v in update.ranks[0].eval_outputs] if update.ranks else []
    return sorted(values, key=lambda v: (not math.isfinite(v), v))


def _values(
    comparison: Comparison, sides: _Sides, what: str, values: Callable[[Update], list[float]]
) -> str:
    own = _own(comparison, values)
    tolerance = comparison.project.invariants.loss_tolerance
    if max(own.values(), default=0.0) > tolerance:
        return ""
    steps = [index for index, update in sides.reference.items() if values(update)]
    growth = comparison.chaos.growth(steps)
    limits = band(FLOORS[comparison.lowest_precision].loss, own, steps, growth=growth)
    calm = set(comparison.chaos.judged(steps))
    for step, limit in zip(steps, limits, strict=True):
        theirs = sides.candidate.get(step)
        if theirs is None:
            continue
        base = sides.reference[step]
        wanted, found = values(base), values(theirs)
        if values is _outputs and (
            base.eval_calls != theirs.eval_calls or len(base.ranks) != len(theirs.ranks)
        ):
            continue  # the same rows in bigger batches, or another share of them on this rank
        where = f"step {step}: evaluation {what}"
        if not found:
            return f"{where} was not seen, the reference has one"
        allowed = tolerance if comparison.has_dropout else min(float(limit), tolerance)
        if step not in calm:
            allowed = max(tolerance, 3.0 * own.get(step, 0.0))
        allowed = 0.0 if comparison.bitwise and not comparison.has_dropout else allowed
        off = _off(wanted, found)
        if not off <= allowed:
            at = next(
                i for i, (a, b) in enumerate(_pairs(wanted, found)) if not _off([a], [b]) < off
            )
            return (
                f"{where} {found[at]:.6g}, in the reference {wanted[at]:.6g}, off by {off:.2g}, "
                f"{allowed:.2g} is allowed"
            )
    return ""


def _own(comparison: Comparison, values: Callable[[Update], list[float]]) -> dict[int, float]:
    spread: dict[int, float] = {}
    for base, other in own_pairs(comparison.evidence, comparison.result.kind):
        for step, value in _between(base, other, values).items():
            spread[step] = max(spread.get(step, 0.0), value)
    return spread


def _between(
    base: Joined, other: Joined, values: Callable[[Update], list[float]]
) -> dict[int, float]:
    found = {}
    for update in base.updates:
        twin = other.by_index.get(update.index)
        if twin is not None and values(update) and values(twin):
            found[update.index] = _off(values(update), values(twin))
    return found


def _pairs(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(a, b, strict=False))


def _off(wanted: Sequence[float], found: Sequence[float]) -> float:
    """The largest relative difference of values that both have; 0 where both are not finite."""
    worst = 0.0
    for a, b in _pairs(wanted, found):
        if math.isfinite(a) and math.isfinite(b):
            worst = max(worst, abs(a - b) / (abs(a) or 1.0))
        elif math.isfinite(a) != math.isfinite(b):
            return math.inf
    return worst
