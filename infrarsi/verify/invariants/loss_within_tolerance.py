"""The loss of every step is the reference's, as far as rounding lets it.

Why: a loss curve that "looks the same" after forty steps proves little, and the three per cent that
a user would declare as tolerance lets many cheats in: half of the batch moves the first loss by
0.5 %, a learning rate 5 % higher any loss by 0.1 %. Honest changes move it by
rounding alone, which can be measured. So both must hold: the declared tolerance, and a band that
was calibrated on this very job.

How it is judged: one statistic, the largest over all steps of |loss - reference| over what is
allowed at that step. One maximum, because limits of three sigma at each of many steps fail honest
runs. What is allowed is the smaller of

- the declared `invariants.loss_tolerance`, relative;
- the band of `numerics.loss_limits`: the larger of a floor for the lowest precision in use (1e-4 in
  fp32, 1e-3 in 16 bits, growing with the step) and 8 times the deviation of the *perturbed* run,
  as an envelope. Step 0 is before any update, so it is the tightest: there, all that can differ is
  the forward pass.

Beyond the horizon of a chaotic job (`chaos.py`) single losses say nothing; there their median
deviation is held to the declared tolerance, or three times the reference's own.

A step whose loss the reference has and the run has not is a failure. So is a printed loss that is
not the one that was trained on, where the reference prints its own truly
(`infrarsi.verify.printed`).

With dropout active (timed runs) other kernels draw other masks, and single losses part honestly:
then the mean over the steps is held to the declared tolerance, and the audit run, where dropout is
off in both, judges each step. Where the reference differs from itself by more than the declared
tolerance (unseeded data, say) nothing can be judged, and the check says so.
"""

import math

import numpy as np

from infrarsi.contract import CheckResult
from infrarsi.verify.chaos import MIN_STEPS, middle
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.joined import Update
from infrarsi.verify.numerics import loss_limits, losses, own_loss_spread, relative_losses
from infrarsi.verify.printed import printed_losses_disagree

CHECK = "loss_within_tolerance"
_LOSS_EVERY = 4  # as in the witness, `guest/hooks.py`


def judge(comparison: Comparison) -> CheckResult:
    """Whether the losses are the reference's."""
    ours, theirs = losses(comparison.reference), losses(comparison.candidate)
    if not any(math.isfinite(value) for value in ours.values()):
        return uncovered(CHECK, "no loss was seen in the reference")
    if not comparison.same_kind:
        return uncovered(CHECK, "no reference run of this kind has losses to compare with")
    made = comparison.candidate.by_index
    on_device = any(rank.head.get("device") for rank in comparison.result.ranks)
    lost = [
        step
        for step in ours
        if step in made and step not in theirs and _must_have(made[step], on_device)
    ]
    if lost:
        return failed(CHECK, f"step {lost[0]}: no loss was seen, the reference has one")
    if not theirs:
        return uncovered(CHECK, "no loss was seen in this run")
    tolerance = comparison.project.invariants.loss_tolerance
    own = max(own_loss_spread(comparison.evidence, comparison.result.kind).values(), default=0.0)
    if own > tolerance:
        return uncovered(
            CHECK,
            f"the reference differs from itself by {own:.2g}, more than the tolerance of "
            f"{tolerance:g}",
        )
    false = printed_losses_disagree(comparison)
    if false:
        return failed(CHECK, false)
    if comparison.has_dropout:
        return _mean(ours, theirs, tolerance)
    return _every_step(comparison, ours, theirs, 0.0 if comparison.bitwise else tolerance)


def _must_have(update: Update, on_device: bool) -> bool:
    """Whether the witness keeps the loss of this update, however short the steps are.

    On a device it leaves out three of four ordinary steps that are shorter than 30 ms.
    """
    looked = all(step.close_look for step in update.ranks)
    return looked or not on_device or update.index % _LOSS_EVERY == 0


def _every_step(
    comparison: Comparison, ours: dict[int, float], theirs: dict[int, float], tolerance: float
) -> CheckResult:
    found = {
        step: value if math.isfinite(value) else math.inf
        for step, value in relative_losses(ours, theirs).items()
        if math.isfinite(ours[step])
    }
    chaos = comparison.chaos
    steps = chaos.judged(sorted(found)) if tolerance else sorted(found)
    if len(steps) < MIN_STEPS:
        return uncovered(CHECK, "the reference departs from itself within its first steps")
    values = np.asarray([found[step] for step in steps])
    allowed = loss_limits(
        comparison.evidence,
        comparison.result.kind,
        steps,
        tolerance,
        comparison.lowest_precision,
        chaos.growth(steps),
    )
    ratio = values / np.maximum(allowed, 1e-300)
    at = int(np.argmax(ratio))
    where = (
        f"step {steps[at]}: {theirs[steps[at]]:.6g}, reference {ours[steps[at]]:.6g}, "
        f"off by {values[at]:.2g}"
    )
    if ratio[at] > 1.0:
        return failed(CHECK, f"{where}, {allowed[at]:.2g} is allowed")
    off, most = _beyond(comparison, {s: found[s] for s in found if s not in steps}, tolerance)
    if not off <= most:
        return failed(
            CHECK,
            f"from step {steps[-1] + 1} on losses are off by {off:.2g} in the middle, "
            f"{most:.2g} is allowed",
        )
    text = f"{len(steps)} steps; worst at {where} of {allowed[at]:.2g} allowed"
    return passed(CHECK, text + chaos.note)


def _beyond(
    comparison: Comparison, found: dict[int, float], tolerance: float
) -> tuple[float, float]:
    """The median deviation beyond the horizon, and what is allowed of it."""
    spread = own_loss_spread(comparison.evidence, comparison.result.kind)
    own = middle([spread[step] for step in found if step in spread])
    return middle(list(found.values())), max(tolerance, 3.0 * own)


def _mean(ours: dict[int, float], theirs: dict[int, float], tolerance: float) -> CheckResult:
    shared = sorted(set(ours) & set(theirs))
    a = float(np.mean([ours[step] for step in shared]))
    b = float(np.mean([theirs[step] for step in shared]))
    off = abs(b - a) / (abs(a) or 1.0)
    text = f"dropout is active: mean loss {b:.6g}, reference {a:.6g}, off by {off:.2g}"
    if not off <= tolerance:
        return failed(CHECK, f"{text}, {tolerance:g} is allowed")
    return passed(CHECK, f"{text} of {tolerance:g} allowed")
