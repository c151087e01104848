"""What a person reads while a command runs: progress lines on stdout, all of them in run.log."""

import sys
import time
from pathlib import Path
from typing import TextIO


class Console:
    """Prints milestones, details too when `verbose`; keeps every line in the run's log."""

    def __init__(self, *, verbose: bool, out: TextIO | None = None) -> None:
        self._verbose = verbose
        self._out = out or sys.stdout
        self._log: TextIO | None = None
        self._early: list[str] = []

    def log_to(self, path: Path) -> None:
        """Keep all lines, the earlier ones too, in this file as well."""
        self._log = path.open("a", encoding="utf-8")
        for line in self._early:
            self._write_log(line)
        self._early = []

    def say(self, text: str, milestone: bool = True) -> None:
        """One line; a detail is printed only when verbose."""
        if milestone or self._verbose:
            print(text, file=self._out, flush=True)
        if self._log is not None:
            self._write_log(text)
        else:
            self._early.append(text)

    def _write_log(self, text: str) -> None:
        assert self._log is not None
        self._log.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._log.flush()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def ask(question: str) -> str:
    """The answer to one question, stripped and in lower case; end of input is `q`."""
    try:
        return input(question).strip().lower()
    except EOFError:
        return "q"


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
