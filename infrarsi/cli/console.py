"""What a person reads while a command runs: progress lines on stdout, all of them in run.log."""

import os
import shutil
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TextIO

from infrarsi.contract.secrecy import without_secrets
from infrarsi.contract.wording import duration
from infrarsi.errors import Interrupted

_CLEAR = "\r\x1b[K"
_TICK_S = 1.0


class Console:
    """Prints milestones, details too when `verbose`; keeps every line in the run's log."""

    def __init__(self, *, verbose: bool, out: TextIO | None = None) -> None:
        self._verbose = verbose
        self._out = out or sys.stdout
        self._shows_status = self._out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._status = ""
        self._since = 0.0
        self._turn = threading.Lock()
        self._clock: threading.Thread | None = None
        self._closed = threading.Event()
        self._log: TextIO | None = None
        self._early: list[str] = []

    def log_to(self, path: Path) -> None:
        """Keep all lines, the earlier ones too, in this file as well."""
        self._log = path.open("a", encoding="utf-8")
        for line in self._early:
            self._write_log(line)
        self._early = []

    def say(self, text: str, milestone: bool = True) -> None:
        """One line; a detail is printed only when verbose. No key or token is shown or kept.

        On a terminal a line that is too long goes on below, broken between words.
        """
        text = without_secrets(text)
        if milestone or self._verbose:
            self._print("\n".join(self._wrapped(line) for line in text.split("\n")))
        self._keep(text)

    def show(self, text: str) -> None:
        """Text whose lines must stay as they are: a diff, a table."""
        text = without_secrets(text)
        self._print(text)
        self._keep(text)

    def _print(self, text: str) -> None:
        with self._turn:
            self._clear()
            print(text, file=self._out, flush=True)

    def _wrapped(self, line: str) -> str:
        width = shutil.get_terminal_size().columns - 1
        if not self._out.isatty() or len(line) <= width:
            return line
        indent = line[: len(line) - len(line.lstrip())]
        indent += "    " if indent else ""
        return textwrap.fill(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    def _keep(self, text: str) -> None:
        if self._log is not None:
            self._write_log(text)
        else:
            self._early.append(text)

    def status(self, text: str) -> None:
        """What is happening now: on a terminal only, until the next line; not kept.

        How long it has been so is shown with it, second by second.
        """
        if not self._shows_status:
            return
        with self._turn:
            self._status, self._since = text, time.monotonic()
            self._show()
        if self._clock is None:
            self._clock = threading.Thread(target=self._tick, daemon=True)
            self._clock.start()

    def _tick(self) -> None:
        """Renew the time that a status has lasted; in a thread of its own."""
        while not self._closed.wait(_TICK_S):
            with self._turn:
                if self._status:
                    self._show()

    def _show(self) -> None:
        passed_s = time.monotonic() - self._since
        text = self._status + (f" ({duration(int(passed_s))})" if passed_s >= 1 else "")
        width = shutil.get_terminal_size().columns - 1
        print(_CLEAR + text[:width], end="", file=self._out, flush=True)

    def _clear(self) -> None:
        if self._status:
            print(_CLEAR, end="", file=self._out, flush=True)
            self._status = ""

    def _write_log(self, text: str) -> None:
        assert self._log is not None
        lines = text.replace("\n", "\n         ")
        self._log.write(f"{time.strftime('%H:%M:%S')} {lines}\n")
        self._log.flush()

    def close(self) -> None:
        """Close the log, and leave the terminal at the start of a line."""
        self._closed.set()
        if self._clock is not None:
            self._clock.join()
        self._clear()
        if self._log is not None:
            self._log.close()
            self._log = None


def ask(question: str, *, on_interrupt: str) -> str:
    """The answer to one question, stripped and in lower case; end of input is `q`.

    Raises Interrupted with `on_interrupt`, which says where things stand, at Ctrl-C.
    """
    try:
        return input(question).strip().lower()
    except EOFError:
        print()
        return "q"
    except KeyboardInterrupt:
        print()
        raise Interrupted(on_interrupt) from None


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def shown(path: Path) -> Path:
    """A path as a person would write it here: relative where it lies below this folder."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
