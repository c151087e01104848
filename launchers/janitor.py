"""Clears up after a local Ray whose driver died without a word.

    janitor.py FOLDER PID:START...

A stand-alone program of the standard library. The driver holds the write end of its stdin; at
end-of-file it kills those of the processes that still run (START, in clock ticks, tells a process
from a later one with the same id) and deletes FOLDER. Ray's own agents outlive a killed driver by
more than 10 s (Ray 2.60). After an orderly shutdown there is nothing left to do.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

_PATIENCE_S = 5.0  # workers that are on their way out may still write logs into FOLDER


def start_of(pid: int) -> str | None:
    """When a process was started, in clock ticks since boot; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[19].decode()
    except (OSError, IndexError):
        return None


def main(arguments: list[str]) -> int:
    """The program."""
    folder, *processes = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        continue
    for text in processes:
        pid, _, start = text.partition(":")
        if start_of(int(pid)) == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
