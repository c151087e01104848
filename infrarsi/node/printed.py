"""The numbers that a job printed, read from its captured output after the run.

What a job prints is no evidence of what it did; `infrarsi.verify.printed` holds it against the
record. Read are lines in the ways that training jobs write them: `step 12/36 loss 3.41 time 210ms`,
dicts and JSON lines, `key=value`, `key: value | key: value`, with colours, rank prefixes and
progress bars. A number's label is the few words before it, its step the counter in the same line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

BAR = "bar/"
"""In front of a label: printed by a progress bar, which is redrawn by the clock."""
LEFT_OUT = "(left out)"
"""The label of what was not kept or not read of the log; what is missing then says nothing."""
Series = dict[str, list[list[float]]]

_MAX_POINTS, _MAX_LABELS, _MAX_ALL = 512, 64, 12_000
_MAX_LINE = 4096
_MAX_LINES = 50_000  # about 2 s of reading
_CHUNK = 1 << 16
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NUMBER = re.compile(
    r"(?<![\w.\\/])[-+]?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
    r"(?P<suffix>[kKM](?![A-Za-z]))?"
    r"(?P<unit>[A-Za-z\u00b5%]+(?:/[A-Za-z]+)?)?"
    r"|(?<![\w.\\/-])-?(?P<word>nan|NaN|inf|Infinity)(?![\w])"
)
_DETACHED = re.compile(
    r" ?([A-Za-z\u00b5%]+(?:/[A-Za-z]+)?)(?=[\s,;|)\]}]|$)(?!\s*[:=]?\s*[-+.]?\d)"
)
_LABEL = re.compile(
    r"(?P<words>[A-Za-z_][\w./-]*(?: [A-Za-z_@][\w./-]*){0,4})"
    r"\s*(?:[(\[](?P<unit>[A-Za-z\u00b5/]+)[)\]])?[\"']?\s*(?:[:=]|->|is)?\s*[\"'\[({<$]*$"
)
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "usec"), 1e-6),
}
_PER_STEP = ("it", "iter", "step", "batch", "update", "iteration")
_SIZES = ("%", "b", "kb", "mb", "gb", "kib", "mib", "gib", "tflops", "x", "g")
_MULTIPLIER = {"k": 1e3, "K": 1e3, "M": 1e6}
_IS_BAR = re.compile(r"%\||\d:\d\d<")
_COUNTERS = ("global_step", "step", "iteration", "iter", "update", "batch", "it")
_NO_COUNTER = re.compile(r"(^|_)(per|max|total|num|warmup|every|of|time|sec|remaining|left)(_|$)")
_WORTH = re.compile(r"loss|perplexity|time|speed|throughput|per_sec|tok|tps|elapsed|_s$|/s$|s/it")
_JOINING = {"at", "after", "for", "in", "on", "the", "@"}


@dataclass
class _Found:
    label: str
    value: float


@dataclass
class _Series:
    """What was found so far, within the bounds."""

    points: Series = field(default_factory=dict)
    count: int = 0

    def add(self, label: str, step: float | None, value: float, line: int) -> None:
        full = len(self.points) >= _MAX_LABELS and label != LEFT_OUT
        if full and label not in self.points:
            return
        points = self.points.setdefault(label, [])
        if len(points) < _MAX_POINTS and self.count < _MAX_ALL:
            points.append([len(points) + 1.0 if step is None else step, value, float(line)])
            self.count += 1


def printed_numbers(log: Path) -> Series:
    """Label to `[step, value, line]` for each time that it was printed, in the order of the file.

    The step is the counter that the line names (`step`, `iter`, `epoch` if there is nothing else),
    else how often the label had come. Times are in seconds, their labels end with `_s`. At most 64
    labels and 512 points of each; nothing where the file cannot be read.
    """
    series = _Series()
    try:
        with log.open("rb") as file:
            for count, (number, text, is_bar) in enumerate(_lines(file)):
                if count >= _MAX_LINES:
                    series.add(LEFT_OUT, 0.0, 0.0, number)
                    break
                _read(text, number, is_bar, series)
    except OSError:
        return series.points
    return series.points


def _lines(file: BinaryIO) -> Iterator[tuple[int, str, bool]]:
    """(line number, text, whether it is a state of a progress bar), colours taken off."""
    rest, number = b"", 1
    while True:
        data = file.read(_CHUNK)
        buffer = rest + data
        hold = b"\r" if data and buffer.endswith(b"\r") else b""  # perhaps half of a line's end
        *parts, rest = re.split(rb"(\r\n|\n|\r)", buffer[: len(buffer) - len(hold)])
        if not data:
            parts += [rest, b""]
        for content, end in zip(parts[::2], parts[1::2], strict=True):
            if any(48 <= byte <= 57 for byte in content[:_MAX_LINE]):
                text = _COLOUR.sub("", content[:_MAX_LINE].decode(errors="replace"))
                yield number, text, end == b"\r" or bool(_IS_BAR.search(text))
            number += end != b"\r" and bool(end)
        if not data:
            return
        rest = rest[:_MAX_LINE] + hold


def _read(text: str, line: int, is_bar: bool, series: _Series) -> None:
    if text.startswith("... ") and text.endswith(" bytes were left out here ..."):
        series.add(LEFT_OUT, 0.0, float(text.split()[1]), line)
        return
    found = _numbers(text)
    step = _step(found)
    if step is None and is_bar:
        bar = re.search(r"(\d+)/\d+ \[", text)
        step = float(bar.group(1)) if bar else None
    seen: set[str] = set()
    for one in found:
        if one.label and one.label not in seen and (step is not None or _WORTH.search(one.label)):
            seen.add(one.label)
            series.add(f"{BAR if is_bar else ''}{one.label}", step, one.value, line)


def _step(found: list[_Found]) -> float | None:
    for counter in (*_COUNTERS, "epoch"):
        for one in found:
            words = one.label.split("_")
            is_it = one.label == counter or words[-1] == counter
            whole = one.value == int(one.value) if abs(one.value) < 1e15 else False
            if is_it and (whole or counter == "epoch") and not _NO_COUNTER.search(one.label):
                return one.value
    return None


def _numbers(text: str) -> list[_Found]:
    """The labelled numbers of one line; a counter's label is its own word."""
    found: list[_Found] = []
    end, before = 0, ""
    for match in _NUMBER.finditer(text):
        value, unit, stop = _value(match, text)
        if value is None:
            continue
        words, inner = _label(text[end : match.start()])
        label, value = _with_unit(words, value, unit or inner)
        if not label and before:
            label = before  # `loss at step 12: 3.41`
        before = _before_counter(words)
        if label:
            found.append(_Found(label, value))
        end = stop
    return found


def _value(match: re.Match[str], text: str) -> tuple[float | None, str, int]:
    """The value, its unit and where both end; None for a part of a date, a time or a name."""
    if match["word"]:
        return float(match[0].lower().replace("infinity", "inf")), "", match.end()
    if re.match(r"[-:]\d", text[match.end() :]):
        return None, "", match.end()
    unit, end = (match["unit"] or "").lower(), match.end()
    if unit and not _is_unit(unit):
        return None, "", end
    number = match[0][: match.end("digits") - match.start()].replace(",", "")
    value = float(number) * _MULTIPLIER.get(match["suffix"] or "", 1.0)
    if not unit:
        detached = _DETACHED.match(text, end)
        if detached and _is_unit(detached[1].lower()):
            unit, end = detached[1].lower(), detached.end()
    return value, unit, end


def _is_unit(unit: str) -> bool:
    what, _, per = unit.partition("/")
    if per:
        return per in _SECONDS or (what in _SECONDS and per in _PER_STEP)
    return unit in _SECONDS or unit in _SIZES


def _label(gap: str) -> tuple[str, str]:
    """The words right before a number, joined by `_`, and a unit in brackets behind them."""
    match = _LABEL.search(gap)
    if match is None:
        return "", ""
    words = match["words"].lower().strip("-./").replace(" ", "_")
    unit = (match["unit"] or "").lower()
    return words.removesuffix("_is"), unit if _is_unit(unit) else ""


def _with_unit(label: str, value: float, unit: str) -> tuple[str, float]:
    what, _, per = unit.partition("/")
    if unit in _SECONDS or (what in _SECONDS and per):
        value *= _SECONDS[what]
        label = label or (f"s/{per}" if per else "")
        return (label if label.endswith(("_s", "s/it")) or not label else f"{label}_s"), value
    if per:
        rate = f"{what}/s"
        return (label if label.endswith(rate) else f"{label}_{rate}" if label else rate), value
    return label, value


def _before_counter(words: str) -> str:
    parts = words.split("_")
    if len(parts) < 3 or parts[-1] not in _COUNTERS or parts[-2] not in _JOINING:
        return ""
    return "_".join(part for part in parts[:-2] if part not in _JOINING)
