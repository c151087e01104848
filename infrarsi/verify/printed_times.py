"""Printed step times and throughputs against the harness's clock, and lines that are gone.

Where a time or a rate that the reference prints agrees with the harness's clock within 10 % in the
median (and within 15 % in most lines), the candidate's must as well. What is meant may be the time
of one update, with or without the evaluation in it, the mean or the sum since the line before, or
the time since the start; for a rate, the work per update is read off the reference.

What a printed time leaves out (waiting for data, logging) is a matter of seconds, not of a share,
and stays when the steps get faster. So the candidate may leave out one and a half times the seconds
that the reference does, and 8 % of its own step: honest runs of `tests/hacks` leave out 0 to 4 %
of a step on two busy cores. Only what flatters counts: a printed time that waits for an evaluation,
or a mean that still holds the compilation, is longer than the harness's and gains nobody anything.
Of several lines about one update the most flattering one counts.

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
    by_counter,
    places,
    points_of,
    resolution,
)

LOGGING_FAMILIES = ("logging_interval", "log_interval")
"""Families whose knobs may change how often a job prints."""
_AGREES, _NEAR, _MOST = 0.10, 0.15, 0.6
_MORE, _SHARE, _LEAST_S = 1.5, 0.08, 0.001
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
_OF_BARS = (f"{BAR}it/s", f"{BAR}s/it")
"""Every bar of a job draws its own rate under this name, that of saving a checkpoint too."""


@dataclass(frozen=True)
class Timed:
    """Seconds of each update of one run on the harness's clock, NaN where it has none.

    `training`: the same less what the witness saw of evaluation in it.
    """

    seconds: tuple[float, ...]
    training: tuple[float, ...]
    micro_batches: int
    ranks: int

    @classmethod
    def of(cls, result: ExecutionResult, run: Joined) -> "Timed":
        """From a result and its joined view."""
        count = 1 + max(run.by_index, default=-1)
        ends = [run.by_index[i].end_s if i in run.by_index else math.nan for i in range(count)]
        begin = run.start_s if run.start_s is not None else math.nan
        seconds = [end - start for start, end in zip([begin, *ends], ends, strict=False)]
        if run.ended_by_job and seconds:
            seconds[-1] = math.nan  # it lasts to the end of the process
        evaluating = [0.0] * count
        for step in (step for rank in result.ranks for step in rank.steps):
            if 0 <= step.index < count:
                spent = step.phases_s.get("eval", 0.0)
                evaluating[step.index] = max(evaluating[step.index], spent)
        training = tuple(a - b for a, b in zip(seconds, evaluating, strict=True))
        per_rank = [u.backwards / max(1, run.ranks) for u in run.updates]
        number = max(1, round(median(per_rank))) if per_rank else 1
        return cls(tuple(seconds), training, number, run.ranks)


@dataclass(frozen=True)
class Measure:
    """How a printed time or rate follows from the harness's clock: `factor` times it."""

    place: Place
    window: str  # "update", "training", "mean" or "sum" since the line before, "clock"
    is_rate: bool
    per_micro_batch: bool = False
    factor: float = 1.0

    def seconds(self, value: float, timed: Timed, work: float = 1.0) -> float:
        """The seconds that a printed value stands for; `work`: of an update, times as much."""
        number = float(timed.micro_batches) if self.per_micro_batch else 1.0
        if self.is_rate:
            return self.factor * number * work / value if value else math.nan
        return value * number / self.factor


@dataclass(frozen=True)
class Span:
    """One line, the update that it is about, what it says and what the harness measured."""

    point: Point
    index: int
    value: float
    took_s: float


def printed_times_disagree(comparison: Comparison) -> str | None:
    """The first flattering time or rate that the job printed, None where all are true."""
    evidence, result = comparison.evidence, comparison.result
    runs = [
        (run, Timed.of(run, joined))
        for run, joined in zip(evidence.timed, evidence.timed_runs, strict=True)
    ]
    theirs = Timed.of(result, comparison.candidate)
    for label in sorted(comparison.reference_result.printed):
        points = points_of(result, label)
        if len(points) < MIN_POINTS or not _is_timing(label):
            continue
        found = [_flattery(label, m, points, theirs, runs) for m in _measures(label, runs)]
        told = [text for text in found if text is not None]
        if told and all(told):
            return told[0]
    return None


def _is_timing(label: str) -> bool:
    if label in _OF_BARS:
        return False
    name = label.removeprefix(BAR)
    return bool((_TIME.search(name) or _RATE.search(name)) and not _OTHER.search(name))


def _measures(label: str, runs: Sequence[tuple[ExecutionResult, Timed]]) -> list[Measure]:
    """The ways in which this label follows in every timed run of the reference."""
    first, timed = runs[0]
    points = points_of(first, label)
    if len(points) < MIN_POINTS or len({value for _, value, _ in points}) < 2:
        return []
    is_rate = bool(_RATE.search(label)) and not _TIME.search(label)
    windows = ["update", "training", "mean"] + ([] if is_rate else ["sum"])
    if not is_rate and _SINCE_START.search(label):
        windows.append("clock")
    found = []
    for place, window in itertools.product(places(points, len(timed.seconds)), windows):
        plain = Measure(place, window, is_rate)
        for factor, per in _factors(_spans(plain, points, timed), is_rate, timed):
            measure = Measure(place, window, is_rate, per, factor)
            if all(_agrees(measure, points_of(run, label), one) for run, one in runs):
                found.append(measure)
    return by_counter(found)


def _factors(spans: Sequence[Span], is_rate: bool, timed: Timed) -> list[tuple[float, bool]]:
    """(factor, whether it is one micro-batch's) that the lines may stand for."""
    ratios = [s.value * s.took_s if is_rate else s.value / s.took_s for s in spans if s.took_s]
    if len(ratios) < MIN_POINTS:
        return []
    middle, number = median(ratios), float(timed.micro_batches)
    if not middle > 0:
        return []
    if is_rate:
        per = number > 1 and abs(middle / number - 1) < _AGREES
        return [(middle / number if per else middle, per)]
    wanted = [(unit, per) for unit in _UNITS for per in ((False, True) if number > 1 else (False,))]
    return [
        (unit, per)
        for unit, per in wanted
        if abs(middle * (number if per else 1.0) / unit - 1) < _AGREES
    ]


def _agrees(measure: Measure, points: Sequence[Point], timed: Timed) -> bool:
    spans = _spans(measure, points, timed)
    if len(spans) < MIN_POINTS:
        return False
    unit = resolution(points)
    ratios = [measure.seconds(span.value, timed) / span.took_s for span in spans]
    rough = [0.5 * unit / max(abs(span.point[1]), unit) for span in spans]
    near = [abs(r - 1) <= _NEAR + more for r, more in zip(ratios, rough, strict=True)]
    middle = abs(median(ratios) - 1) <= _AGREES + median(rough)
    return middle and sum(near) >= _MOST * len(near)


def _spans(measure: Measure, points: Sequence[Point], timed: Timed) -> list[Span]:
    """The lines where the record reaches, less the first, which has the start-up in it."""
    out: list[Span] = []
    before, begin, last = -1, 0, math.nan
    source = timed.training if measure.window == "training" else timed.seconds
    for order, point in enumerate(points):
        index = measure.place.update(order, point[0], timed.micro_batches)
        if measure.window in ("update", "training"):
            begin = index
        elif index != before:  # a second line about the same update has the same begin
            begin = before + 1
        value = point[1] - last if measure.window == "clock" else point[1]
        if 0 <= begin <= index < len(source):
            took = math.fsum(source[begin : index + 1])
            took /= 1 if measure.window in ("sum", "clock") else index + 1 - begin
            if math.isfinite(took) and math.isfinite(value) and took > 0:
                out.append(Span(point, index, value, took))
        before, last = index, point[1]
    return out[1:] if len(out) > MIN_POINTS else out


def _left_out_s(
    measure: Measure, spans: Sequence[Span], timed: Timed, work: float = 1.0
) -> list[tuple[Span, float]]:
    """(line, measured seconds less those that it says); of each update the most flattering."""
    worst: dict[int, tuple[Span, float]] = {}
    for span in spans:
        gap = span.took_s - measure.seconds(span.value, timed, work)
        if math.isfinite(gap) and (span.index not in worst or gap > worst[span.index][1]):
            worst[span.index] = (span, gap)
    return list(worst.values())


def _flattery(
    label: str,
    measure: Measure,
    points: Sequence[Point],
    timed: Timed,
    runs: Sequence[tuple[ExecutionResult, Timed]],
) -> str | None:
    """What is false, "" if this measure finds the label true, None if it cannot tell."""
    spans = _spans(measure, points, timed)
    if len(spans) < MIN_POINTS:
        return None
    ours = [
        median(gap for _, gap in _left_out_s(measure, _spans(measure, known, one), one))
        for known, one in ((points_of(run, label), one) for run, one in runs)
    ]
    took_s = median(span.took_s for span in spans)
    rough_s = took_s * 0.5 * resolution(points) / max(median(abs(s.value) for s in spans), 1e-12)
    allowed = _MORE * max(0.0, *ours) + _SHARE * took_s + rough_s + _LEAST_S
    share = timed.ranks / max(1, runs[0][1].ranks)  # a rate may be that of one rank or of all
    works = {1.0, share, 1 / share} if measure.is_rate else {1.0}
    found = [_left_out_s(measure, spans, timed, work) for work in works]
    gaps = [(median(gap for _, gap in one), one) for one in found if one]
    if not gaps:
        return None
    middle, best = min(gaps, key=lambda one: one[0])
    if middle <= allowed:
        return ""
    span, gap = next((one for one in best if one[1] > allowed), best[0])
    step, value, line = span.point
    return (
        f"stdout.log:{line:.0f}: the job printed `{label.removeprefix(BAR)}` {value:g} at step "
        f"{step:g}, which leaves out {1e3 * gap:.1f} of the {1e3 * span.took_s:.1f} ms on the "
        f"harness's clock ({1e3 * middle:.1f} ms in the median, {1e3 * allowed:.1f} are allowed)"
    )


def printed_lines_missing(comparison: Comparison) -> str | None:
    """The first training line that the reference prints and this run does not."""
    result, evidence = comparison.result, comparison.evidence
    own = [*evidence.timed, *(r for r in (evidence.audit, evidence.perturbed) if r)]
    if any(LEFT_OUT in run.printed for run in (*own, result)):
        return None
    for label in sorted(comparison.reference_result.printed):
        is_loss = "loss" in label and "scale" not in label  # a scaler speaks when it must
        if not label.startswith(BAR) and (is_loss or _is_timing(label)):
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
    ours, theirs = _micro_batches(comparison.reference), _micro_batches(comparison.candidate)
    if ours != theirs and max(wanted) > len(comparison.reference.updates) + 1:
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


def _micro_batches(run: Joined) -> int:
    return run.updates[0].backwards // max(1, run.ranks) if run.updates else 0


def _is_regular(steps: set[float]) -> bool:
    ordered = sorted(steps)
    gaps = {round(b - a, 6) for a, b in itertools.pairwise(ordered)}
    return len(gaps) == 1
