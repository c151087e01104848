"""The files that launchers read: accelerate's configuration, and lists of hosts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infrarsi.contract.document import Document
from infrarsi.errors import UserError

_SLOTS = re.compile(r"(?:slots|max[-_]slots)\s*=\s*(\d+)")
_COLON = re.compile(r"([^\s:]+):(\d+)")


@dataclass(frozen=True)
class AccelerateConfig:
    """What `accelerate launch --config_file` reads."""

    path: str
    document: Document

    def place(self, *keys: str) -> str:
        """The file and line of a key."""
        return f"{self.path}:{self.document.line(keys)}"

    def value(self, *keys: str) -> Any:
        """The value of a key, or of one in a section such as `fsdp_config`; None without it."""
        found = self.document.data
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def number(self, key: str) -> int | None:
        """A whole number; raises UserError for anything else."""
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not str(value).isdigit():
            raise UserError(
                f"`{key}` is {value!r}, but must be a whole number",
                where=self.place(key),
                fix="write the number out",
            )
        return int(value)


@dataclass(frozen=True)
class Host:
    """A host and the processes on it, None where its list does not say."""

    name: str
    slots: int | None


def text_of(path: Path, shown: str, told_by: str) -> str:
    """The text of a file that a launcher reads; raises UserError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"{told_by} names {shown!r}, which does not exist",
            where=told_by,
            fix="put the file there, or give the command that one node runs with --command",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(
            f"the file cannot be read: {reason}", where=shown, fix="make it a readable text file"
        ) from error


def accelerate_config(text: str, shown: str) -> AccelerateConfig:
    """The configuration of accelerate; raises UserError with the line where it is none."""
    document = Document.parse(text, where=shown)
    if not isinstance(document.data, dict):
        raise UserError(
            "this is no configuration of accelerate: it has no keys",
            where=shown,
            fix="make one with `accelerate config --config_file FILE`",
        )
    return AccelerateConfig(shown, document)


def hosts_of_file(path: Path, shown: str, told_by: str) -> tuple[Host, ...]:
    """The hosts of a hostfile: `name slots=8` (deepspeed, Open MPI) or `name:8` (MPICH)."""
    found: dict[str, Host] = {}
    for number, line in enumerate(text_of(path, shown, told_by).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        slots = _SLOTS.search(line)
        colon = _COLON.fullmatch(words[0])
        if len(words) > 1 and slots is None:
            raise UserError(
                f"{line.strip()!r} is no host of a hostfile",
                where=f"{shown}:{number}",
                fix="write `name slots=8`",
            )
        name = colon.group(1) if colon is not None else words[0]
        count = slots.group(1) if slots is not None else colon.group(2) if colon else None
        found[name] = Host(name, None if count is None else int(count))
    if not found:
        raise UserError("the list of hosts is empty", where=shown, fix="write `name slots=8`")
    return tuple(found.values())


def hosts_of_list(text: str) -> tuple[Host, ...]:
    """The hosts of `a:4,b:4`, as mpirun's `-H` takes them."""
    found: dict[str, int] = {}
    counted = True
    for item in text.split(","):
        name, colon, count = item.strip().partition(":")
        counted = counted and (not colon or count.isdigit())
        found[name] = found.get(name, 0) + (int(count) if count.isdigit() else 1)
    return tuple(Host(name, count if counted else None) for name, count in found.items())


def chosen_hosts(
    hosts: tuple[Host, ...] | None, include: str | None, exclude: str | None
) -> tuple[Host, ...] | None:
    """The hosts after deepspeed's `--include a:0,1@b` or `--exclude`; None without any list."""
    if include:
        found = []
        for item in include.split("@"):
            name, colon, slots = item.partition(":")
            known = next((host for host in hosts or () if host.name == name), None)
            count = _count(slots) if colon else known.slots if known is not None else None
            found.append(Host(name, count))
        return tuple(found)
    if exclude and hosts is not None:
        kept: dict[str, Host] = {host.name: host for host in hosts}
        for item in exclude.split("@"):
            name, colon, slots = item.partition(":")
            host = kept.get(name)
            if host is None:
                continue
            if not colon:
                del kept[name]
            elif host.slots is not None:
                kept[name] = Host(name, host.slots - _count(slots))
        return tuple(host for host in kept.values() if host.slots != 0)
    return hosts


def _count(slots: str) -> int:
    """The number of GPUs in `0,1,4-7`."""
    total = 0
    for item in slots.split(","):
        first, _, last = item.partition("-")
        total += int(last) - int(first) + 1 if last.isdigit() and first.isdigit() else 1
    return total
