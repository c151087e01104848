"""Starting processes outside this process's own group.

What signals a whole group (a terminal's Ctrl-C, `timeout`, a scheduler) then reaches the driver
alone, which stops everything in good order. Ray 2.60 starts its processes in the group of the
driver, and a SIGTERM to the group took the cluster from under it.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def another_process_group() -> Iterator[None]:
    """Processes started inside are in a group of their own; this one comes back to its old group.

    What signals the old group meanwhile still reaches this process, once. Does nothing where the
    system refuses it, as for a session leader (a container's first process).
    """
    ours, driver = os.getpgrp(), os.getpid()
    with _held_back():
        leader = _Child(_wait)  # a group needs a member while the driver is not in it
        deputy = _Child(lambda: _pass_on(driver))
        moved = _move(leader.pid)
        if moved:
            deputy.go()
    try:
        yield
    finally:
        with _held_back():
            if moved:
                _return(ours)
            deputy.end()
            leader.end()


class _Child:
    """A forked process that does `duty` until its pipe is closed; it is told by `go` to begin."""

    def __init__(self, duty: Callable[[], None]) -> None:
        self._read, self._write = os.pipe()
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write)
            os.close(ready)
            self._serve(duty, told)
        os.close(self._read)
        os.close(told)
        self._ready = ready

    def go(self) -> None:
        """Have it begin; returns when it has."""
        os.write(self._write, b"g")
        os.read(self._ready, 1)

    def end(self) -> None:
        """Have it end; returns when it has."""
        os.close(self._write)
        os.close(self._ready)
        os.waitpid(self.pid, 0)

    def _serve(self, duty: Callable[[], None], told: int) -> NoReturn:
        try:
            if os.read(self._read, 1):
                duty()
                os.write(told, b"r")
                while os.read(self._read, 1):
                    continue
        finally:
            os._exit(0)


def _wait() -> None:
    return


def _pass_on(driver: int) -> None:
    """From now on send what reaches this process to the driver."""
    for number in _SIGNALS:
        signal.signal(number, lambda number, _: os.kill(driver, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Signals wait until the end of this; the same one twice becomes one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _move(group: int) -> bool:
    try:
        os.setpgid(group, group)
        os.setpgid(0, group)
    except OSError:
        return False
    return True


def _return(group: int) -> None:
    try:
        os.setpgid(0, group)
    except OSError:  # the old group had no other member: make it anew
        os.setpgid(0, 0)
