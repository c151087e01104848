"""No NaN or Inf, no out-of-memory, no communication error and no traceback, on any rank.

Why: a fast step with a broken number in it is worth nothing, and an error that is caught and
passed over (`try: ... except: pass` around a batch that did not fit) is a way to do less work.

Two sources. The witness tells of non-finite losses, an uncaught exception and an out-of-memory
error on each rank; it cannot be talked out of it by what the job prints. The log corroborates: the
marks below are looked for in its tail. A mark that the reference's own log has too (some libraries
print a traceback at import and go on) is not held against a candidate.

A check for NaN or overflow that was switched off leaves no line in the log, so it is not looked for
there. What it would have caught is: a loss, a sampled weight or (audit) a gradient that is not
finite fails here, and a step that a gradient scaler skipped in the reference and not in the
candidate fails `optimizer_steps`. Where nothing overflows, no trial can tell whether it would have
been noticed; forced routing of experts shows in the gradients (`grad_norm_within_tol`).

A loss that is non-finite in the reference as well, at the same step and with a skipped optimizer
step, is the work of a gradient scaler finding its scale, and no error.
"""

import math
import re
from collections.abc import Iterable

from infrarsi.contract import CheckResult, StepRecord
from infrarsi.verify.comparison import Comparison, failed, passed

CHECK = "no_errors"
_MARKS = {
    "a traceback": re.compile(r"^\s*(\[rank\d+\]:)?\s*Traceback \(most recent call last\)", re.M),
    "an out-of-memory error": re.compile(
        r"out of memory|OutOfMemoryError|DefaultCPUAllocator: can't allocate|oom-kill", re.I
    ),
    "a communication error": re.compile(
        r"NCCL (error|WARN .*(failed|error))|ncclSystemError|ncclInternalError|DistBackendError"
        r"|Watchdog caught collective operation timeout"
    ),
    "a CUDA error": re.compile(r"CUDA error:|device-side assert|illegal memory access"),
    "a segmentation fault": re.compile(r"Segmentation fault|Fatal Python error"),
}


def judge(comparison: Comparison) -> CheckResult:
    """Whether any rank had an error."""
    result = comparison.result
    for rank in result.ranks:
        if rank.oom is not None:
            return failed(CHECK, f"rank {rank.rank} ran out of memory")
        if rank.error:
            return failed(CHECK, f"rank {rank.rank} raised {rank.error}")
        for step in rank.steps:
            broken = step.loss is not None and not math.isfinite(step.loss)
            if broken and not _also_in_reference(comparison, step.index):
                return failed(
                    CHECK, f"rank {rank.rank}, step {step.index}: the loss is {step.loss}"
                )
            what = _not_finite(step)
            if what and not (step.skipped or _skipped_in_reference(comparison, step.index)):
                return failed(CHECK, f"rank {rank.rank}, step {step.index}: {what} is not finite")
    for name, mark in _MARKS.items():
        known = any(mark.search(run.log_tail) for run in comparison.evidence.timed)
        if not known and mark.search(result.log_tail):
            return failed(CHECK, f"the log has {name}, which the reference's has not")
    return passed(CHECK, "no rank had an error, by its record and by the log")


def _not_finite(step: StepRecord) -> str:
    """What of the weights and gradients after this step is not a number, "" where all are."""
    if not _finite(step.weights):
        return "a sampled weight"
    return next(
        (f"the gradient of `{name}`" for name, v in step.gradients.items() if not _finite(v or ())),
        "",
    )


def _finite(values: Iterable[float | None]) -> bool:
    return all(value is None or math.isfinite(value) for value in values)


def _skipped_in_reference(comparison: Comparison, index: int) -> bool:
    update = comparison.reference.by_index.get(index)
    return update is not None and update.skipped > 0


def _also_in_reference(comparison: Comparison, index: int) -> bool:
    update = comparison.reference.by_index.get(index)
    return (
        update is not None
        and update.skipped > 0
        and update.loss is not None
        and not math.isfinite(update.loss)
    )
