"""What a training log says about a failure: pure text in, findings out.

Tracebacks are read by process, so that the lines of several ranks may be mixed; each is one
`Exceptional`. What the words in it mean is in `failure_wordings.py`; tests/node/failure_logs.py
and tests/node/failure_excerpts.py hold the logs that both were written from.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import Outcome
from infrarsi.node.failure_wordings import CONSEQUENCES, HARDWARE, KINDS, SECONDARY
from infrarsi.node.log_lines import split_tag

_START = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(:\s.*|:|)$")
_FRAME = re.compile(r'^\s+File "(?P<path>.+)", line (?P<line>\d+)')
_RICH_FRAME = re.compile(r"^\s*\u2502\s+(?P<path>/\S+\.py):(?P<line>\d+) in ")
_BOX = re.compile(r"^\s*[\u2502\u2570\u256d|+]")
_SUMMARY = re.compile(  # of torchrun; where `@record` is used it holds the rank's traceback
    r"Root Cause.*?rank\s*: (?P<rank>\d+).*?exitcode\s*: (?P<code>-?\d+)"
    r"(?:.*?traceback\s*: (?P<traceback>Traceback.*?)(?:\n\s*\n|\n=+|\Z))?",
    re.DOTALL,
)
_LONGEST_MESSAGE = 40

Line = tuple[int, str]
"""Where it stands in the log, and what it says without its tag."""


@dataclass(frozen=True)
class Exceptional:
    """One traceback of a log: the exception's line, where in the project it was raised, the
    exception's whole message, and all the text, frames and earlier links of a chain included.

    `source`: the tag of the process that wrote it, "" without one; `at`: the number of the
    exception's line in the log, from 0.
    """

    line: str
    place: str
    message: str
    text: str
    source: str = ""
    at: int = 0

    @property
    def is_secondary(self) -> bool:
        """Whether it only reports that another process failed."""
        return bool(SECONDARY.search(self.line))


@dataclass(frozen=True)
class RootCause:
    """What torchrun's summary names as the first failure that it saw."""

    rank: int
    exit_code: int
    exception: Exceptional | None


def kind_of(text: str) -> Outcome | None:
    """The kind of failure whose cause `text` names, None if it names none."""
    return next((outcome for outcome, pattern in KINDS.items() if pattern.search(text)), None)


def consequence_in(text: str) -> Outcome | None:
    """What is left to say of a log that names no cause: a time-out, a signal, a lost peer."""
    found = (outcome for outcome, pattern in CONSEQUENCES.items() if pattern.search(text))
    return next(found, None)


def hardware_fault(text: str) -> Outcome | None:
    """What a call of CUDA that failed for no reason of its own comes from, if `text` names it."""
    return Outcome.INFRA if HARDWARE.search(text) else None


def line_naming(text: str, outcome: Outcome, *, cause: bool = True) -> str:
    """The first line of `text` that names a cause (or a consequence) of that kind, untagged."""
    pattern = (KINDS if cause else CONSEQUENCES)[outcome]
    bare = (split_tag(line)[1].strip() for line in text.splitlines())
    return next((line for line in bare if pattern.search(line)), "")


def primary_exception(log: str, folder: str = "") -> Exceptional | None:
    """The traceback that began the failure: the first that is no consequence of another's.

    Of several, the one of the rank that torchrun saw fail first.
    """
    found = sorted(tracebacks(log, folder), key=lambda item: item.at)
    first = [item for item in found if not item.is_secondary]
    root = root_cause(log, folder)
    if root is not None:
        theirs = [item for item in first if item.source == f"rank{root.rank}"]
        own = root.exception
        if own is not None and not own.is_secondary and not theirs:
            same = [item for item in first if item.line == own.line]
            return (same or [own])[0]
        first = theirs or first
    return first[0] if first else (found[-1] if found else None)


def root_cause(log: str, folder: str = "") -> RootCause | None:
    """torchrun's summary of a failed group, None without one."""
    match = _SUMMARY.search("\n".join(split_tag(line)[1] for line in log.splitlines()))
    if match is None:
        return None
    exception = None
    if match["traceback"]:
        text = match["traceback"].splitlines()
        inner = [(0, text[0]), *((0, line[2:]) for line in text[1:])]
        exception = next(_of_one_process(inner, folder, f"rank{match['rank']}"), None)
    return RootCause(int(match["rank"]), int(match["code"]), exception)


def tracebacks(log: str, folder: str = "") -> Iterator[Exceptional]:
    """Every traceback, process by process; of a chain, the last one stands for all."""
    by_source: dict[str, list[Line]] = {}
    for at, line in enumerate(log.splitlines()):
        source, text = split_tag(line)
        by_source.setdefault(source, []).append((at, text))
    for source, lines in by_source.items():
        yield from _of_one_process(lines, folder, source)


def _of_one_process(lines: Sequence[Line], folder: str, source: str) -> Iterator[Exceptional]:
    pending: Exceptional | None = None
    chained = False
    at = 0
    while at < len(lines):
        line = lines[at][1]
        if line.startswith(_CHAINED):
            chained = True
        elif _begins(line):
            if pending is not None and not chained:
                yield pending
            item, at = _one(lines, at, folder)
            if chained and pending is not None and item is not None:
                item = replace(item, text=f"{pending.text}\n{item.text}")
            pending = replace(item, source=source) if item is not None else pending
            chained = False
            continue
        at += 1
    if pending is not None:
        yield pending


def _begins(line: str) -> bool:
    """A traceback's first line, also in the box that `rich` draws."""
    return line.strip().removeprefix("Original ").startswith(_START) or (
        _START in line and "\u2500" in line
    )


def _one(lines: Sequence[Line], start: int, folder: str) -> tuple[Exceptional | None, int]:
    place = inner = ""
    at = start + 1
    while at < len(lines):
        line = lines[at][1]
        frame = _FRAME.match(line) or _RICH_FRAME.match(line)
        if frame is not None:
            path, number = frame["path"], frame["line"]
            inside = bool(folder) and path.startswith(folder + "/")
            if inside:
                place = f"{path[len(folder) + 1 :]}:{number}"
            inner = f"{path.rsplit('/', 1)[-1]}:{number}"
        elif not line.startswith((" ", "\t")) and line.strip() and not _BOX.match(line):
            if not _EXCEPTION.match(line):
                return None, at
            end = at + 1
            while end < len(lines) and _continues(lines[end][1]) and end - at < _LONGEST_MESSAGE:
                end += 1
            message, text = (
                "\n".join(line for _, line in lines[first:end]) for first in (at, start)
            )
            found = Exceptional(line.strip(), place or inner, message, text, at=lines[at][0])
            return found, end
        at += 1
    return None, at


def _continues(line: str) -> bool:
    """Whether a line may still belong to an exception's message."""
    return bool(line.strip()) and not _begins(line) and not line.startswith(_CHAINED)
