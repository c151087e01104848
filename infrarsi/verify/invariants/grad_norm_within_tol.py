"""The gradient of every parameter is the reference's at every step, as far as rounding lets it.

Why: a clipped or scaled gradient is divided out by Adam, a branch that is detached leaves the loss
of the first step as it was, and a reduction that is left out on one rank of many moves the loss by
noise. The gradients themselves are moved at once, and by much more than rounding.

How it is judged, in audit runs: one statistic, the largest over parameters and steps of the
distance from the reference, over what is allowed at that step (`gradients.py` says what a distance
is). What is allowed is the larger of a floor for the lowest precision in use, growing with the
step, and 4 times the same statistic of the perturbed run, as an envelope. Where
a job amplifies rounding the multiple grows, and where half of a gradient could be missing unseen
nothing more is judged (`chaos.py`). What stays below that
at each step may still be there at all of them: so the mean over the steps of signed deviations, in
which rounding cancels, has a narrower band of the same make (`gradients.drift`).

- A parameter without gradient that has one in the reference fails, and so does the other way round.
  A gradient that is exactly zero counts as none: `zero_grad(set_to_none=True)` makes one of the
  other.
- Replicas: every rank's gradient is held against the reference's, so ranks that are not reduced
  (`no_sync` left on) fail. Parts (sharded parameters): squared norms are added over ranks.
- A rank or a step without gradients fails where the reference has them.

Not covered in timed runs, which look at no gradient, and where the reference has none to see (an
optimizer in another process, or one whose step is compiled whole).
"""

from infrarsi.contract import CheckResult
from infrarsi.verify.chaos import CAP, MIN_STEPS
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.floors import FLOORS
from infrarsi.verify.gradients import (
    Gap,
    drift,
    gaps,
    has_gradients,
    own_drift,
)
from infrarsi.verify.numerics import GRADIENT_FACTOR, band

CHECK = "grad_norm_within_tol"


def judge(comparison: Comparison) -> CheckResult:
    """Whether the gradients are the reference's."""
    ours, theirs = comparison.reference, comparison.candidate
    with_gradients = [update for update in ours.updates if has_gradients(update)]
    if not with_gradients:
        return uncovered(CHECK, "no gradient was seen in the reference; audit runs look at them")
    if not comparison.same_kind:
        return uncovered(CHECK, "no reference run of this kind has gradients to compare with")
    if not theirs.updates:
        return uncovered(CHECK, "the run recorded no update")
    for update in with_gradients:
        other = theirs.by_index.get(update.index)
        if other is None:
            continue
        blind = [step for step in other.ranks if not step.gradients]
        if blind and all(step.gradients for step in update.ranks):
            return failed(
                CHECK, f"step {update.index}: no gradient was seen, the reference has one"
            )
    split = comparison.split_names
    found = gaps(ours, theirs, split)
    if not found:
        return uncovered(CHECK, "no step has gradients in both runs")
    if comparison.bitwise:
        return _equal(found)
    return _banded(comparison, found, split)


def _banded(comparison: Comparison, found: dict[int, Gap], split: frozenset[str]) -> CheckResult:
    gone = next((step for step in sorted(found) if found[step].missing), None)
    if gone is not None:
        return failed(CHECK, f"step {gone}: {_text(found[gone])}")
    chaos = comparison.chaos
    steps = chaos.judged(sorted(found))
    if len(steps) < MIN_STEPS:
        return uncovered(CHECK, "the reference departs from itself within its first steps")
    floors = FLOORS[comparison.lowest_precision]
    growth = chaos.growth(steps)
    limits = band(floors.gradient, chaos.spread, steps, GRADIENT_FACTOR, growth)
    allowed = [min(float(limit), CAP) for limit in limits]
    ratios = [found[step].ratio / limit for step, limit in zip(steps, allowed, strict=True)]
    # The first step beyond its limit: later ones only follow from it.
    beyond = [at for at, ratio in enumerate(ratios) if not ratio <= 1.0]
    at = beyond[0] if beyond else ratios.index(max(ratios))
    where = f"step {steps[at]}: {_text(found[steps[at]])}"
    if beyond:
        return failed(CHECK, f"{where}, {allowed[at]:.2g} is allowed")
    mean = drift(comparison.reference, comparison.candidate, split, chaos.horizon)
    own = GRADIENT_FACTOR * own_drift(comparison.evidence, split, chaos.horizon)
    most = min(max(floors.drift, own * float(growth[-1])), CAP)
    if mean.ratio > most:
        return failed(CHECK, f"in the mean over the steps {_text(mean)}, {most:.2g} is allowed")
    return passed(
        CHECK,
        f"{len(steps)} steps; worst at {where} of {allowed[at]:.2g} allowed; "
        f"in the mean off by {mean.ratio:.2g} of {most:.2g} allowed{chaos.note}",
    )


def _equal(found: dict[int, Gap]) -> CheckResult:
    for step in sorted(found):
        if found[step].ratio > 0.0:
            return failed(
                CHECK, f"step {step}: {_text(found[step])}, bitwise equality is asked for"
            )
    return passed(CHECK, f"norms and projections of {len(found)} steps are bitwise the same")


def _text(gap: Gap) -> str:
    if not gap.name:
        return "all gradients are the same, off by 0"
    if gap.found is None:
        return f"`{gap.name}` has no gradient, the reference's has norm {gap.wanted:.3g}, off by 1"
    if gap.wanted is None:
        return f"`{gap.name}` has a gradient of norm {gap.found:.3g}, the reference has none"
    if gap.wanted == 0.0:
        return f"the gradient of `{gap.name}` has norm {gap.found:.3g}, in the reference 0"
    return (
        f"the gradient of `{gap.name}` has norm {gap.found:.6g}, "
        f"in the reference {gap.wanted:.6g}, off by {gap.ratio:.2g}"
    )
