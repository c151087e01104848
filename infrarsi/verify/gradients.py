"""How far the gradients of single parameters are from the reference's, step by step.

A gradient is what the optimizer is given: reduced over ranks, unscaled and clipped. So a reduction
that is left out, a clip by another norm, a scaled loss, a branch that is detached and a label that
is smoothed all show here, at the step where they happen, whatever Adam makes of them.

Distances are of norm and projection, over a scale for each parameter: its norm in the reference, or
`SHARE` of the norm of all gradients where that is more. So a gradient that is zero but for rounding
(the bias of attention keys) does not decide. The statistic is the largest over parameters.

`drift` is the same with signs and averaged over the steps: rounding averages out, a change that is
made at every step does not. In 16 bits, where rounding moves single gradients by 2 %, it sees a
label smoothing of 0.01.
"""

from dataclasses import dataclass

from infrarsi.contract import ExecutionResult, RunKind
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.fingerprints import (
    apart,
    by_name,
    renaming,
    replicas_differ,
    sharded_names,
    size,
)
from infrarsi.verify.joined import Joined, Update
from infrarsi.verify.numerics import own_pairs

SHARE = 0.02
"""Chosen by experiment, see README.md: key biases have 1e-6 of the whole norm, the smallest honest
parameters of a transformer 1e-2."""


MIN_STEPS = 8


@dataclass(frozen=True)
class Gap:
    """The parameter that is furthest from the reference at one step.

    `ratio` is its distance over its scale; `found` and `wanted` are norms, None where the run has
    no gradient for it or more than the reference has. `missing`: the run, or one of its ranks, has
    no gradient where the reference has one; such a parameter comes before any other.
    """

    ratio: float
    name: str
    found: float | None
    wanted: float | None
    missing: bool = False


def split_names(reference: Joined, *results: ExecutionResult) -> frozenset[str]:
    """Parameters whose ranks hold parts: sharded in a run, or not alike on the reference's ranks.

    The latter are experts of their own on each rank, or gradients that the reference itself does
    not reduce.
    """
    found = set(sharded_names(rank for result in results for rank in result.ranks))
    for update in reference.updates:
        for name, prints in by_name([step.gradients for step in update.ranks]).items():
            if len(prints) > 1 and replicas_differ(prints):
                found.add(name)
    return frozenset(found)


def gradient_names(run: Joined) -> set[str]:
    """Every parameter that the run's steps name."""
    return {name for u in run.updates for step in u.ranks for name in step.gradients}


def gaps(reference: Joined, other: Joined, parts: frozenset[str]) -> dict[int, Gap]:
    """The largest distance at each step that has gradients in both runs."""
    names = renaming(gradient_names(reference), gradient_names(other))
    found = {}
    for ours in reference.updates:
        theirs = other.by_index.get(ours.index)
        if theirs is not None and has_gradients(ours) and has_gradients(theirs):
            found[ours.index] = _gap(ours, theirs, names, parts)
    return found


def has_gradients(update: Update) -> bool:
    """Whether any gradient of the step was seen."""
    return any(step.gradients for step in update.ranks)


def own_spread(evidence: Evidence, parts: frozenset[str]) -> dict[int, float]:
    """The same statistic for the perturbed run against the audit run, by step."""
    spread: dict[int, float] = {}
    for base, other in own_pairs(evidence, RunKind.AUDIT):
        for step, gap in gaps(base, other, parts).items():
            spread[step] = max(spread.get(step, 0.0), gap.ratio)
    return spread


def drift(reference: Joined, other: Joined, parts: frozenset[str], until: int | None = None) -> Gap:
    """The parameter whose norm is off most in the mean over the steps, with its mean norms.

    Steps at which either side has no finite gradient take no part. Fewer than `MIN_STEPS` of them
    are no mean: then nothing is off. Steps from `until` on are left out.
    """
    names = renaming(gradient_names(reference), gradient_names(other))
    signed: dict[str, list[tuple[float, float, float]]] = {}
    for ours in reference.updates:
        theirs = other.by_index.get(ours.index)
        if theirs is None or not has_gradients(theirs):
            continue
        if until is not None and ours.index >= until:
            break
        a = by_name([step.gradients for step in ours.ranks])
        b = by_name([step.gradients for step in theirs.ranks], names)
        sizes = {name: size(prints, in_parts=name in parts) for name, prints in a.items()}
        least = max(SHARE * sum(norm**2 for norm in sizes.values()) ** 0.5, 1e-30)
        for name in sorted(set(a) & set(b)):
            found = size(b[name], in_parts=name in parts)
            if sizes[name] > 0.0 and found > 0.0:
                off = (found - sizes[name]) / max(sizes[name], least)
                signed.setdefault(name, []).append((off, found, sizes[name]))
    worst = Gap(0.0, "", None, None)
    for name, values in signed.items():
        means = [sum(column) / len(values) for column in zip(*values, strict=True)]
        if len(values) >= MIN_STEPS and abs(means[0]) > worst.ratio:
            worst = Gap(abs(means[0]), name, means[1], means[2])
    return worst


def own_drift(evidence: Evidence, parts: frozenset[str], until: int | None = None) -> float:
    """The same statistic for the perturbed run against the audit run."""
    pairs = own_pairs(evidence, RunKind.AUDIT)
    return max((drift(base, other, parts, until).ratio for base, other in pairs), default=0.0)


def _gap(ours: Update, theirs: Update, names: dict[str, str], parts: frozenset[str]) -> Gap:
    a = by_name([step.gradients for step in ours.ranks])
    b = by_name([step.gradients for step in theirs.ranks], names)
    sizes = {name: size(prints, in_parts=name in parts) for name, prints in a.items()}
    least = max(SHARE * sum(norm**2 for norm in sizes.values()) ** 0.5, 1e-30)
    worst = Gap(0.0, "", None, None)
    for name in sorted({*a, *b}):
        wanted, found = a.get(name, []), b.get(name, [])
        split = name in parts
        missing = False
        if wanted and found:
            ratio = apart(wanted, found, in_parts=split) / max(sizes[name], least)
            fewer = len(found) < len(theirs.ranks) and len(wanted) == len(ours.ranks)
            missing = fewer and not split and sizes[name] > 0.0
        elif wanted:
            missing = sizes[name] > 0.0  # however small: it is not trained
            ratio = 1.0 if missing else 0.0
        else:
            ratio = size(found, in_parts=split) / least
        if (missing, ratio) > (worst.missing, worst.ratio):
            norms = [size(p, in_parts=split) if p else None for p in (found, wanted)]
            worst = Gap(max(ratio, 1.0) if missing else ratio, name, norms[0], norms[1], missing)
    return worst
