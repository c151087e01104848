"""How much device memory an out-of-memory run needed at least.

Sources: the message of torch's CUDA allocator (three spellings over its versions) and the
witness's note of the allocator's own out-of-memory call.
"""

import re
from collections.abc import Mapping
from typing import Any

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
_ASKED = re.compile(rf"Tried to allocate {_SIZE}")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED_TOTAL = re.compile(rf"{_SIZE} (?:reserved in total by PyTorch|cached)")


def from_text(log: str) -> int | None:
    """The largest lower bound that any out-of-memory message in `log` gives, in bytes."""
    bounds = [
        _bound(line) for line in log.splitlines() if "out of memory. Tried to allocate" in line
    ]
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


def _bound(line: str) -> int | None:
    """max(allocated + asked, reserved + free): what was there for torch was not enough."""
    asked, allocated = _bytes(_ASKED, line), _bytes(_ALLOCATED, line)
    if asked is None or allocated is None:
        return asked
    unallocated, total = _bytes(_RESERVED, line), _bytes(_RESERVED_TOTAL, line)
    reserved = total if total is not None else allocated + (unallocated or 0)
    free = _bytes(_FREE, line) or 0
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
