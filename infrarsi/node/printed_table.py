"""Numbers that stand in columns under a line of names: CSV, tabs, Markdown, boxes, aligned columns.

A line of names is one whose cells are all words and which names a counter or a loss; a row has as
many cells by the same separator, all of them numbers or empty. Any other line is none of a table.
"""

import re
from dataclasses import dataclass, field

from infrarsi.node.printed_line import Printed, numbers_of

_SEPARATORS = (
    re.compile(r"\s*[|\u2502\u2503]\s*"),
    re.compile(r"\s*,\s*"),
    re.compile(r"\s*\t\s*"),
    re.compile(r"\s{2,}"),
)
_NAME = re.compile(r"[A-Za-z_][\w ./()%#-]{0,40}")
_HAS_VALUE = re.compile(r"(?:^|[\s.])[-+]?\d")  # `step 12` and `3.1GiB` are no names
_NAMES_A_TABLE = re.compile(r"(?i)(^|[\s/_|,])(step|iter|iteration|epoch|update)s?($|[\s/_|,])")
_VALUE = re.compile(
    r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?[kKMG%]?(?: ?[A-Za-z%/]{1,8})?|-?(?:nan|inf)", re.I
)
_EMPTY = ("", "-", "--", "n/a", "No log", "None")
_OUTER = " |\u2502\u2503\t"
_MIN_COLUMNS = 2

MAY_NAME = re.compile(rb"(?i)\b(?:step|iter|iteration|epoch|update)s?\b")
"""A line without a digit that may name columns."""


@dataclass
class Table:
    """The columns that were named last, by process."""

    _names: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def names(self, source: str, text: str) -> bool:
        """Whether the line names columns; they hold until others are named."""
        if not _NAMES_A_TABLE.search(text):
            return False
        for index in range(len(_SEPARATORS)):
            cells = _cells(text, index)
            if len(cells) >= _MIN_COLUMNS and all(map(_is_name, cells)):
                self._names[source] = (index, cells)
                return True
        return False

    def row(self, source: str, text: str) -> tuple[Printed, ...] | None:
        """The numbers of a row under their columns' names; None for a line that is none."""
        index, names = self._names.get(source, (0, []))
        if not names:
            return None
        cells = _cells(text, index)
        if len(cells) != len(names):
            return None
        if not all(cell in _EMPTY or _VALUE.fullmatch(cell) for cell in cells):
            return None
        found: list[Printed] = []
        for name, cell in zip(names, cells, strict=True):
            if cell not in _EMPTY:
                found += numbers_of(f"{name}: {cell}")
        return tuple(found)


def _is_name(cell: str) -> bool:
    return bool(_NAME.fullmatch(cell)) and not _HAS_VALUE.search(cell)


def _cells(text: str, index: int) -> list[str]:
    text = text.strip()
    if index == 0:
        if not re.search(r"[|\u2502\u2503]", text):
            return []
        text = text.strip(_OUTER)
    return _SEPARATORS[index].split(text)
