"""The numbers that a job printed, read from its captured output after the run.

What a job prints is no evidence of what it did; `infrarsi.verify.printed` holds it against the
record. `printed_line.py` reads one line; here are the file, its progress bars, the lines of several
ranks, and counters that stand in a line of their own above the numbers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from infrarsi.node.log_lines import plain, split_tag
from infrarsi.node.printed_line import Printed, is_counter, numbers_of, stamp_of, step_of
from infrarsi.node.printed_table import MAY_NAME, Table

BAR = "bar/"
"""In front of a label: printed by a progress bar, which is redrawn by the clock."""
LEFT_OUT = "(left out)"
"""The label of what was not kept or not read of the log; what is missing then says nothing."""
Series = dict[str, list[list[float]]]

_MAX_POINTS, _MAX_LABELS, _MAX_ALL = 512, 64, 12_000
_MAX_LINE = 4096
_MAX_LINES = 50_000  # about 2 s of reading
_CHUNK = 1 << 16
_IS_BAR = re.compile(r"%\||\d:\d\d<|\d+/\d+ [\u2500-\u257f]{4}")
_WORTH = re.compile(r"loss|perplexity|time|speed|throughput|per_sec|tok|tps|elapsed|_s$|/s$|s/it")
_OMITTED = re.compile(r"^\.\.\. (\d+) bytes were left out here \.\.\.$")


@dataclass(frozen=True)
class PrintedLine:
    """One line with numbers, or one state of a progress bar.

    `source`: the tag of the process, "" without one. `step`: the counter that the line names, or
    that the line above an indented block names.
    """

    number: int
    source: str
    text: str
    is_bar: bool
    step: float | None
    numbers: tuple[Printed, ...]

    @property
    def stamp_s(self) -> float | None:
        """The time that the logger wrote, in seconds; since midnight where it names no date."""
        return stamp_of(self.text)


@dataclass
class _Series:
    """What was found so far, within the bounds: points by label and by source."""

    points: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    count: int = 0

    def add(self, label: str, source: str, point: tuple[float | None, float, int]) -> None:
        full = len(self.points) >= _MAX_LABELS and label != LEFT_OUT
        if full and label not in self.points:
            return
        points = self.points.setdefault(label, {}).setdefault(source, [])
        step, value, line = point
        if len(points) < _MAX_POINTS and self.count < _MAX_ALL:
            points.append([len(points) + 1.0 if step is None else step, value, float(line)])
            self.count += 1

    def by_label(self) -> Series:
        """Each label's first rank under the plain label; the others' behind, as `rank3/loss`."""
        found: Series = {}
        rest: Series = {}
        for label, sources in self.points.items():
            first, *others = sorted(sources, key=lambda source: (len(source), source))
            found[label] = sources[first]
            rest |= {f"{source}/{label}": sources[source] for source in others}
        for label, points in rest.items():
            if len(found) < _MAX_LABELS:
                found[label] = points
        return found


def printed_numbers(log: Path) -> Series:
    """Label to `[step, value, line]` for each time that it was printed, in the order of the file.

    The step is the counter that the line names (`step`, `iter`, `epoch` if there is nothing else),
    else how often the label had come. Times are in seconds, their labels end with `_s`. At most 64
    labels and 512 points of each; nothing where the file cannot be read. Where several ranks print
    a label, it is the first one's.
    """
    series = _Series()
    for line in printed_lines(log):
        if line.text == LEFT_OUT:
            series.add(LEFT_OUT, "", (0.0, line.numbers[0].value, line.number))
            continue
        seen: set[str] = set()
        for one in line.numbers:
            name = one.name
            if name and name not in seen and (line.step is not None or _WORTH.search(name)):
                seen.add(name)
                prefix = BAR if line.is_bar else ""
                series.add(f"{prefix}{name}", line.source, (line.step, one.value, line.number))
    return series.by_label()


def printed_lines(log: Path) -> Iterator[PrintedLine]:
    """Every line that has numbers; one with the text LEFT_OUT for what is not there or not read.

    Nothing where the file cannot be read.
    """
    try:
        with log.open("rb") as file:
            yield from _read(file)
    except OSError:
        return


def _read(file: BinaryIO) -> Iterator[PrintedLine]:
    above: dict[str, float | None] = {}
    table = Table()
    for count, (number, raw, ends_by_return) in enumerate(_lines(file)):
        if count >= _MAX_LINES:
            yield _left_out(number, 0.0)
            return
        omitted = _OMITTED.match(raw)
        if omitted is not None:
            yield _left_out(number, float(omitted[1]))
            continue
        source, text = split_tag(plain(raw))
        is_bar = ends_by_return or bool(_IS_BAR.search(text))
        if not is_bar and (table.names(source, text) or not any(map(str.isdigit, text))):
            continue
        cells = None if is_bar else table.row(source, text)
        numbers = tuple(numbers_of(text)) if cells is None else cells
        step = step_of(numbers, text, is_bar=is_bar)
        if step is None and text[:1].isspace():
            step = above.get(source)
        elif not is_bar:
            alone = text.rstrip().endswith((":", "]")) and all(map(is_counter, numbers))
            above[source] = step if alone else None
        yield PrintedLine(number, source, text, is_bar, step, numbers)


def _left_out(number: int, size: float) -> PrintedLine:
    return PrintedLine(number, "", LEFT_OUT, False, None, (Printed(LEFT_OUT, size),))


def _lines(file: BinaryIO) -> Iterator[tuple[int, str, bool]]:
    """(line number, text, whether it ends by a carriage return) of each line that may say
    something: one with a digit, or with a counter's word."""
    rest, number = b"", 1
    while True:
        data = file.read(_CHUNK)
        buffer = rest + data
        hold = b"\r" if data and buffer.endswith(b"\r") else b""  # perhaps half of a line's end
        *parts, rest = re.split(rb"(\r\n|\n|\r)", buffer[: len(buffer) - len(hold)])
        if not data:
            parts += [rest, b""]
        for content, end in zip(parts[::2], parts[1::2], strict=True):
            shown = content[:_MAX_LINE]
            if any(48 <= byte <= 57 for byte in shown) or MAY_NAME.search(shown):
                yield number, shown.decode(errors="replace"), end == b"\r"
            number += end != b"\r" and bool(end)
        if not data:
            return
        rest = rest[:_MAX_LINE] + hold
