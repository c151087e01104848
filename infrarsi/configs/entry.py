"""One value of a configuration file, and how its key is written."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.contract import Scalar
from infrarsi.errors import UserError

Key = tuple[str, ...]
"""The way to a value: names of mappings, and digits for the items of a list."""

_SEGMENT = re.compile(r'"(?:[^"\\]|\\.)*"|[^."]+')


@dataclass(frozen=True)
class Entry:
    """One value: None is null. `why` says why it cannot be known, and is "" where it is.

    `raw` is the value as written; `line` counts from 1 and is that of its key.
    """

    key: Key
    value: Scalar | None
    line: int
    raw: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """The key as one text."""
        return join_key(self.key)


def join_key(key: Sequence[str]) -> str:
    """`optimizer.lr`; a name with a dot or a quote in it is quoted."""
    return ".".join(part if _SEGMENT.fullmatch(part) else json.dumps(part) for part in key)


def split_key(text: str) -> Key:
    """The inverse of `join_key`; raises UserError for a text that is no key."""
    parts: list[str] = []
    at = 0
    while at <= len(text):
        match = _SEGMENT.match(text, at)
        end = match.end() if match is not None else at
        if match is None or (end < len(text) and text[end] != "."):
            raise UserError(
                f"a key must be names joined by dots, but got {text!r}",
                fix='quote a name with a dot in it, as in `model."layer.0".size`',
            )
        part = match.group()
        parts.append(json.loads(part) if part.startswith('"') else part)
        at = end + 1
    return tuple(parts)
