"""A configuration text as a tree whose parts know where they are written."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from infrarsi.configs.entry import Entry, Key
from infrarsi.contract import Scalar
from infrarsi.errors import UserError

MAX_ENTRIES = 20_000
MAX_DEPTH = 40


@dataclass
class Node:
    """A mapping, sequence or scalar from `start` to `end`; `items` have their key's start and line.

    `is_flow`: written in brackets. `is_inherited`: written elsewhere (an alias, a merge), so that
    its parts cannot be changed here.
    """

    kind: Literal["mapping", "sequence", "scalar"]
    start: int
    end: int
    line: int
    value: Scalar | None = None
    why: str = ""
    items: list["Item"] = field(default_factory=list)
    is_flow: bool = True
    is_inherited: bool = False

    def child(self, name: str) -> "Item | None":
        """The last item of that name; its own before an inherited one."""
        found = [item for item in self.items if item.name == name]
        own = [item for item in found if not item.is_inherited]
        return (own or found)[-1] if found else None


@dataclass
class Item:
    """One entry of a mapping or sequence."""

    name: str
    start: int
    line: int
    node: Node
    is_inherited: bool = False


def entries(root: Node | None, text: str, path: str) -> tuple[Entry, ...]:
    """Every scalar below a node; raises UserError for a text that unfolds without end."""
    found: list[Entry] = []
    if root is not None:
        for entry in _walk(root, (), text):
            found.append(entry)
            if len(found) > MAX_ENTRIES:
                raise UserError(
                    f"the file has more than {MAX_ENTRIES} values",
                    where=path,
                    fix="name a smaller configuration file",
                )
    return tuple(found)


def _walk(node: Node, key: Key, text: str) -> Iterator[Entry]:
    if len(key) > MAX_DEPTH:
        yield Entry(key, None, node.line, why="it is nested too deeply, or in itself")
        return
    for item in node.items:
        if node.child(item.name) is not item:
            continue
        path = (*key, item.name)
        inner = item.node
        if inner.kind == "scalar":
            raw = text[inner.start : inner.end]
            yield Entry(path, inner.value, item.line, raw, inner.why)
        else:
            yield from _walk(inner, path, text)


def find(root: Node | None, key: Key) -> tuple[Node | None, Item | None, int]:
    """(the deepest container on the way, the item at the key or None, keys that lead to it)."""
    holder, depth = root, 0
    for name in key:
        item = None if holder is None else holder.child(name)
        if item is None or holder is None:
            return holder, None, depth
        if depth == len(key) - 1:
            return holder, item, depth
        if item.node.kind == "scalar":
            return holder, item, depth
        holder, depth = item.node, depth + 1
    return holder, None, depth
