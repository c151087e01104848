"""JSON with the place of every value, edited at the bytes of one value."""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]  # not in stubs
from typing import Any

from infrarsi.configs.entry import Entry, Key, join_key
from infrarsi.configs.nodes import Item, Node, entries, find
from infrarsi.contract import Scalar
from infrarsi.errors import UserError

_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|-?Infinity|NaN")


class JsonText:
    """One JSON text. Raises UserError with the line if it is none."""

    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.root = _Parser(text, path).document()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every value."""
        return entries(self.root, self.text, self.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """JSON has no includes."""
        return ()

    def state(self) -> Mapping[Key, object]:
        """Every value by its key."""
        return {entry.key: entry.raw for entry in self.entries}

    def with_value(self, key: Key, value: Scalar) -> str:
        """The text with one value set."""
        holder, item, depth = find(self.root, key)
        written = json.dumps(value)
        if item is not None and depth == len(key) - 1:
            self._insist_scalar(item, key)
            return self._replaced(item.node.start, item.node.end, written)
        if item is not None or holder is None or holder.kind != "mapping":
            raise self._refused(key, "its parent is no object")
        for name in reversed(key[depth + 1 :]):
            written = f"{{{json.dumps(name)}: {written}}}"
        return self._added(holder, f"{json.dumps(key[depth])}: {written}")

    def without(self, key: Key) -> str:
        """The text without one key and its comma."""
        holder, item, depth = find(self.root, key)
        if holder is None or item is None or depth != len(key) - 1 or holder.kind != "mapping":
            raise self._refused(key, "it is no key of an object")
        return remove_item(self.text, holder, item)

    def _added(self, holder: Node, pair: str) -> str:
        if not holder.items:
            return self._replaced(holder.start, holder.end, f"{{{pair}}}")
        last = holder.items[-1]
        before = self.text[self.text.rfind("\n", 0, last.start) + 1 : last.start]
        separator = ", " if before.strip() else ",\n" + before
        if "\n" not in self.text[holder.start : last.start]:
            separator = ", "
        return self._replaced(last.node.end, last.node.end, separator + pair)

    def _replaced(self, start: int, end: int, written: str) -> str:
        return self.text[:start] + written + self.text[end:]

    def _insist_scalar(self, item: Item, key: Key) -> None:
        if item.node.kind != "scalar":
            raise self._refused(key, f"it is a {item.node.kind}, not one value", item.line)

    def _refused(self, key: Key, why: str, line: int = 1) -> UserError:
        return UserError(
            f"`{join_key(key)}` cannot be changed: {why}",
            where=f"{self.path}:{line}",
            fix="correct the key",
        )


def remove_item(text: str, holder: Node, item: Item) -> str:
    """Take one item of a mapping in brackets out, together with the comma that it leaves."""
    at = holder.items.index(item)
    if at + 1 < len(holder.items):
        return text[: item.start] + text[holder.items[at + 1].start :]
    start = holder.items[at - 1].node.end if at else item.start
    end = item.node.end
    return text[:start] + text[end:]


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def document(self) -> Node:
        start = 1 if self.text.startswith("\ufeff") else 0
        node, at = self._value(self._blank(start), 0)
        if self._blank(at) != len(self.text):
            raise self._wrong(self._blank(at), "there is more text after the end")
        return node

    def _value(self, at: int, depth: int) -> tuple[Node, int]:
        if depth > 200:
            raise self._wrong(at, "it is nested more than 200 deep")
        first = self.text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        if first == '"':
            value, end = self._string(at)
            return Node("scalar", at, end, self._line(at), value), end
        word = _WORD.match(self.text, at)
        if word is None:
            raise self._wrong(at, "a value is expected")
        loaded: Any = json.loads(word.group())
        return Node("scalar", at, word.end(), self._line(at), loaded), word.end()

    def _object(self, at: int, depth: int) -> tuple[Node, int]:
        node = Node("mapping", at, at, self._line(at))
        at = self._blank(at + 1)
        while self.text[at : at + 1] != "}":
            if self.text[at : at + 1] != '"':
                raise self._wrong(at, "a key in double quotes is expected")
            start = at
            name, at = self._string(at)
            if node.child(name) is not None:
                raise self._wrong(start, f"the key {name!r} is given twice")
            at = self._blank(at)
            if self.text[at : at + 1] != ":":
                raise self._wrong(at, "a colon is expected")
            value, at = self._value(self._blank(at + 1), depth + 1)
            node.items.append(Item(name, start, self._line(start), value))
            at = self._next(at, "}")
        node.end = at + 1
        return node, at + 1

    def _array(self, at: int, depth: int) -> tuple[Node, int]:
        node = Node("sequence", at, at, self._line(at))
        at = self._blank(at + 1)
        while self.text[at : at + 1] != "]":
            value, end = self._value(at, depth + 1)
            node.items.append(Item(str(len(node.items)), at, value.line, value))
            at = self._next(end, "]")
        node.end = at + 1
        return node, at + 1

    def _next(self, at: int, closing: str) -> int:
        at = self._blank(at)
        if self.text[at : at + 1] == closing:
            return at
        if self.text[at : at + 1] != ",":
            raise self._wrong(at, f"a comma or `{closing}` is expected")
        at = self._blank(at + 1)
        if self.text[at : at + 1] == closing:
            raise self._wrong(at, "there is a comma before the end")
        return at

    def _string(self, at: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, at + 1, True)
        except JSONDecodeError as error:
            raise self._wrong(error.pos, error.msg) from error
        return value, end

    def _blank(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        return match.end() if match is not None else at

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def _wrong(self, at: int, what: str) -> UserError:
        return UserError(
            f"this is not JSON: {what}, but there is {self.text[at : at + 12]!r}",
            where=f"{self.path}:{self._line(at)}",
            fix="correct the line, or the one above it",
        )
