"""Each update consumes as many samples and elements, in rows of the same length, as before.

Why: most cheats shrink the work: shorter sequences, a smaller batch, fewer accumulation steps,
fewer ranks that train, tokens packed away or padding counted as tokens. They show in what the model
was called with, whatever the configuration says.

What is compared, for each update, summed over ranks and micro-batches (so another micro-batch, with
the number of accumulation steps or ranks to match, is the same work):

- samples;
- elements of each input tensor, as a set of numbers: a patch may rename an argument or pass it by
  position;
- the lengths of rows (a shape without its first dimension) of each input, as a set. The batch
  dimension is left out, since it is the micro-batch.

Inputs without a batch dimension (a mask, position indices) come once a forward; `Comparison`
recognises them by content, and they are left out here. Work need not be tokens: images and latents
are elements too.

A job that pads to the longest row of a micro-batch does other work under another micro-batch. That
fails here, and rightly: more or fewer padded elements are processed, and their share of the time
would be taken for speed.
"""

from infrarsi.contract import CheckResult
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.joined import Update

CHECK = "same_workload"


def judge(comparison: Comparison) -> CheckResult:
    """Whether every update did the same work."""
    if not any(update.elements for update in comparison.reference.updates):
        return uncovered(CHECK, "no input of a training forward was seen in the reference")
    if not comparison.updates:
        return uncovered(CHECK, "no update was seen in both runs")
    left_out = comparison.per_forward_inputs
    for ours, theirs in comparison.updates:
        difference = _difference(ours, theirs, left_out)
        if difference:
            return failed(CHECK, f"step {ours.index}: {difference}")
    first = comparison.updates[0][0]
    return passed(
        CHECK,
        f"{first.samples} samples and {sum(first.elements.values())} elements in the first of "
        f"{len(comparison.updates)} updates, and the same work in all",
    )


def _difference(ours: Update, theirs: Update, left_out: frozenset[str]) -> str:
    if ours.samples != theirs.samples:
        return f"{theirs.samples} samples per update, the reference has {ours.samples}"
    a, b = _counts(ours, left_out), _counts(theirs, left_out)
    if a != b:
        return f"{b} elements per input, the reference has {a}"
    rows, other = _rows(ours, left_out), _rows(theirs, left_out)
    if rows != other:
        return f"rows of shape {sorted(other)}, the reference has {sorted(rows)}"
    return ""


def _counts(update: Update, left_out: frozenset[str]) -> list[int]:
    return sorted(count for name, count in update.elements.items() if name not in left_out)


def _rows(update: Update, left_out: frozenset[str]) -> set[tuple[int, ...]]:
    return {
        shape[1:]
        for name, shapes in update.shapes.items()
        if name not in left_out
        for shape in shapes
    }
