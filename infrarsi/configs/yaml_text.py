"""YAML with the place of every value: anchors and merges followed, one value edited at a time.

The text is composed by ruamel.yaml and cut at the marks of its nodes. A dump of the whole document
would keep comments and order too, but would lay out anew what nobody asked to change.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from infrarsi.configs.entry import Entry, Key, join_key
from infrarsi.configs.json_text import remove_item
from infrarsi.configs.nodes import Item, Node, entries, find
from infrarsi.configs.yaml_scalars import read_plain, written
from infrarsi.contract import Scalar
from infrarsi.errors import UserError

_ALIAS = re.compile(r"\s*:?\s*(\*[^\s,\]}]+)")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_MAX_NODES = 50_000


class YamlText:
    """One YAML document. Raises UserError with the line if the text is none, or several."""

    def __init__(self, text: str, path: str) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        self.text, self.path = text, path
        yaml = YAML(typ="safe", pure=True)
        yaml.allow_duplicate_keys = True
        try:
            composed = yaml.compose(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(str(part) for part in (error.context, error.problem) if part)
            raise self._wrong(what, mark.line + 1 if mark else 1) from error
        except (YAMLError, ValueError) as error:
            raise self._wrong(str(error).strip().splitlines()[0], 1) from error
        except RecursionError as error:
            raise self._wrong("it is nested too deeply", 1) from error
        self._notes: list[str] = []
        self._count = 0
        self.root = None if composed is None else self._node(composed, 0)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every value, those that come by an alias or a merge too."""
        return entries(self.root, self.text, self.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """Values that a tag of the program's own makes, such as `!include`."""
        return tuple(dict.fromkeys(self._notes))

    def state(self) -> Mapping[Key, object]:
        """Every value by its key; one with an anchor on it counts as the value alone."""
        return {entry.key: (entry.value, entry.why) for entry in self.entries}

    def with_value(self, key: Key, value: Scalar) -> str:
        """The text with one value set."""
        holder, item, depth = find(self.root, key)
        if self.root is None or (self.root.kind == "scalar" and self.root.value is None):
            return self._begun(key, value)
        if holder is None or holder.is_inherited:
            raise self._refused(key, "it comes from an anchor that others use too", item)
        is_there = item is not None and depth == len(key) - 1
        if item is not None and is_there and not item.is_inherited:
            return self._at(item, key, value)
        if item is not None and not is_there:
            if item.node.value is not None or item.node.why or item.is_inherited:
                raise self._refused(key, f"`{join_key(key[: depth + 1])}` is no mapping", item)
            return self._filled(holder, item, key[depth + 1 :], value)
        if holder.kind != "mapping":
            raise self._refused(key, "its parent is no mapping", item)
        return self._added(holder, key[depth:], value)

    def without(self, key: Key) -> str:
        """The text without one key and the lines that only it is on."""
        holder, item, depth = find(self.root, key)
        if holder is None or item is None or depth != len(key) - 1 or holder.kind != "mapping":
            raise self._refused(key, "it is no key of a mapping", item)
        if item.is_inherited or holder.is_inherited:
            raise self._refused(key, "it comes from an anchor", item)
        if holder.is_flow:
            return remove_item(self.text, holder, item)
        if len(holder.items) == 1:
            raise self._refused(key, "it is the only key of its mapping", item)
        start, end = self._line_start(item.start), self._line_end(self._end(item))
        if self.text[start : item.start].strip():  # behind the dash of a list
            own = [i for i in holder.items if not i.is_inherited]
            following = [i for i in own if i.start > item.start]
            if not following:
                raise self._refused(key, "it is the only key on the dash of a list", item)
            start, end = item.start, following[0].start
        return self.text[:start] + self.text[end:]

    def _node(self, node: Any, depth: int) -> Node:
        self._count += 1
        if self._count > _MAX_NODES or depth > 200:
            raise self._wrong("its anchors unfold without end", node.start_mark.line + 1)
        start, end, line = node.start_mark.index, node.end_mark.index, node.start_mark.line + 1
        tag = re.match(r"(?:&\S+\s+)?(!\S*)", self.text[start:end])
        if node.id == "scalar":
            return self._scalar(node, start, end, line, tag.group(1) if tag else "")
        made = Node("mapping" if node.id == "mapping" else "sequence", start, end, line)
        made.is_flow = bool(node.flow_style)
        if tag is not None and not tag.group(1).startswith("!!"):
            self._note(tag.group(1), line)
        if node.id == "sequence":
            for number, inner in enumerate(node.value):
                item = self._child(inner, start, depth)
                at = max(inner.start_mark.index, start)
                where = inner.start_mark.line + 1 if at == inner.start_mark.index else line
                made.items.append(Item(str(number), at, where, item))
            return made
        self._pairs(made, node, depth)
        return made

    def _pairs(self, made: Node, node: Any, depth: int) -> None:
        names: dict[str, int] = {}
        merged: list[Item] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                continue
            inner = self._child(value, key.end_mark.index, depth)
            if key.value == "<<":
                merged += self._merged(inner)
                continue
            if key.value in names:
                raise self._wrong(
                    f"the key {key.value!r} is given twice, first in line {names[key.value]}", line
                )
            names[key.value] = line
            made.items.append(Item(key.value, key.start_mark.index, line, inner))
        taken = set(names)
        for item in merged:
            if item.name not in taken:
                taken.add(item.name)
                made.items.append(item)

    def _merged(self, source: Node) -> list[Item]:
        """What `<<` brings in; of several mappings the first one counts."""
        sources = [source] if source.kind == "mapping" else [item.node for item in source.items]
        found = []
        for each in sources:
            for item in each.items:
                inner = _inherited(item.node)
                found.append(Item(item.name, item.start, item.line, inner, is_inherited=True))
        return found

    def _child(self, node: Any, after: int, depth: int) -> Node:
        """A value; one that is written before its own key is there by an alias."""
        made = self._node(node, depth + 1)
        if node.start_mark.index >= after:
            return made
        alias = _ALIAS.match(self.text, after)
        made = _inherited(made)
        if alias is not None:
            made.start, made.end = alias.span(1)
        elif made.kind == "scalar":
            made.why = made.why or "it is an alias"
        return made

    def _scalar(self, node: Any, start: int, end: int, line: int, tag: str) -> Node:
        if node.style in ("|", ">"):
            return Node("scalar", start, end, line, node.value, why=tag)
        if tag and tag != "!!str":
            self._note(tag, line)
            return Node("scalar", start, end, line, None, f"the tag `{tag}` makes it")
        if node.style in ("'", '"') or tag:
            return Node("scalar", start, end, line, node.value)
        value, why = read_plain(node.value)
        return Node("scalar", start, end, line, value, why)

    def _note(self, tag: str, line: int) -> None:
        if tag.startswith("!"):
            self._notes.append(
                f"{self.path}:{line}: `{tag}` is a tag of the program's own; what it brings in is "
                "not read"
            )

    def _at(self, item: Item, key: Key, value: Scalar) -> str:
        node = item.node
        if node.kind != "scalar":
            raise self._refused(key, f"it is a {node.kind}, not one value", item)
        raw = self.text[node.start : node.end]
        if raw.startswith("*"):
            return self._replaced(node.start, node.end, written(value))
        properties = _PROPERTIES.match(raw)
        anchor = properties.group() if properties is not None else ""
        if "!" in anchor:
            raise self._refused(key, f"the tag `{anchor.strip()}` decides what it means", item)
        body = raw[len(anchor) :]
        if body[:1] in ("|", ">"):
            raise self._refused(key, "it is a text of several lines", item)
        if not raw:  # an empty value: a blank belongs behind the colon
            at = self.text.index(":", item.start + len(item.name)) + 1
            return self._replaced(at, at, " " + written(value))
        return self._replaced(node.start, node.end, anchor + written(value, body))

    def _begun(self, key: Key, value: Scalar) -> str:
        text = self.text
        if text.strip() and not text.endswith("\n"):
            text += "\n"
        return text + self._nested(key, value, "")

    def _filled(self, holder: Node, item: Item, rest: Key, value: Scalar) -> str:
        """A key whose value is empty becomes a mapping."""
        if holder.is_flow or self.text[item.node.start : item.node.end]:
            raise self._refused((item.name, *rest), f"`{item.name}` is no mapping", item)
        indent = " " * (self._column(item.start) + 2)
        at = self._line_end(item.node.start)
        before = "" if self.text[:at].endswith("\n") else "\n"
        return self._replaced(at, at, before + self._nested(rest, value, indent))

    def _added(self, holder: Node, rest: Key, value: Scalar) -> str:
        own = [item for item in holder.items if not item.is_inherited]
        if holder.is_flow:
            pair = f"{_name(rest[-1])}: {written(value)}"
            for name in reversed(rest[:-1]):
                pair = f"{_name(name)}: {{{pair}}}"
            if not own:
                return self._replaced(holder.start, holder.end, f"{{{pair}}}")
            end = self._end(own[-1])
            return self._replaced(end, end, f", {pair}")
        if not own:
            raise self._refused(rest, "its mapping has only what an anchor brings in")
        indent = " " * self._column(own[0].start)
        at = self._line_end(self._end(own[-1]))
        before = "" if self.text[:at].endswith("\n") else "\n"
        return self._replaced(at, at, before + self._nested(rest, value, indent))

    def _nested(self, key: Key, value: Scalar, indent: str) -> str:
        lines = []
        for name in key[:-1]:
            lines.append(f"{indent}{_name(name)}:")
            indent += "  "
        lines.append(f"{indent}{_name(key[-1])}: {written(value)}")
        return "\n".join(lines) + "\n"

    def _end(self, item: Item) -> int:
        """Where an item's own text ends; a block's mark is only where the next thing begins."""
        node = item.node
        if node.kind == "scalar" or node.is_flow or self.text[node.start : node.start + 1] == "*":
            return node.end
        own = [inner for inner in node.items if not inner.is_inherited]
        return max((self._end(inner) for inner in own), default=node.start)

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        if at and self.text[at - 1] == "\n":  # a text of several lines ends with its line
            return at
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end + 1

    def _column(self, at: int) -> int:
        return at - self._line_start(at)

    def _replaced(self, start: int, end: int, text: str) -> str:
        if "\r\n" in self.text:
            text = text.replace("\n", "\r\n")
        return self.text[:start] + text + self.text[end:]

    def _refused(self, key: Key, why: str, item: Item | None = None) -> UserError:
        return UserError(
            f"`{join_key(key)}` cannot be changed: {why}",
            where=f"{self.path}:{item.line if item is not None else 1}",
            fix="write the value out at a key of its own",
        )

    def _wrong(self, what: str, line: int) -> UserError:
        return UserError(
            f"this is not YAML that can be read: {what}",
            where=f"{self.path}:{line}",
            fix="correct the line, or the one above it",
        )


def _inherited(node: Node) -> Node:
    """The same values, as parts that are written elsewhere."""
    items = [Item(i.name, i.start, i.line, _inherited(i.node), True) for i in node.items]
    made = Node(node.kind, node.start, node.end, node.line, node.value, node.why, items)
    made.is_inherited = True
    return made


def _name(name: str) -> str:
    return written(name)
