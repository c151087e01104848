"""Printed step times and throughputs against the harness's clock, and lines that are gone.

Where a time or a rate that the reference prints agrees with the harness's clock within 10 % over
most of its lines (of one update, on average or in all since the line before, or as time since the
start), the candidate's must not flatter it by more than a quarter in the median. Only flattering
counts: a printed time that waits for a slow evaluation, or a mean that still holds the compilation,
is longer than the harness's median and gains nobody anything.

A line that the reference printed in each of its runs and the candidate does not print is a failure:
the log interval was moved, or slow steps are not logged. Progress bars do not count, since they are
redrawn by the clock, nor does a job whose own runs print different lines.
"""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from infrarsi.contract import ExecutionResult
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.joined import Joined
from infrarsi.verify.printed import (
    BAR,
    LEFT_OUT,
    MIN_POINTS,
    Place,
    Point,
    places,
    points_of,
    resolution,
)

LOGGING_FAMILIES = ("logging_interval", "log_interval")
"""Families whose knobs may change how often a job prints."""
_AGREES, _SHARE = 0.10, 0.7
_FLATTERS = 0.75
_TIME = re.compile(
    r"(^|[_/])(time|dt|elapsed|took|duration|latency|ms|secs?|seconds)([_/]|$)|_s$|s/it$|s/step$"
)
_RATE = re.compile(
    r"tok|tps|throughput|speed|samples|images|img|seq|tflops|mfu|per_sec|it/s|(^|[_/])[a-z]+/s$"
)
_OTHER = re.compile(
    r"data|load|eval|val|eta|remain|left|save|ckpt|checkpoint|fwd|forward|bwd|backward|opt|comm"
    r"|compile|warm|start|date|stamp|seen|consumed|num|count|len|size|rank"
)
_SINCE_START = re.compile(r"elapsed|total|since|time")
_UNITS = (1.0, 1e3, 1e6)


@dataclass(frozen=True)
class Timed:
    """Seconds of each update of one run on the harness's clock, NaN where it has none."""

    seconds: tuple[float, ...]
    micro_batches: int
    ranks: int

    @classmethod
    def of(cls, run: Joined) -> "Timed":
        """From a joined run."""
        count = 1 + max(run.by_index, default=-1)
        ends = [run.by_index[i].end_s if i in run.by_index else math.nan for i in range(count)]
        begin = run.start_s if run.start_s is not None else math.nan
        seconds = [end - start for start, end in zip([begin, *ends], ends, strict=False)]
        if run.ended_by_job and seconds:
            seconds[-1] = math.nan  # it lasts to the end of the process
        per_rank = [u.backwards / max(1, run.ranks) for u in run.updates]
        return cls(tuple(seconds), max(1, round(median(per_rank))) if per_rank else 1, run.ranks)


@dataclass(frozen=True)
class Measure:
    """How a printed time or rate follows from the harness's clock: `factor` times it."""

    place: Place
    window: str  # "update", "mean" or "sum" since the line before, "clock" since the start
    is_rate: bool
    per_micro_batch: bool
    factor: float


def printed_times_disagree(comparison: Comparison) -> str | None:
    """The first flattering time or rate that the job printed, None where all are true."""
    evidence, result = comparison.evidence, comparison.result
    runs = [
        (run, Timed.of(joined))
        for run, joined in zip(evidence.timed, evidence.timed_runs, strict=True)
    ]
    theirs = Timed.of(comparison.candidate)
    for label in sorted(comparison.reference_result.printed):
        points = points_of(result, label)
        if len(points) < MIN_POINTS or not _is_timing(label):
            continue
        for measure in _measures(label, runs):
            found = _flattery(label, measure, points, theirs, runs[0][1])
            if found is not None:
                return found or None
    return None


def _is_timing(label: str) -> bool:
    name = label.removeprefix(BAR)
    return bool((_TIME.search(name) or _RATE.search(name)) and not _OTHER.search(name))


def _measures(label: str, runs: Sequence[tuple[ExecutionResult, Timed]]) -> list[Measure]:
    """The ways in which this label follows in every timed run of the reference."""
    first, timed = runs[0]
    points = points_of(first, label)
    values = [value for _, value, _ in points]
    if len(points) < MIN_POINTS or len(set(values)) < 2:
        return []
    is_rate = bool(_RATE.search(label)) and not _TIME.search(label)
    windows = ["update", "mean"] if is_rate else ["update", "mean", "sum"]
    if not is_rate and _SINCE_START.search(label):
        windows.append("clock")
    found = []
    for place in places(points, len(timed.seconds)):
        for window in windows:
            ratios = _ratios(place, window, is_rate, points, timed)
            for factor, per in _factors(ratios, is_rate, timed):
                measure = Measure(place, window, is_rate, per, factor)
                if all(_agrees(measure, points_of(run, label), one) for run, one in runs):
                    found.append(measure)
    return found


def _factors(
    ratios: Sequence[tuple[Point, float]], is_rate: bool, timed: Timed
) -> list[tuple[float, bool]]:
    """(factor, whether it is one micro-batch's) that the ratios may stand for."""
    if len(ratios) < MIN_POINTS:
        return []
    middle = median(ratio for _, ratio in ratios)
    if not math.isfinite(middle) or middle <= 0:
        return []
    number = float(timed.micro_batches)
    if is_rate:
        per = number > 1 and abs(middle / number - 1) < _AGREES
        return [(middle / number if per else middle, per)]
    wanted = [(unit, False) for unit in _UNITS]
    wanted += [(unit, True) for unit in _UNITS if number > 1]
    return [
        (unit, per)
        for unit, per in wanted
        if abs(middle * (number if per else 1.0) / unit - 1) < _AGREES
    ]


def _scale(measure: Measure, timed: Timed) -> float:
    """What the ratio of printed to measured should be in this run."""
    number = float(timed.micro_batches) if measure.per_micro_batch else 1.0
    return measure.factor * number if measure.is_rate else measure.factor / number


def _agrees(measure: Measure, points: Sequence[Point], timed: Timed) -> bool:
    ratios = _ratios(measure.place, measure.window, measure.is_rate, points, timed)
    if len(ratios) < MIN_POINTS:
        return False
    scale, unit = _scale(measure, timed), resolution(points)
    near = [
        abs(ratio / scale - 1) <= _AGREES + 0.5 * unit / max(abs(point[1]), unit)
        for point, ratio in ratios
    ]
    return sum(near) >= _SHARE * len(near)


def _ratios(
    place: Place, window: str, is_rate: bool, points: Sequence[Point], timed: Timed
) -> list[tuple[Point, float]]:
    """(line, printed over measured) where the record reaches; for rates printed times measured."""
    out: list[tuple[Point, float]] = []
    before, last = -1, math.nan
    for order, point in enumerate(points):
        index = place.update(order, point[0], timed.micro_batches)
        begin = index if window == "update" else before + 1
        value = point[1] - last if window == "clock" else point[1]
        if 0 <= begin <= index < len(timed.seconds):
            spent = math.fsum(timed.seconds[begin : index + 1])
            spent /= 1 if window in ("sum", "clock") else index + 1 - begin
            ratio = value * spent if is_rate else value / spent if spent else math.nan
            if math.isfinite(ratio):
                out.append((point, ratio))
        before, last = index, point[1]
    return out[1:] if len(out) > MIN_POINTS else out  # the first has the start-up in it


def _flattery(
    label: str, measure: Measure, points: Sequence[Point], timed: Timed, reference: Timed
) -> str | None:
    """What is false, "" if this measure finds the label true, None if it cannot tell."""
    ratios = _ratios(measure.place, measure.window, measure.is_rate, points, timed)
    if len(ratios) < MIN_POINTS:
        return None
    scale = _scale(measure, timed)
    share = timed.ranks / max(1, reference.ranks)
    scales = {scale, scale * share, scale / share} if measure.is_rate else {scale}
    off = {s: [(p, r / s if measure.is_rate else s / r) for p, r in ratios if r] for s in scales}
    by = {s: median(v for _, v in found) for s, found in off.items() if found}
    if not by or min(by.values()) <= 1 / _FLATTERS:
        return ""
    best = min(by, key=lambda s: by[s])
    first = next((one for one in off[best] if one[1] > 1 / _FLATTERS), off[best][0])
    (step, value, line), times = first
    return (
        f"stdout.log:{line:.0f}: the job printed `{label.removeprefix(BAR)}` {value:g} at step "
        f"{step:g}, {times:.2f} times better than the harness's clock has it "
        f"({by[best]:.2f} times in the median, {1 / _FLATTERS:.2f} is allowed)"
    )


def printed_lines_missing(comparison: Comparison) -> str | None:
    """The first training line that the reference prints and this run does not."""
    result, evidence = comparison.result, comparison.evidence
    own = [*evidence.timed, *(r for r in (evidence.audit, evidence.perturbed) if r)]
    if any(LEFT_OUT in run.printed for run in (*own, result)):
        return None
    for label in sorted(comparison.reference_result.printed):
        if not label.startswith(BAR) and ("loss" in label or _is_timing(label)):
            found = _missing(label, comparison, own)
            if found:
                return found
    return None


def _missing(label: str, comparison: Comparison, own: Sequence[ExecutionResult]) -> str | None:
    lines = {step: line for step, _, line in points_of(comparison.reference_result, label)}
    wanted = _always(label, own)
    there = {step for step, _, _ in points_of(comparison.result, label)}
    gone = sorted(wanted - there)
    if not gone:
        return None
    ours, theirs = Timed.of(comparison.reference), Timed.of(comparison.candidate)
    if ours.micro_batches != theirs.micro_batches and _counts_micro_batches(wanted, ours):
        return None
    if _is_regular(there) and any(k.family in LOGGING_FAMILIES for k in comparison.project.knobs):
        return None
    step = gone[0]
    return (
        f"the reference prints `{label}` at step {step:g} (stdout.log:{lines.get(step, 0):.0f}), "
        f"this run does not: it printed {len(wanted & there)} of {len(wanted)} such lines"
    )


def _always(label: str, own: Sequence[ExecutionResult]) -> set[float]:
    """The steps at which every run of the reference printed it; empty where the runs differ.

    What ends with the witness may or may not print its last line.
    """
    sets = [{step for step, _, _ in points_of(run, label)} for run in own]
    common = set.intersection(*sets)
    if any(len(one - common) > 1 for one in sets):
        return set()
    return common


def _counts_micro_batches(steps: set[float], timed: Timed) -> bool:
    return max(steps) > len(timed.seconds) + 1


def _is_regular(steps: set[float]) -> bool:
    ordered = sorted(steps)
    gaps = {round(b - a, 6) for a, b in itertools.pairwise(ordered)}
    return len(gaps) == 1
