"""Each update consumes the very same samples as in the reference.

Why: cached batches, a mock batch, one shard again and again, and rows that were cut or zeroed all
keep every count right. Digests of what the model was really called with do not.

A digest is two sums mod 2^64, of a hash of each row and of a hash of each element. Sums are free of
order, so they add up over micro-batches and ranks: the same rows under another micro-batch, another
number of ranks or another order within the update give the same digest. They are compared for each
update that both runs looked at closely. In timed runs those updates are chosen by a secret key, the
same for both, so that they coincide and the job cannot know them; in an audit run they are all of
them. Names of inputs take no part, as in `same_workload`.

A run whose updates hold the same rows as the reference's over the whole window, but in another
order across updates, fails too, and says so: order across updates is a knob that has to be proven
on its own.

Digests are exact, and floating inputs that the job computes (noised pictures, normalised images)
may differ in their last bit in an honest change. So where floating inputs alone differ, their
sketches are asked (`verify/sketches.py`): other, repeated, rescaled and rounded rows move them, the
order of operations does not. Where there is none that tells (numbers of 16 bits, records of older
versions), or an input depends on the weights, which another rounding moves further in each step,
what comes of them is asked in an fp32 job: in an audit the gradients of that step, which other
samples move by their own size and rounding by a millionth; in a timed run without dropout its loss,
and the audit decides.

An input that the reference does not repeat (a picture that another model makes, which depends on
the weights) is left out by its name. Not covered where none is left, or where the reference has no
digests: then nothing can be said about anyone else's data, and a fixed seed would cover it.
"""

import math

from infrarsi.contract import CheckResult, RunKind
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.floors import FINE, FLOORS
from infrarsi.verify.gradients import gaps
from infrarsi.verify.joined import Joined, Update
from infrarsi.verify.numerics import (
    GRADIENT_FACTOR,
    band,
    loss_limits,
    losses,
    relative_losses,
)
from infrarsi.verify.sketches import apart, differing, fine

CHECK = "same_data"
_MODULUS = 2**64
_OTHER = 0.02  # share of a gradient: other samples move it by more, a few other rows of many too


def judge(comparison: Comparison) -> CheckResult:
    """Whether the same samples were consumed."""
    if not any(update.digests for update in comparison.reference.updates):
        return uncovered(CHECK, "no update of the reference was looked at closely")
    unlike = unrepeated(comparison)
    if unlike and not _names(comparison) - unlike.keys():
        return uncovered(
            CHECK,
            "the reference itself reads other data in each run "
            f"(step {min(unlike.values())}); fix a seed",
        )
    if not comparison.candidate.updates:
        return uncovered(CHECK, "the run recorded no update")
    if not comparison.close_updates:
        return failed(CHECK, "no update was looked at closely in both runs, so no batch is proven")
    lost = [
        update.index
        for update in comparison.reference.updates
        if update.digests
        and comparison.same_kind
        and update.index in comparison.candidate.by_index
        and not comparison.candidate.by_index[update.index].digests
    ]
    if lost:
        return failed(CHECK, f"step {lost[0]}: its batch has no digest, the reference's has")
    left_out = comparison.per_forward_inputs | unlike.keys()
    other = [
        ours.index
        for ours, theirs in comparison.close_updates
        if _bag(ours, left_out) != _bag(theirs, left_out)
    ]
    if other and same_to_rounding(comparison, other, left_out):
        return passed(
            CHECK,
            f"the same samples to rounding: floating inputs have other last bits in {len(other)} "
            f"of {len(comparison.close_updates)} updates",
        )
    if not other:
        count = len(comparison.close_updates)
        return passed(CHECK, f"the same samples in all {count} updates that were looked at closely")
    return failed(CHECK, _located(comparison, other, left_out))


def same_to_rounding(
    comparison: Comparison, steps: list[int], left_out: frozenset[str] = frozenset()
) -> bool:
    """Whether at these steps floating inputs alone differ, and by rounding alone.

    Never under `numerics: bitwise`.
    """
    if comparison.bitwise:
        return False
    moving = _moving(comparison)
    untold = []
    for ours, theirs in comparison.updates:
        if ours.index not in steps:
            continue
        mine, other = (update.inputs.without(left_out) for update in (ours, theirs))
        pairs = differing(mine, other)
        if pairs is None:
            return False
        for name, twin in pairs:
            sketches = mine.sketches.get(name), other.sketches.get(twin)
            share = apart(*sketches)
            if share is not None and share <= 1.0:
                continue
            if share is not None and fine(sketches[0]) and not (moving is None or name in moving):
                return False
            untold.append(ours.index)
    return not untold or _floating_alone(comparison, sorted(set(untold)), left_out)


def _moving(comparison: Comparison) -> frozenset[str] | None:
    """Inputs that depend on the weights: those that the perturbed run changes; None if unknown."""
    audit, perturbed = comparison.evidence.audit_run, comparison.evidence.perturbed_run
    if audit is None or perturbed is None:
        return None
    return frozenset(
        name
        for update in audit.updates
        for name, digest in update.digests.items()
        if update.index in perturbed.by_index
        and perturbed.by_index[update.index].digests.get(name, digest) != digest
    )


def _floating_alone(comparison: Comparison, steps: list[int], left_out: frozenset[str]) -> bool:
    """Whether floating inputs alone differ, and what comes of them does not.

    Never in 16 bits, or with dropout active, where gradients and losses are too coarse to tell.
    """
    if comparison.has_dropout or comparison.lowest_precision not in FINE:
        return False
    if not comparison.same_kind:
        return False
    for ours, theirs in comparison.updates:
        if ours.index in steps:
            bags = [_bag(update, left_out | update.floating_inputs) for update in (ours, theirs)]
            if bags[0] != bags[1] or len(ours.digests) != len(theirs.digests):
                return False
    return _follows(comparison, steps)


def _follows(comparison: Comparison, steps: list[int]) -> bool:
    """Whether losses, and in audits gradients, of these steps are inside their bands."""
    off = relative_losses(losses(comparison.reference), losses(comparison.candidate))
    kind, lowest = comparison.result.kind, comparison.lowest_precision
    for step, limit in zip(
        steps, loss_limits(comparison.evidence, kind, steps, 1.0, lowest), strict=True
    ):
        if not off.get(step, math.inf) <= limit:
            return False
    if kind is RunKind.TIMED:
        return True
    found = gaps(comparison.reference, comparison.candidate, comparison.split_names)
    spread = comparison.chaos.spread
    limits = band(FLOORS[lowest].gradient, spread, steps, GRADIENT_FACTOR)
    return all(
        step in found and found[step].ratio <= min(float(limit), _OTHER)
        for step, limit in zip(steps, limits, strict=True)
    )


def _located(comparison: Comparison, other: list[int], left_out: frozenset[str]) -> str:
    looked = len(comparison.close_updates)
    text = f"step {other[0]}: other samples than in the reference ({len(other)} of {looked} updates"
    ours, theirs = (
        _total([pair[side] for pair in comparison.close_updates], left_out) for side in (0, 1)
    )
    if ours == theirs:
        return text + "; the same samples in all, in another order across updates)"
    theirs_at = comparison.candidate.by_index[other[0]]
    again = [
        b.index
        for _, b in comparison.close_updates
        if b.index != other[0] and b.digests == theirs_at.digests
    ]
    return text + (f"; the batch of step {again[0]} again)" if again else ")")


def unrepeated(comparison: Comparison) -> dict[str, int]:
    """Inputs that runs of the reference itself do not share, each with the first such step.

    Runs of the kind that is judged. Audits draw no dropout masks, so a job that draws its noise
    from the same generator has other noise there than in its timed runs, the same in each audit.
    """
    found: dict[str, int] = {}
    for first, second in repeats(comparison):
        for update in first.updates:
            other = second.by_index.get(update.index)
            if other is None or not update.digests or not other.digests:
                continue
            for name in {*update.digests, *other.digests}:
                if update.digests.get(name) != other.digests.get(name):
                    found.setdefault(name, update.index)
    return found


def _names(comparison: Comparison) -> set[str]:
    return {name for update in comparison.reference.updates for name in update.digests}


def repeats(comparison: Comparison) -> list[tuple[Joined, Joined]]:
    """Pairs of the reference's runs that should have consumed the same."""
    timed = list(comparison.evidence.timed_runs)
    audits = [r for r in (comparison.evidence.audit_run, comparison.evidence.perturbed_run) if r]
    if not comparison.same_kind:
        runs = timed + audits
    else:
        runs = timed if comparison.result.kind is RunKind.TIMED else audits
    return [(runs[0], run) for run in runs[1:]]


def _bag(update: Update, left_out: frozenset[str] = frozenset()) -> list[tuple[int, int]]:
    return sorted(digest for name, digest in update.digests.items() if name not in left_out)


def _total(updates: list[Update], left_out: frozenset[str]) -> list[int]:
    sums: dict[str, int] = {}
    for update in updates:
        for name, (rows, _) in update.digests.items():
            if name not in left_out:
                sums[name] = (sums.get(name, 0) + rows) % _MODULUS
    return sorted(sums.values())
