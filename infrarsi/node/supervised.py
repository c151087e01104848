"""The owner's side of `supervise.py`: start it, hear from it, tell it to stop."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

PROGRAM = Path(__file__).with_name("supervise.py")


@dataclass(frozen=True)
class Ended:
    """How a supervised command ended.

    `exit_code` is None if it never came; `by_itself` if nobody asked it to end; `seconds` its
    duration. `killed` names processes that had to be killed, `survived` those that could not be,
    `segments_left` shared-memory segments that appeared meanwhile and may be someone else's.
    `lost` is set if the supervisor itself died.
    """

    exit_code: int | None
    by_itself: bool = False
    seconds: float | None = None
    killed: tuple[str, ...] = ()
    survived: tuple[str, ...] = ()
    segments_left: tuple[str, ...] = ()
    lost: bool = False


class Supervised:
    """One command under a supervisor; `output` is its combined stdout and stderr."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        grace_s: float,
        timeout_s: float,
        remove: Sequence[Path] = (),
        watch: int | None = None,
    ) -> None:
        """Start it.

        `remove` are folders that the supervisor deletes if this process dies, or the process
        `watch`, on whose behalf this one runs.
        """
        self._events, write_end = os.pipe()
        options = [f"--result-fd={write_end}", f"--grace={grace_s}", f"--timeout={timeout_s}"]
        options += [f"--remove={path}" for path in remove]
        options += [f"--watch={watch}"] if watch is not None else []
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), *options, "--", *command],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        assert self._process.stdout is not None
        self.output: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self._buffer = b""
        self._ended: Ended | None = None
        self._poll = select.poll()
        self._poll.register(self._events, select.POLLIN | select.POLLHUP)

    def wait(self, timeout_s: float) -> Ended | None:
        """How it ended, None if `timeout_s` passed first."""
        if self._ended is None and self._poll.poll(timeout_s * 1000):
            data = os.read(self._events, 1 << 16)
            self._buffer += data
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
            if not data and self._ended is None:
                self._ended = Ended(None, lost=True)
        return self._ended

    def stop(self) -> None:
        """Ask it to end its tree; does not block, may be called twice."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"s")
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has ended already
            return

    def close(self) -> None:
        """Release what belongs to it; end-of-file on its stdin stops it if it still runs."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            self._process.stdin = None
        self._process.wait()
        if self._events >= 0:
            os.close(self._events)
            self._events = -1

    def _hear(self, event: dict[str, object]) -> None:
        if event["event"] == "started":
            return
        segments = event.get("segments") or {}
        code, seconds = event.get("exit_code"), event.get("seconds")
        assert isinstance(segments, dict)
        lost = event["event"] == "lost"
        self._ended = Ended(
            exit_code=code if isinstance(code, int) and not lost else None,
            by_itself=event.get("why") == "finished",
            seconds=seconds if isinstance(seconds, float) else None,
            killed=_names(event.get("killed")),
            survived=_names(event.get("survived")),
            segments_left=_names(segments.get("left")),
            lost=lost,
        )


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
