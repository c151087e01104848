"""The same optimizer updates were made, and the weights took the reference's path.

Why: a step that is skipped, an update that is clipped away, layers that no longer train, and a
gradient that is no longer reduced over ranks all save time and leave the loss of forty steps nearly
as it was. What they cannot leave as it was is the path of the weights. It was the strongest single
signal of all that were tried.

What is asked for, of the updates that both runs made:

- as many updates as in the reference;
- in each, every optimizer stepped as often as in the reference, and a backward ran before it. An
  optimizer is known by its place, since fused and wrapped ones have other names;
- a gradient scaler skipped no step that the reference did not skip;
- learning rates as in the reference, where they were seen (until `same_model` takes over all
  hyper-parameters);
- the sampled weights within the band of `numerics.weight_path`: distance from the reference's
  weights over the distance that they have travelled. The band is calibrated on a run of the
  reference whose weights start one unit in the last place away.

In timed runs weights are sampled on close looks only, so a path has few points; in the audit run
it has all. With dropout active (a timed run) another kernel draws other masks, and the paths part
honestly: then the lengths of the two paths must agree within a quarter, and the audit run, where
dropout is off, judges the rest.

In audit runs more is compared at the end, over the whole run: every parameter and moving buffer
(`weights.way_gaps`), of which none may stand still that the reference moves; every key of the
optimizers' state; and weights kept beside the model, averages and teachers. Each is one figure,
within a floor for the precision in use or 8 times the perturbed run's: of the tensors the 80 %
quantile of the distance over the way, in fp32 the worst one as well.

Weights that are laid out otherwise (another sharding) have other samples, and cannot be compared;
the check then fails if the reference had them, since a signal that vanishes may not pass.
"""

from collections.abc import Callable

import numpy as np

from infrarsi.contract import CheckResult, ExecutionResult, RunKind
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.floors import FINE, FLOORS, WORST_END
from infrarsi.verify.joined import Update
from infrarsi.verify.numerics import (
    FACTOR,
    parameter_precision,
    path_lengths,
    weight_path,
    weight_steps,
)
from infrarsi.verify.structure import paired_ranks
from infrarsi.verify.weights import (
    Gap,
    companion_gap,
    lost_ends,
    parameter_names,
    quantile,
    renamed,
    standing,
    state_gap,
    states,
    tensors,
    way_gaps,
)

CHECK = "optimizer_steps"
_RATE_TOLERANCE = 1e-6  # relative; rates are set, not computed from data
_LENGTH_RATIO = 1.25
_QUANTILE = 0.8  # over tensors: key biases move by noise, as in `numerics.weight_path`
_END_CAP = 0.7  # share of the way: a band as wide as this would let anything in


def judge(comparison: Comparison) -> CheckResult:
    """Whether the same updates were made to the weights."""
    ours, theirs = comparison.reference, comparison.candidate
    if not theirs.updates:
        return failed(CHECK, "no optimizer step was seen")
    if len(ours.updates) != len(theirs.updates):
        return failed(
            CHECK, f"{len(theirs.updates)} optimizer steps, the reference made {len(ours.updates)}"
        )
    for a, b in comparison.updates:
        difference = _difference(a, b)
        if difference:
            return failed(CHECK, f"step {a.index}: {difference}")
    return _weights(comparison)


def _difference(ours: Update, theirs: Update) -> str:
    calls, other = sorted(ours.calls.values()), sorted(theirs.calls.values())
    if calls != other:
        return f"optimizers stepped {other} times, in the reference {calls}"
    if ours.backwards and not theirs.backwards:
        return "the update came without a backward"
    if theirs.skipped > ours.skipped:
        return f"{theirs.skipped} optimizer steps were skipped, in the reference {ours.skipped}"
    if ours.learning_rates and not _same_rates(ours.learning_rates, theirs.learning_rates):
        return (
            f"learning rates {_text(theirs.learning_rates)}, "
            f"in the reference {_text(ours.learning_rates)}"
        )
    return ""


def _same_rates(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    """As sets: a patch may split or merge parameter groups of one rate."""
    a, b = sorted(set(ours)), sorted(set(theirs))
    return len(a) == len(b) and bool(np.allclose(a, b, rtol=_RATE_TOLERANCE, atol=0.0))


def _text(rates: tuple[float, ...]) -> str:
    return "none" if not rates else ", ".join(f"{rate:.6g}" for rate in sorted(set(rates)))


def _weights(comparison: Comparison) -> CheckResult:
    ours, theirs = comparison.reference, comparison.candidate
    made = f"{len(theirs.updates)} optimizer steps, none skipped beyond the reference's"
    if not any(update.weights for update in ours.updates):
        return uncovered(CHECK, made + ", but no weight was sampled in the reference")
    if not comparison.same_kind:
        return uncovered(CHECK, made + "; no reference run of this kind has weights to compare")
    shared = set(weight_steps(ours, theirs))
    lost = [u.index for u in ours.updates if u.weights and u.index not in shared]
    if lost:
        found = len(theirs.by_index[lost[0]].weights)
        wanted = len(ours.by_index[lost[0]].weights)
        return failed(CHECK, f"step {lost[0]}: {found} sampled weights, the reference has {wanted}")
    if comparison.bitwise and not comparison.has_dropout:
        return _equal(comparison, made)
    if comparison.has_dropout:
        return _lengths(comparison, made)
    kind = comparison.result.kind
    ends = _ends(comparison)
    if ends:
        return failed(CHECK, ends)
    deviation = weight_path(
        comparison.evidence,
        kind,
        ours,
        theirs,
        comparison.lowest_precision,
        until=comparison.chaos.horizon,
        growth=comparison.chaos.growth,
    )
    if deviation is None:
        return uncovered(CHECK, made + ", but weights were sampled fewer than twice")
    where = f"step {deviation.step}: the weights are off by {deviation.found:.2g} {deviation.what}"
    if deviation.ratio > 1.0:
        return failed(CHECK, f"{where}, {deviation.allowed:.2g} is allowed")
    run = "audit" if kind is not RunKind.TIMED else "timed"
    return passed(CHECK, f"{made}; {run} run, worst {where} of {deviation.allowed:.2g} allowed")


def _ends(comparison: Comparison) -> str:
    """What is off at the end of an audit, in words; "" where nothing is, or in a timed run."""
    reference, result = comparison.reference_result, comparison.result
    ours = tensors(reference)
    theirs = renamed(ours, tensors(result))
    if ours.end:
        lost = lost_ends(ours, theirs, parameter_names(reference))
        if lost:
            return f"`{lost[0]}` has no recorded end, the reference has"
        still = standing(ours, theirs)
        if still:
            return f"`{still[0]}` stands still over the whole run ({len(still)} tensors do)"
    dtype = "exact" if comparison.bitwise else parameter_precision(reference)
    lowest = comparison.lowest_precision
    known = comparison.evidence.perturbed if comparison.result.kind is not RunKind.TIMED else None

    def ways(run: ExecutionResult) -> list[Gap]:
        return way_gaps(ours, renamed(ours, tensors(run)), dtype)

    judged: list[tuple[str, float, Callable[[ExecutionResult], Gap]]] = [
        ("went another way", FLOORS[lowest].end, lambda run: quantile(ways(run), _QUANTILE)),
        ("is another optimizer state", FLOORS[lowest].state, lambda run: _state(reference, run)),
        (
            "(beside the model) went another way",
            FLOORS[lowest].average,
            lambda r: _beside(reference, r),
        ),
    ]
    if known and lowest in FINE:
        judged.append(("went another way", WORST_END, lambda run: quantile(ways(run), 1.0)))
    if comparison.chaos.horizon is not None and not comparison.bitwise:
        return ""  # at the end the reference is not its own either
    last = [update.index for update in comparison.reference.updates[-1:]]
    wide = FACTOR * float(comparison.chaos.growth(last)[-1]) if last else FACTOR
    for what, floor, gap in judged:
        found = gap(result)
        own = gap(known).ratio if known and found.ratio > 0.0 else 0.0
        allowed = 0.0 if comparison.bitwise else max(floor, wide * own)
        if not found.ratio <= allowed and allowed < _END_CAP:
            return (
                f"`{found.name}` {what} at the end: norm {found.found:.6g}, in the reference "
                f"{found.wanted:.6g}, off by {found.ratio:.2g}, {allowed:.2g} is allowed"
            )
    return ""


def _state(reference: ExecutionResult, run: ExecutionResult) -> Gap:
    return state_gap(states(reference), states(run))


def _beside(reference: ExecutionResult, run: ExecutionResult) -> Gap:
    gaps = [companion_gap(ours, theirs) for ours, theirs in paired_ranks(reference, run)]
    return max(gaps, key=lambda gap: gap.ratio, default=Gap(0.0, "", 0.0, 0.0))


def _equal(comparison: Comparison, made: str) -> CheckResult:
    ends = _ends(comparison)
    if ends:
        return failed(CHECK, ends)
    for ours, theirs in comparison.updates:
        if ours.weights != theirs.weights:
            return failed(CHECK, f"step {ours.index}: sampled weights are not bitwise the same")
    return passed(CHECK, f"{made}; sampled weights bitwise the same")


def _lengths(comparison: Comparison, made: str) -> CheckResult:
    lengths = path_lengths(comparison.reference, comparison.candidate)
    if lengths is None:
        return uncovered(CHECK, made + ", but weights were sampled fewer than twice")
    ours, theirs = lengths
    if not ours / _LENGTH_RATIO <= theirs <= ours * _LENGTH_RATIO:
        return failed(
            CHECK,
            f"the weights travelled {theirs:.3g}, in the reference {ours:.3g} "
            f"(a factor of {_LENGTH_RATIO} is allowed with dropout active)",
        )
    return passed(CHECK, f"{made}; dropout is active: the weights travelled {theirs / ours:.3f} x")
