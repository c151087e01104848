"""How far a run's numbers may stray from the reference's, and why so far.

Two runs of one job on the same data differ by rounding alone, and rounding grows from step to
step. How fast is the job's own affair, so it is measured: a *perturbed* run of the reference, whose
initial weights are moved by one unit in the last place. A band is the larger of a floor for the
lowest precision that the job computes in and `FACTOR` times the perturbed run's own deviation, as
an envelope that never shrinks. Runs of the same kind that repeat the reference count as well.

Calibration (tests/verify/test_calibration.py; figures in README.md), a real tiny transformer over
40 steps. Relative loss deviation: honest changes in fp32 at most 4e-8 a step, in bf16 autocast at
most 1e-4 in all; learning rate x 1.05 1.1e-3. Weight path (80 % quantile over sampled elements of
the distance apart over the distance travelled): honest in fp32 at most 5e-6, in bf16 9e-3;
learning rate x 1.01 9e-3 and 2.7e-2, one skipped step 7e-2.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import ExecutionResult, RunKind
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.floors import CUDA_FLOAT32, FINE, FLOORS, WORST_ELEMENT
from infrarsi.verify.joined import Joined

FACTOR = 8.0
"""Honest changes strayed at most 6 times as far as the perturbed run; see README.md."""
GRADIENT_FACTOR = 4.0
"""For gradients: in 16 bits honest changes strayed no further than the perturbed run does, and a
gradient of which 16 % may be off says nothing."""
_GROWTH_STEPS = 10.0
_LOOK_AHEAD = 2  # a chaotic jump may come a step or two earlier than in the perturbed run
_QUANTILE = 0.8
_STILL = 0.02  # an element that moved less than this share of the reference's way stands still
_BROKEN = 1e9  # a weight that is NaN or infinite: beyond any band, yet a number
EPSILON = {"float64": 2.2e-16, "float32": 1.2e-7, "bfloat16": 7.8e-3, "float16": 9.8e-4}
_ORDER = ("float64", "float32", "float16", "bfloat16")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Deviation:
    """The largest deviation over all steps, in units of what is allowed there (1 is the limit).

    `step`, `found` and `allowed` say where it is and what both are.
    """

    ratio: float
    step: int
    found: float
    allowed: float
    what: str = ""


def precision(results: Iterable[ExecutionResult]) -> str:
    """The lowest floating-point precision that the records name; `float32` where none does.

    Read from the parameters' dtypes in model lines, and from what was seen of autocast.
    """
    found = {"float32"}
    for rank in (rank for result in results for rank in result.ranks):
        for line in (rank.model, *rank.models):
            for source in (line.get("dtypes"), line.get("autocast")):
                found |= {str(name).removeprefix("torch.") for name in source or ()}
        for line in rank.precision:
            seen = line.get("autocast")
            for name in seen.values() if isinstance(seen, dict) else ():
                found.add(str(name).removeprefix("torch."))
    return next(name for name in reversed(_ORDER) if name in found)


def parameter_precision(result: ExecutionResult) -> str:
    """The lowest precision that parameters are kept in; `float32` where the record is silent."""
    names = {"float32"}
    for rank in result.ranks:
        names |= {str(name).removeprefix("torch.") for name in rank.model.get("dtypes") or ()}
    return next(name for name in reversed(_ORDER) if name in names)


def losses(run: Joined) -> dict[int, float]:
    """The losses that were seen, by step."""
    return {update.index: update.loss for update in run.updates if update.loss is not None}


def relative_losses(reference: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    """|other - reference| over |reference|, by shared step.

    A loss near zero is measured against a twentieth of the reference's median size instead.
    """
    sizes = [abs(value) for value in reference.values()]
    least = 0.05 * float(np.median(sizes)) if sizes else 0.0
    return {
        step: abs(other[step] - value) / (max(abs(value), least) or 1.0)
        for step, value in reference.items()
        if step in other
    }


def own_loss_spread(evidence: Evidence, kind: RunKind) -> dict[int, float]:
    """How far the reference's own runs stray from the one that `kind` is compared with."""
    spread: dict[int, float] = {}
    for base, other in own_pairs(evidence, kind):
        for step, value in relative_losses(losses(base), losses(other)).items():
            spread[step] = max(spread.get(step, 0.0), value)
    return spread


def own_pairs(evidence: Evidence, kind: RunKind) -> list[tuple[Joined, Joined]]:
    """Runs of the reference that differ from each other by rounding alone."""
    pairs = []
    if evidence.audit_run and evidence.perturbed_run:
        pairs.append((evidence.audit_run, evidence.perturbed_run))
    if kind is RunKind.TIMED:
        pairs += [(evidence.timed_runs[0], other) for other in evidence.timed_runs[1:]]
    return pairs


def envelope(spread: dict[int, float], steps: Sequence[int]) -> Floats:
    """The largest spread up to each step and a little beyond, shape [len(steps)]."""
    values = [
        max((v for at, v in spread.items() if at <= step + _LOOK_AHEAD), default=0.0)
        for step in steps
    ]
    return np.asarray(values, dtype=np.float64)


def lowest_precision(evidence: Evidence) -> str:
    """The lowest precision that the reference computes in; `CUDA_FLOAT32` for fp32 on a GPU."""
    runs = [r for r in (*evidence.timed, evidence.audit) if r]
    name = precision(runs)
    on_gpu = any(rank.head.get("device") for run in runs for rank in run.ranks)
    return CUDA_FLOAT32 if name == "float32" and on_gpu else name


def band(
    floor: float,
    own: dict[int, float],
    steps: Sequence[int],
    factor: float = FACTOR,
    growth: Floats | None = None,
) -> Floats:
    """What is allowed at each step: the grown floor, or `factor` times the reference's own spread.

    `own`: by step, how far runs of the reference stray from each other in the same statistic.
    `growth`: by what that is widened at each step (`chaos`).
    """
    grown = floor * (1.0 + np.asarray(steps, dtype=np.float64) / _GROWTH_STEPS)
    wide = factor * envelope(own, steps)
    return np.maximum(grown, wide if growth is None else wide * growth)


def loss_limits(
    evidence: Evidence,
    kind: RunKind,
    steps: Sequence[int],
    tolerance: float,
    lowest: str = "",
    growth: Floats | None = None,
) -> Floats:
    """The relative deviation allowed at each step: inside the band and the declared tolerance.

    `lowest`: the lowest precision in use, by default the reference's.
    """
    floor = FLOORS[lowest or lowest_precision(evidence)].loss
    own = own_loss_spread(evidence, kind)
    return np.minimum(band(floor, own, steps, growth=growth), tolerance)


@dataclass(frozen=True)
class _Path:
    """Sampled weights of one run: `values` [steps, elements], at `steps`."""

    steps: tuple[int, ...]
    values: Floats


def _path(run: Joined, steps: Sequence[int]) -> _Path:
    values = np.asarray([run.by_index[step].weights for step in steps], dtype=np.float64)
    return _Path(tuple(steps), values)


def weight_steps(reference: Joined, candidate: Joined) -> list[int]:
    """Steps at which both runs have the same number of sampled weights."""
    return [
        update.index
        for update in reference.updates
        if update.weights
        and update.index in candidate.by_index
        and len(candidate.by_index[update.index].weights) == len(update.weights)
    ]


def weight_path(
    evidence: Evidence,
    kind: RunKind,
    reference: Joined,
    candidate: Joined,
    lowest: str = "",
    *,
    until: int | None = None,
    growth: Callable[[Sequence[int]], Floats] | None = None,
) -> Deviation | None:
    """How far the weights' path is from the reference's; None with fewer than two shared steps.

    Each element's distance apart is divided by the distance that it has travelled so far (but no
    less than a quarter of the root mean square over elements), after what rounding of the value
    itself explains is taken off. Three things are judged, and the worst is returned:

    - the 80 % quantile over elements, against the floor and the perturbed run. A quantile, because
      some parameters have a gradient that is zero but for rounding (the bias of attention keys
      is one), which Adam blows up to full-size steps of noise in any honest change;
    - the single worst element, beyond `FACTOR` times its own deviation in the perturbed run. In
      fp32 honest changes stay below 1e-6; in bf16 they reach 3, so it is judged only where the
      perturbed run shows fp32's quiet, whatever the record says of precision;
    - elements that move in the reference and stand still in the candidate.

    Steps from `until` on are left out of the first two; `growth` widens the bands (`chaos`).
    """
    steps = weight_steps(reference, candidate)
    if len(steps) < 2:
        return None
    ours, theirs = _path(reference, steps), _path(candidate, steps)
    travelled = _travelled(ours.values)
    worst = [_standing_still(travelled, theirs.values, steps)]
    kept = [step for step in steps if until is None or step < until]
    if kept:
        rounding = 4.0 * EPSILON[parameter_precision(evidence.timed[0])] * np.abs(ours.values)
        apart = _apart(ours.values, theirs.values, travelled, rounding)[: len(kept)]
        own = _own_apart(evidence, kind, steps, apart.shape[1])[: len(kept)]
        wide = FACTOR * own * (growth(kept)[:, None] if growth else 1.0)
        worst += _judged_path(evidence, apart, own, wide, kept, lowest)
    return max(worst, key=lambda deviation: deviation.ratio)


def _judged_path(
    evidence: Evidence, apart: Floats, own: Floats, wide: Floats, steps: Sequence[int], lowest: str
) -> list[Deviation]:
    """The quantile, and where rounding is quiet the worst element; arrays are [steps, elements]."""
    lowest = lowest or lowest_precision(evidence)
    limit = np.maximum(FLOORS[lowest].path, np.quantile(wide, _QUANTILE, axis=1))
    found = np.quantile(apart, _QUANTILE, axis=1)
    worst = [_largest(found, limit, steps, "of the way travelled")]
    quiet = bool(np.max(np.quantile(own, _QUANTILE, axis=1)) <= FLOORS["float32"].path)
    if evidence.perturbed_run is not None and quiet and lowest in FINE:
        allowed = WORST_ELEMENT + wide
        column = np.argmax(apart / allowed, axis=1)
        at = np.arange(len(steps)), column
        what = "of the way of its worst element"
        worst.append(_largest(apart[at], allowed[at], steps, what))
    return worst


def _travelled(values: Floats) -> Floats:
    """Path length of each element up to each step; the first interval counts for the first step."""
    moves = np.abs(np.diff(values, axis=0))
    return np.cumsum(np.vstack([moves[:1], moves]), axis=0)


def _apart(ours: Floats, theirs: Floats, travelled: Floats, rounding: Floats) -> Floats:
    typical = np.sqrt(np.mean(travelled**2, axis=1, keepdims=True))
    scale = np.maximum(np.maximum(travelled, 0.25 * typical), 1e-30)
    apart: Floats = np.maximum(np.abs(theirs - ours) - rounding, 0.0) / scale
    return np.where(np.isfinite(apart), apart, _BROKEN)


def _own_apart(evidence: Evidence, kind: RunKind, steps: Sequence[int], width: int) -> Floats:
    """The same for the reference against itself, as an envelope; zeros where nothing is known."""
    found = np.zeros((len(steps), width))
    for base, other in own_pairs(evidence, kind):
        shared = weight_steps(base, other)
        if len(shared) < 2 or len(base.by_index[shared[0]].weights) != width:
            continue
        ours = _path(base, shared).values
        apart = _apart(ours, _path(other, shared).values, _travelled(ours), np.zeros(width))
        grown = np.maximum.accumulate(apart, axis=0)
        for row, step in enumerate(steps):
            known = sum(at <= step + _LOOK_AHEAD for at in shared)
            if known:
                found[row] = np.maximum(found[row], grown[known - 1])
    return found


def _largest(found: Floats, allowed: Floats, steps: Sequence[int], what: str) -> Deviation:
    ratio = found / allowed
    at = int(np.argmax(ratio))
    return Deviation(float(ratio[at]), steps[at], float(found[at]), float(allowed[at]), what)


def _standing_still(travelled: Floats, theirs: Floats, steps: Sequence[int]) -> Deviation:
    """Two sampled elements or more that the reference trains and the candidate does not."""
    way, other = travelled[-1], _travelled(theirs)[-1]
    trained = way > 0.25 * np.sqrt(np.mean(way**2))
    still = int(np.sum(trained & (other < _STILL * way)))
    return Deviation(still / 2.0, steps[-1], float(still), 1.0, "sampled weights stand still")


def path_lengths(reference: Joined, candidate: Joined) -> tuple[float, float] | None:
    """Root mean square over elements of the whole distance travelled, in each run."""
    steps = weight_steps(reference, candidate)
    if len(steps) < 2:
        return None
    ends = [_travelled(_path(run, steps).values)[-1] for run in (reference, candidate)]
    ours, theirs = (float(np.sqrt(np.mean(end**2))) for end in ends)
    return ours, theirs
