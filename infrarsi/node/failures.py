"""What a training log says about a failure: pure text in, findings out.

The texts are those of torch, NCCL, triton and the C library; tests/node/failure_logs.py holds the
real ones that these patterns were written from.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from infrarsi.contract import Outcome

_GPU_MEMORY = (
    r"CUDA out of memory\. Tried to allocate",
    r"HIP out of memory",
    r"CUDA error: out of memory",
    r"CUDA driver error: out of memory",
    r"\bOutOfMemoryError\b",
    r"CUBLAS_STATUS_ALLOC_FAILED",
    r"Cuda failure \d* ?'out of memory'",
)
_HOST_MEMORY = (
    r"DefaultCPUAllocator: (can't|not enough)",
    r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) (is killed by signal: (Bus error|Killed)"
    r"|exited unexpectedly with exit code -?(7|9)\b)",
    r"insufficient shared memory \(shm\)",
    r"unable to (mmap|allocate shared memory).*(Cannot allocate memory|\(shm\))",
    r"Error while (creating|attaching to) shared memory segment /dev/shm/nccl",
    r"\[Errno 12\] Cannot allocate memory",
    r"^MemoryError\b|\bstd::bad_alloc\b|\bbad alloc\b",
    r"Detected \d+ oom[-_]kill event",
    r"Unable to allocate [\d.]+ [KMGT]iB for an array",
)
_COMPILER = (
    r"\btorch\._inductor\.exc\.|\bInductorError\b|\bCppCompileError\b",
    r"\btorch\._dynamo\.exc\.|\bBackendCompilerFailed\b",
    r"\btriton\.(compiler|runtime)\.\w+\.(CompilationError|OutOfResources|PTXASError)\b",
    r"out of resource: (shared memory|threads|registers)",
    r"Error building extension '",
    r"\bPTXASError\b|ptxas fatal|\bnvcc fatal\b",
)
_WORLD = (
    r"\bEADDRINUSE\b|Address already in use",
    r"uncorrectable ECC error|fallen off the bus|NVLink error|\bXid \(",
    r"CUDA error: device is busy|CUDA-capable device\(s\) is/are busy or unavailable",
    r"\[Errno 28\] No space left on device|\[Errno 122\] Disk quota exceeded",
    r"\[Errno (5|107|116)\]|Stale file handle|Transport endpoint is not connected",
)
_NUMBERS = (
    r"found (NaN|Inf) in local grad norm",
    r"returned nan values in its \d+th output",
    r"^FloatingPointError\b",
    r"(?i:loss is (nan|inf)\b|loss (became|turned) nan)",
)
_PATTERNS: tuple[tuple[Outcome, re.Pattern[str]], ...] = tuple(
    (outcome, re.compile("|".join(texts), re.MULTILINE))
    for outcome, texts in (
        (Outcome.OOM_GPU, _GPU_MEMORY),
        (Outcome.OOM_HOST, _HOST_MEMORY),
        (Outcome.COMPILE_FAILED, _COMPILER),
        (Outcome.INFRA, _WORLD),
        (Outcome.NUMERIC, _NUMBERS),
    )
)
_SECONDARY = re.compile(  # what other ranks and the launcher say after the first one failed
    r"ChildFailedError|SignalException|Connection (closed|reset) by peer|Broken pipe"
    r"|ncclRemoteError|remote process exited|Rank \d+ successfully reached monitoredBarrier"
    r"|watchdog .*terminated|TCPStore|DistBackendError|KeyboardInterrupt"
)
_PREFIX = re.compile(r"^(\[(rank|default)?\d+\]:\s?)+|^\[\w+\d+\]:\s?")
_START = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(:\s.*|)$")
_FRAME = re.compile(r'^\s+File "(?P<path>.+)", line (?P<line>\d+)')


@dataclass(frozen=True)
class Exceptional:
    """One traceback of a log: the exception's line, where in the project it was raised, the
    exception's whole message, and all the text, frames and earlier links of a chain included."""

    line: str
    place: str
    message: str
    text: str

    @property
    def is_secondary(self) -> bool:
        """Whether it only reports that another process failed."""
        return bool(_SECONDARY.search(self.line))


def kind_of(text: str) -> Outcome | None:
    """The kind of failure that `text` names, None if it names none."""
    return next((outcome for outcome, pattern in _PATTERNS if pattern.search(text)), None)


def line_naming(text: str, outcome: Outcome) -> str:
    """The first line of `text` by which it is of that kind, without a rank prefix."""
    pattern = dict(_PATTERNS)[outcome]
    for line in text.splitlines():
        if pattern.search(line):
            return _PREFIX.sub("", line).strip()
    return ""


def primary_exception(log: str, folder: str = "") -> Exceptional | None:
    """The traceback that began the failure: the first that is no consequence of another's."""
    found = list(tracebacks(log, folder))
    first = [item for item in found if not item.is_secondary]
    return first[0] if first else (found[-1] if found else None)


def tracebacks(log: str, folder: str = "") -> Iterator[Exceptional]:
    """Every traceback in order; of a chain, the last one stands for all."""
    lines = [_PREFIX.sub("", line) for line in log.splitlines()]
    pending: Exceptional | None = None
    chained = False
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_CHAINED):
            chained = True
        elif line.strip() == _START:
            if pending is not None and not chained:
                yield pending
            item, at = _one(lines, at, folder)
            if chained and pending is not None and item is not None:
                item = replace(item, text=f"{pending.text}\n{item.text}")
            pending, chained = item or pending, False
            continue
        at += 1
    if pending is not None:
        yield pending


def _one(lines: list[str], start: int, folder: str) -> tuple[Exceptional | None, int]:
    place = inner = ""
    at = start + 1
    while at < len(lines):
        line = lines[at]
        frame = _FRAME.match(line)
        if frame is not None:
            path, number = frame["path"], frame["line"]
            inside = bool(folder) and path.startswith(folder + "/")
            if inside:
                place = f"{path[len(folder) + 1 :]}:{number}"
            inner = f"{path.rsplit('/', 1)[-1]}:{number}"
        elif not line.startswith((" ", "\t")) and line.strip():
            if not _EXCEPTION.match(line):
                return None, at
            end = at + 1
            while end < len(lines) and _continues(lines[end]) and end - at < 40:
                end += 1
            message, text = ("\n".join(lines[first:end]) for first in (at, start))
            return Exceptional(line.strip(), place or inner, message, text), end
        at += 1
    return None, at


def _continues(line: str) -> bool:
    """Whether a line may still belong to an exception's message."""
    return bool(line.strip()) and line.strip() != _START and not line.startswith(_CHAINED)
