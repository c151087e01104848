"""Ctrl-C: the first asks to stop in good order, the second ends this process at once."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODE = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Counts SIGINT and SIGTERM while it is entered.

    `requested` is true after the first, until it is acknowledged; every loop looks at it. At the
    second the process ends with exit code 130: the ends of the supervisors' pipes close with it,
    so their trees are gone within 2 s. Enter it after Ray was started, which replaces the handler
    of SIGTERM, or call `renew` then. Outside the main thread it counts nothing.
    """

    def __init__(self, on_first: Callable[[], None] | None = None) -> None:
        """`on_first` is called in the handler of the first signal; it must not block."""
        self._on_first = on_first
        self._count = 0
        self._acknowledged = False
        self._before: dict[signal.Signals, Any] = {}
        self._last_words: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """Whether the user has asked to stop and nobody has acknowledged it."""
        return self._count > 0 and not self._acknowledged

    def acknowledge(self) -> None:
        """Go on after the first signal (to verify what was found); a second still ends all."""
        self._acknowledged = True

    def before_exit(self, call: Callable[[], None]) -> None:
        """Have `call` run before the process ends at the second signal; it must be quick."""
        self._last_words.append(call)

    def renew(self) -> None:
        """Install the handlers again, after something else has replaced them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            previous = signal.signal(number, self._handle)
            self._before.setdefault(number, previous)

    def __enter__(self) -> "Interrupts":
        self.renew()
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            try:
                for call in self._last_words:
                    call()
            finally:
                os._exit(EXIT_CODE)
        if self._on_first is not None:
            self._on_first()
