"""How much device memory an out-of-memory run needed at least.

Sources: the message of torch's allocators (CUDA and HIP in three spellings over the versions, the
asynchronous one, MPS) and the witness's note of the allocator's own out-of-memory call. What comes
from NCCL, cuBLAS or cuDNN names no numbers. A size in GB, which may be either unit, is read as
the smaller one, so that a bound stays a bound.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

_UNITS = {
    "bytes": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SIZE = r"([\d.]+) ?(bytes|[KMGT]i?B)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}|Requested\s*: {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free|Free \(according to CUDA\)\s*: {_SIZE}")
_ALLOCATED = re.compile(
    rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated"
    rf"|Currently allocated\s*: {_SIZE}|MPS allocated: {_SIZE}"
)
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED_TOTAL = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")
_CAPACITY = re.compile(
    rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity|Device limit\s*: {_SIZE}"
)
_ALLOWED = re.compile(rf"{_SIZE} allowed;")
_MESSAGE = re.compile(r"out of memory(?:\)|\.| \(MPS)|Allocation on device")
_LONGEST = 1200  # letters of one message, over as many lines as a terminal made of it


def from_text(log: str) -> int | None:
    """The largest lower bound that any out-of-memory message in `log` gives, in bytes.

    A message may be broken over lines; `log` holds the lines of one process, or of several if no
    message is.
    """
    bounds = []
    starts = [match.start() for match in _MESSAGE.finditer(log)]
    for start, stop in itertools.pairwise([*starts, len(log)]):
        text = log[start : min(stop, start + _LONGEST)]
        line = text.partition("\n")[0]
        whole = " ".join(re.split(r"\n\s*\n", text)[0].split())
        bounds.append(_bound(line if _ALLOCATED.search(line) else whole))
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known else None


def from_record(oom: Mapping[str, Any]) -> int | None:
    """The lower bound that one rank's record gives, in bytes."""
    wanted = _number(oom, "wanted", "requested_bytes", "wanted_bytes")
    allocated = _number(oom, "allocated", "allocated_bytes")
    reserved = _number(oom, "reserved", "reserved_bytes")
    free = _number(oom, "free", "free_bytes")
    bounds = []
    if wanted is not None and allocated is not None:
        bounds.append(allocated + wanted)
    if reserved is not None and free is not None:
        bounds.append(reserved + free)
    from_message = from_text(str(oom.get("text", "")))
    if from_message is not None:
        bounds.append(from_message)
    return max(bounds) if bounds else None


def _bound(text: str) -> int | None:
    """max(allocated + asked, reserved + free): what was there for torch was not enough.

    Free memory counts only as far as torch was allowed to take it, and not where the figure is
    more than the device has (some versions of ROCm print a negative number as unsigned).
    """
    asked, allocated = _bytes(_ASKED, text), _bytes(_ALLOCATED, text)
    if asked is None or allocated is None:
        return asked
    unallocated, total = _bytes(_RESERVED, text), _bytes(_RESERVED_TOTAL, text)
    reserved = total if total is not None else allocated + (unallocated or 0)
    free, capacity, allowed = (_bytes(p, text) for p in (_FREE, _CAPACITY, _ALLOWED))
    if free is None or (capacity is not None and free > capacity):
        free = 0
    if allowed is not None:
        free = min(free, max(0, allowed - reserved))
    return max(allocated + asked, reserved + free)


def _bytes(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    return int(float(number) * _UNITS[unit])


def _number(data: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if isinstance(data.get(name), int | float):
            return int(data[name])
    return None
