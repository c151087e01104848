"""The figures of training that a log holds: step time, loss, rates, memory, in one unit each.

A label is found by what its words mean (`figure_names.py`); of several that mean the same the one
with the plainer name counts. What the log leaves open is not given: `value` is then None, `note`
says why and `readings` what it may be. A time is one step's if its label says so, if its line comes
every step, or if the logger's own time stamps or a printed rate agree with one reading alone.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from infrarsi.node import figure_names as names
from infrarsi.node.figure_names import Metric
from infrarsi.node.printed import PrintedLine, printed_lines
from infrarsi.node.printed_line import Printed, is_counter

_AGREES = 0.2
_OF_ITERATION = re.compile(r"^(it|iter|iteration|batch)([/_]|$)|_per_(it|iter|iteration|batch)")
_LESS = 2.0  # no step takes twice as long as what lies between two lines
_SPAN_S, _SPAN_FINE_S = 5.0, 1.0  # so long must stamps of whole seconds, or finer ones, reach
_WARM_UP_FROM = 4  # so many points before the first is left out as the start
_LOOKS: tuple[tuple[re.Pattern[str], dict[str, str]], ...] = (
    # Loggers that are known by their line, and the units that they leave out or write wrongly.
    (re.compile(r"\beta: .*\btime: [\d.]+.*\bdata: [\d.]+"), {"time": "s", "max_mem": "mib"}),
    (
        re.compile(r"\btime: [\d.]+,?\s+(last_time: [\d.]+,?\s+)?data_time: [\d.]+"),
        {"time": "s", "memory": "mib", "max_mem": "mib"},
    ),
    (re.compile(r"\bTime: [\d.]+s,\s+[\d.]+/s\s+\("), {"time": "s"}),
    (re.compile(r"^iter \d+: loss [\d.na]+, time [\d.]+ms, mfu"), {"time": "s"}),
    (re.compile(r"\bMA [\d.]+ GB\s+Max_MA|MemAllocated="), dict.fromkeys(("*",), "gib")),
    (re.compile(r"\bmemory \(MB\) \|"), dict.fromkeys(("*",), "mib")),
)
_PER_DEVICE_LOOK = re.compile(r"\btps: .*\btflops: .*\bmfu: ")
_WHOLE_RUN = re.compile(r"\btrain_runtime\b")
_EVALUATION = re.compile(r"\b(eval|val|valid|validation|test)[_/ ]?\w*(loss|acc|runtime|ppl)")
_BAR = re.compile(r"^(?:(?P<what>.*?):?\s*\d+%\||)(?:.*?\|)?\s*\d+/(?P<total>\d+) ")
_OTHER_BAR = re.compile(
    r"(?i)eval|valid|test|load|map|token|download|fetch|generat|sampl|sav|shard|filter|pack|convert|fold"
)


@dataclass(frozen=True)
class Point:
    """One number: the counter of its line, the value, and the line of the log."""

    step: float | None
    value: float
    line: int


@dataclass(frozen=True)
class Figure:
    """One figure of the log's last attempt.

    `value`: its typical value in the unit of the metric (loss, gradient norm and learning rate: the
    last; memory: the largest; else the median without the first). None where the log leaves it
    open; `readings` are then what it may be, and `note` says why. `per_device`: the label says that
    it is one device's. `window`: "step", "mean" of the steps since the line before, "run", "bar".
    """

    metric: Metric
    label: str
    points: tuple[Point, ...]
    value: float | None
    readings: tuple[float, ...] = ()
    note: str = ""
    per_device: bool = False
    window: str = "step"


@dataclass(frozen=True)
class LogFigures:
    """What one log says; `restarts`: the lines at which its counter began anew."""

    figures: dict[Metric, Figure] = field(default_factory=dict)
    restarts: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Seen:
    """A number of the log with its line and what it may be in the metric's unit."""

    line: PrintedLine
    one: Printed
    readings: tuple[float, ...]
    sure: bool = False  # the look of the line says that it is one step's


def figures(log: Path) -> LogFigures:
    """The figures of the log's first rank, from its last restart on."""
    lines = [line for line in printed_lines(log) if line.numbers]
    restarts, first = _restarts(lines)
    found: dict[tuple[Metric, int, str, bool], list[_Seen]] = {}
    bars = _training_bars(lines)
    for line in lines:
        if line.number < first or _WHOLE_RUN.search(line.text):
            continue
        if line.is_bar and _bar_of(line) not in bars:
            continue
        for one in line.numbers:
            seen = _seen(line, one)
            if seen is not None:
                metric, rank = seen[0]
                of_bar = line.is_bar and metric is Metric.STEP_TIME and "/" in one.label
                label = "it/s" if of_bar else one.label  # a bar changes between it/s and s/it
                found.setdefault((metric, rank, label, line.is_bar), []).append(seen[1])
    stamped_s = _stamped_per_step(lines, first)
    wall_s = stamped_s or _rated_per_step(lines, first)
    out: dict[Metric, Figure] = {}
    for metric in Metric:
        candidates = {key[1:]: each for key, each in found.items() if key[0] is metric}
        if candidates:
            out[metric] = _figure(metric, candidates, wall_s)
    time = out.get(Metric.STEP_TIME)
    if time is not None and time.window == "bar" and len(bars) > 1:
        note = "several progress bars are drawn, and the log does not say which one trains"
        readings = tuple(sorted({point.value for point in time.points}))
        out[Metric.STEP_TIME] = replace(time, value=None, readings=readings, note=note)
        time = out[Metric.STEP_TIME]
    if time is not None and time.value and stamped_s and stamped_s * _LESS < time.value:
        note = f"`{time.label}` says {time.value:.3g} s, but the lines come every {stamped_s:.3g} s"
        out[Metric.STEP_TIME] = replace(time, value=None, readings=(time.value,), note=note)
    return LogFigures(out, restarts)


def _seen(line: PrintedLine, one: Printed) -> tuple[tuple[Metric, int], _Seen] | None:
    kind = names.metric_of(one)
    if kind is None or (line.is_bar and kind[0] is Metric.MEMORY and not one.unit):
        return None
    metric, rank = kind
    unit = _unit_by_look(line.text, one)
    if _EVALUATION.search(line.text) and metric is Metric.LOSS:
        rank += 5  # an estimate beside a validation loss, not the loss of a step
    if metric is Metric.STEP_TIME:
        if names.is_rate_of_steps(one):
            return kind, _Seen(line, one, (1 / one.value,) if one.value else (), sure=True)
        known = unit == "s" and one.unit in ("", "s")
        readings = (one.value,) if known else names.seconds_of(one)
        return (metric, rank), _Seen(line, one, readings, known or names.is_per_step(one))
    if metric is Metric.MEMORY:
        sized = Printed(one.label, one.value, unit, "") if unit and not one.suffix else one
        readings = names.bytes_of(sized)
        if unit and one.suffix:
            readings = readings[-1:]
    elif metric is Metric.MFU:
        readings = names.share_of(one) if one.value >= 0 else ()
    elif metric is Metric.TFLOPS and one.value > 1e6:
        readings = (one.value / 1e12,)
    else:
        readings = (one.value,)
    return (metric, rank), _Seen(line, one, readings)


def _unit_by_look(text: str, one: Printed) -> str:
    for pattern, units in _LOOKS:
        unit = units.get(one.label) or (units.get("*") if one.unit in ("", "mb", "gb") else None)
        if unit and pattern.search(text):
            return unit
    return ""


def _figure(
    metric: Metric, candidates: dict[tuple[int, str, bool], list[_Seen]], wall_s: float | None
) -> Figure:
    """The figure of the candidate with the plainest name; a line goes before a bar."""
    best = min(candidates, key=lambda key: (_late(metric, candidates[key]), key[0], key[2]))
    rivals = sorted(
        key[1]
        for key in candidates
        if key[0] == best[0] and key[2] == best[2] and key[1] != best[1] and key[0] >= 5
    )
    seen = _of_first_source(candidates[best])
    label = best[1]
    device = bool(names.DEVICE.search(label)) or bool(_PER_DEVICE_LOOK.search(seen[0].line.text))
    device = device or "/gpu" in seen[0].one.unit or "/device" in seen[0].one.unit
    window = "bar" if best[2] else "mean" if re.search(r"avg|average|mean", label) else "step"
    points = tuple(
        Point(each.line.step, each.readings[0], each.line.number) for each in seen if each.readings
    )
    figure = Figure(metric, label, points, None, per_device=device, window=window)
    if rivals:
        note = f"{', '.join(f'`{name}`' for name in [label, *rivals])} may each be meant"
        return replace(figure, note=note)
    if not points:
        shown = seen[0].one.value
        return replace(figure, note=f"`{label}` is {shown:g}, and its unit is not known")
    if _is_mixed(seen):
        note = f"several processes or micro-batches print `{label}` under one step without a tag"
        return replace(figure, note=note)
    if metric is Metric.STEP_TIME and _counts_both(label, seen):
        note = f"`{label}` is of an iteration, of which a step has several"
        return replace(figure, readings=(points[-1].value,), note=note)
    if metric is Metric.STEP_TIME:
        return _step_time(figure, seen, wall_s)
    if any(len(each.readings) > 1 for each in seen):
        options = tuple(
            _typical(metric, [each.readings[i] for each in seen if len(each.readings) > i])
            for i in range(max(len(each.readings) for each in seen))
        )
        return replace(figure, readings=options, note=f"the unit of `{label}` is not known")
    value = _typical(metric, [point.value for point in points])
    return replace(figure, value=value)


def _late(metric: Metric, seen: Sequence[_Seen]) -> bool:
    """Whether another candidate is better because this one came but once, or cannot be read."""
    return metric in (Metric.STEP_TIME, Metric.MEMORY) and not any(
        len(each.readings) == 1 for each in seen
    )


def _of_first_source(seen: Sequence[_Seen]) -> list[_Seen]:
    sources = {each.line.source for each in seen}
    first = min(sources, key=lambda source: (len(source), source))
    return [each for each in seen if each.line.source == first]


def _is_mixed(seen: Sequence[_Seen]) -> bool:
    """Whether most steps have several lines that say different things."""
    values: dict[tuple[float, float | None], set[float]] = {}
    for each in seen:
        counted = any(is_counter(one) and one.label != "epoch" for one in each.line.numbers)
        if counted and not each.line.is_bar and each.line.step is not None and each.readings:
            at = (each.line.step, _epoch(each.line))
            values.setdefault(at, set()).add(each.readings[0])
    return len(values) > 1 and sum(len(each) > 1 for each in values.values()) > 0.5 * len(values)


def _counts_both(label: str, seen: Sequence[_Seen]) -> bool:
    """Whether a time is an iteration's in lines that count more iterations than steps."""
    if not _OF_ITERATION.search(label):
        return False
    counts = [{one.label: one.value for one in each.line.numbers} for each in seen]
    return all(
        max(count.get("iter", 0), count.get("iteration", 0)) > count.get("step", math.inf)
        for count in counts
    )


def _epoch(line: PrintedLine) -> float | None:
    return next((one.value for one in line.numbers if one.label == "epoch"), None)


def _step_time(figure: Figure, seen: Sequence[_Seen], wall_s: float | None) -> Figure:
    """The time of one step, where its unit and its window are known or can be found out."""
    values = [list(each.readings) for each in seen if each.readings]
    count = min(map(len, values))
    columns = [[each[i] for each in values] for i in range(count)]
    stride = _stride(figure.points)
    if all(each.sure for each in seen) and count == 1:
        return replace(figure, value=_typical(figure.metric, columns[0]))
    if _is_clock(figure.label, columns[0]) and stride:
        steps = [(b - a) / stride for a, b in pairwise(columns[0])]
        figure = replace(figure, window="mean")
        options = [median(steps) * scale for scale in (1.0, 1e-3)[:count]]
        plain = count == 1
    else:
        one = [_typical(figure.metric, column) for column in columns]
        sure = all(each.sure for each in seen)
        per_line = [] if sure or not stride or stride == 1 else [o / stride for o in one]
        options = [*one, *per_line]
        plain = count == 1 and stride == 1
    if plain:
        return replace(figure, value=options[0])
    fitting = [o for o in options if wall_s and abs(o / wall_s - 1) <= _AGREES]
    if len(fitting) == 1:
        return replace(figure, value=fitting[0], note="by the times of the log's lines")
    note = f"whether `{figure.label}` is of one step or of {stride or 'several'} is not said"
    if count > 1:
        note = f"the unit of `{figure.label}` is not known"
    return replace(figure, readings=tuple(options), note=note)


def _typical(metric: Metric, values: Sequence[float]) -> float:
    if metric in (Metric.LOSS, Metric.GRAD_NORM, Metric.LEARNING_RATE):
        return values[-1]
    if metric is Metric.MEMORY:
        return max(values)
    return median(values[1:] if len(values) >= _WARM_UP_FROM else values)


def _stride(points: Sequence[Point]) -> int | None:
    """How many steps lie between two lines, None where the counters do not say."""
    steps = [point.step for point in points]
    gaps = [
        round(b - a)
        for a, b in pairwise(step for step in steps if step is not None)
        if b > a and b == int(b) and a == int(a)
    ]
    if not gaps or any(step is None for step in steps):
        return None
    return round(median(gaps))


def _is_clock(label: str, values: Sequence[float]) -> bool:
    """Whether a time only ever grows, by about as much each line: it counts from the start.

    A label that does not say so must at least grow to half as much again.
    """
    named = bool(re.search(r"elapsed|since|train_time|training_time|clock", label))
    if len(values) < (4 if named else 3):
        return False
    gaps = [after - before for before, after in pairwise(values)]
    typical = median(gaps)
    steady = sum(0.4 * typical <= gap <= 2.5 * typical for gap in gaps) >= 0.6 * len(gaps)
    return min(gaps) > 0 and steady and (named or values[-1] > 1.5 * values[0])


def _stamped_per_step(lines: Sequence[PrintedLine], first: int) -> float | None:
    """Seconds from step to step by the stamps of the lines, None where they are too coarse."""
    stamped: dict[float, float] = {}
    for line in lines:
        if line.number < first or line.is_bar or line.step is None:
            continue
        stamp = line.stamp_s
        if stamp is not None and any("loss" in one.label for one in line.numbers):
            stamped.setdefault(line.step, stamp)
    pairs = [
        ((b[1] - a[1]) % 86400.0, b[0] - a[0])
        for a, b in pairwise(sorted(stamped.items()))
        if b[0] > a[0]
    ]
    span, steps = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    is_fine = any(stamp != int(stamp) for stamp in stamped.values())
    enough = len(pairs) >= 2 and span >= (_SPAN_FINE_S if is_fine else _SPAN_S)
    return span / steps if enough else None


def _rated_per_step(lines: Sequence[PrintedLine], first: int) -> float | None:
    """Seconds of a step by the rates that count steps."""
    rates = [
        1 / one.value
        for line in lines
        if line.number >= first and not line.is_bar and line.step is not None
        for one in line.numbers
        if one.value > 0 and names.is_rate_of_steps(one)
    ]
    return median(rates) if rates else None


def _restarts(lines: Sequence[PrintedLine]) -> tuple[tuple[int, ...], int]:
    """The lines at which the counter of the training loss began anew, and where to read from.

    A new epoch that counts its batches from the start is none, nor is a line of another process
    that is one or two steps behind.
    """
    before: dict[str, tuple[float, float | None]] = {}
    found: list[int] = []
    for line in lines:
        if line.is_bar or line.step is None or _EVALUATION.search(line.text):
            continue
        if not any("loss" in one.label for one in line.numbers):
            continue
        epoch = _epoch(line)
        last, last_epoch = before.get(line.source, (-math.inf, None))
        new_epoch = epoch is not None and last_epoch is not None and epoch > last_epoch
        if line.step < last - 2 and not new_epoch:
            found.append(line.number)
        before[line.source] = (line.step, epoch)
    return tuple(found), found[-1] if found else 0


def _bar_of(line: PrintedLine) -> tuple[str, str]:
    match = _BAR.match(line.text)
    return (
        (re.sub(r"[^A-Za-z ]+", "", match["what"] or "").strip().lower(), match["total"])
        if match is not None
        else ("", "")
    )


def _training_bars(lines: Iterable[PrintedLine]) -> set[tuple[str, str]]:
    """The bars that may be those of training: no other work in their name, none before an
    evaluation's result; with a loss in the bar, only those."""
    named: set[tuple[str, str]] = set()
    evaluating: set[tuple[str, str]] = set()
    with_loss: set[tuple[str, str]] = set()
    spans: dict[tuple[str, str], list[int]] = {}
    last: tuple[str, str] | None = None
    for order, line in enumerate(lines):
        if line.is_bar:
            last = _bar_of(line)
            if not _OTHER_BAR.search(last[0]):
                named.add(last)
                spans.setdefault(last, [order, order])[1] = order
            if any("loss" in one.label for one in line.numbers):
                with_loss.add(last)
        elif _EVALUATION.search(line.text) and last is not None:
            evaluating.add(last)
    if with_loss:
        return with_loss & named or named
    inner = {
        bar
        for bar in evaluating
        if any(o != bar and spans[o][0] <= spans[bar][0] for o in named if bar in spans)
    }
    return named - inner
