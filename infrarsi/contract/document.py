"""A YAML text as data and as nodes, so that every value has a line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infrarsi.errors import UserError

PathKey = str | int | float | bool | None


@dataclass(frozen=True)
class Document:
    """One YAML document: `data` in plain Python types, and the line of each part of it."""

    data: Any
    _root: Any

    @classmethod
    def parse(cls, text: str, *, where: str) -> "Document":
        """Parse `text`; raises UserError with the line on what is not one YAML document."""
        with _told(where):
            yaml = _yaml()
            return cls(yaml.load(text), yaml.compose(text))

    @classmethod
    def parse_all(cls, text: str, *, where: str) -> "tuple[Document, ...]":
        """The documents of a file that may hold several, empty ones left out."""
        return tuple(found for found in _documents(text, where, cls) if found.data is not None)

    def line(self, path: Sequence[PathKey]) -> int:
        """The line of the key (or list item) at `path`; of its nearest ancestor if it is absent."""
        node, line = self._root, 1
        for key in path:
            step = _child(node, key)
            if step is None:
                return line
            line, node = step
        return line

    def duplicates(self) -> Iterator[tuple[int, int, str]]:
        """Every key that its mapping has twice: (line, line of the first, key)."""
        pending, seen = [self._root], set()
        while pending:
            node = pending.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if node.id == "mapping":
                first: dict[str, int] = {}
                for key, value in node.value:
                    line = key.start_mark.line + 1
                    if key.id == "scalar" and key.value in first and key.value != "<<":
                        yield line, first[key.value], key.value
                    elif key.id == "scalar":
                        first[key.value] = line
                    pending.append(value)
            elif node.id == "sequence":
                pending.extend(node.value)


def _documents(text: str, where: str, kind: type[Document]) -> Iterator[Document]:
    with _told(where):
        both = zip(_yaml().load_all(text), _yaml().compose_all(text), strict=True)
        yield from [kind(data, node) for data, node in both]


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # `duplicates` reports them, each with both lines
    return yaml


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Turns what the parser raises into a UserError with the line."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if "stream end" in str(error.problem) and error.context_mark:
            mark = error.context_mark  # what was opened says more than where the file ends
        line = mark.line + 1 if mark else 1
        raise UserError(
            f"this is not YAML: {_sentence(error)}",
            where=f"{where}:{line}",
            fix="correct the line, or the one above it",
        ) from error
    except (YAMLError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(
            f"this is not YAML: {first}", where=where, fix="save it as plain UTF-8 text"
        ) from error


def _child(node: Any, key: PathKey) -> tuple[int, Any] | None:
    if node is None:
        return None
    if node.id == "mapping":
        for name, value in reversed(node.value):
            if name.id == "scalar" and name.value.lower() == str(key).lower():
                return name.start_mark.line + 1, value
    if node.id == "sequence" and isinstance(key, int) and key < len(node.value):
        item = node.value[key]
        return item.start_mark.line + 1, item
    return None


def _sentence(error: Any) -> str:
    parts = [str(part) for part in (error.context, error.problem) if part]
    return ", ".join(parts) or type(error).__name__
