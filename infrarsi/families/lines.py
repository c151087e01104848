"""A TOML text made of one kind of table, whose mistakes are told with their line."""

import re
import tomllib
from functools import cached_property
from typing import Any

_PLACE = re.compile(r"\(at line (\d+)")
_QUOTED = re.compile(r"'([^']+)'")


class Lines:
    """The tables `[[kind]]` of a text, and the lines where they are written."""

    def __init__(self, text: str, name: str, kind: str) -> None:
        self._text = text
        self._name = name
        self._kind = kind

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole text; raises ValueError with the line where it is no TOML."""
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            found = _PLACE.search(str(error))
            line = found.group(1) if found else str(self._text.count("\n") + 1)
            raise ValueError(f"{self._name}:{line}: {error}") from error

    def entries(self) -> list[dict[str, Any]]:
        """Every table of the kind, in order."""
        return list(self.document[self._kind])

    def wrong(self, at: int, fact: str, word: str = "") -> ValueError:
        """An error about table number `at`, at the line with `word`, or with what `fact` quotes.

        What a fact quotes first is the table's own name, so that comes last.
        """
        start, end = self._span(at)
        quoted = _QUOTED.findall(fact)
        return self._error(fact, start, end, [word] if word else [*quoted[1:], *quoted[:1]])

    def wrong_key(self, fact: str, key: str) -> ValueError:
        """An error about a key outside the tables."""
        return self._error(fact, 0, None, [key])

    def _error(self, fact: str, start: int, end: int | None, words: list[str]) -> ValueError:
        lines = self._text.splitlines()[start:end]
        for wanted in words:
            alone = re.compile(rf"(?<![\w-]){re.escape(wanted)}(?![\w-])")
            for number, line in enumerate(lines):
                if alone.search(line):
                    return ValueError(f"{self._name}:{start + number + 1}: {fact}")
        return ValueError(f"{self._name}:{start + 1}: {fact}")

    def _span(self, at: int) -> tuple[int, int]:
        """The lines of table number `at`, from its header on, counted from zero."""
        header = f"[[{self._kind}]]"
        lines = self._text.splitlines()
        starts = [number for number, line in enumerate(lines) if line.strip() == header]
        return starts[at], ([*starts, len(lines)])[at + 1]
