"""The journal of a run: append-only JSON lines, the only truth about it.

Each line is `{"n": sequence number, "t": Unix seconds, "event": name, ...}` and is on disk before
`append` returns. A torn last line is dropped when it is read back.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infrarsi.contract.secrecy import without_secrets
from infrarsi.errors import ExternalError, UserError
from infrarsi.ports import Clock

Event = dict[str, Any]
_TOLD = frozenset({"command", "reason"})
"""What is told to a person and decides nothing; no secret is kept in it."""


@dataclass(frozen=True)
class JournalText:
    """What a journal holds: its whole events, how many bytes they take, and what was dropped."""

    events: tuple[Event, ...]
    whole_bytes: int
    note: str = ""


def read(path: Path) -> JournalText:
    """All whole events; a torn last line is dropped with a note, damage before it is refused."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            "there is no journal.jsonl, so this is not a run directory",
            where=str(path.parent),
            fix="name a folder under .infrarsi/runs",
        ) from None
    events: list[Event] = []
    at = 0
    for number, line in enumerate(raw.splitlines(keepends=True)):
        event = _parse(line)
        if event is None or event.get("n") != number:
            if at + len(line) == len(raw):
                return JournalText(
                    tuple(events), at, f"line {number + 1} of the journal was torn and is dropped"
                )
            raise UserError(
                f"line {number + 1} is damaged and more lines follow it",
                where=str(path),
                fix="restore the file from a copy, or start a new run",
            )
        events.append(event)
        at += len(line)
    return JournalText(tuple(events), at)


def _parse(line: bytes) -> Event | None:
    if not line.endswith(b"\n"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


class Journal:
    """Appends to one journal; there is at most one writer (`RunDirectory` holds the lock)."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Open `path`, made if absent; a torn last line is cut off."""
        self._path = path
        self._clock = clock
        self.note = ""
        self.events: list[Event] = []
        if path.exists():
            text = read(path)
            self.note = text.note
            self.events = list(text.events)
            if text.note:
                os.truncate(path, text.whole_bytes)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, event: str, **fields: Any) -> Event:
        """Write one event and force it to disk; raises ExternalError when the disk does not.

        Then the journal is as it was, so that a later event does not follow half a line.
        """
        record: Event = {
            "n": len(self.events),
            "t": round(self._clock.now(), 3),
            "event": event,
            **_without_secrets(fields),
        }
        data = (json.dumps(record, default=_plain, allow_nan=True) + "\n").encode()
        before = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes were written")
            os.fsync(self._fd)
        except OSError as error:
            with contextlib.suppress(OSError):  # a torn last line is dropped when it is read
                os.ftruncate(self._fd, before)
            raise ExternalError(
                f"the journal cannot be written: {error}",
                where=str(self._path),
                fix="free disk space, then continue with `infrarsi run --resume`",
            ) from error
        self.events.append(json.loads(data))
        return record

    def close(self) -> None:
        """Close the file; the journal stays readable."""
        os.close(self._fd)


def _without_secrets(value: Any, key: str = "") -> Any:
    """The same value; in what is told, keys and tokens are taken out."""
    if isinstance(value, dict):
        return {name: _without_secrets(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, key) for inner in value]
    return without_secrets(value) if key in _TOLD and isinstance(value, str) else value


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)
