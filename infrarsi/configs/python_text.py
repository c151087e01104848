"""Python as a configuration file: names at the top, dictionaries, defaults of classes.

`batch_size = 12` is the key `batch_size`; `train = dict(lr=1e-3)` and `train = {"lr": 1e-3}` are
`train.lr`; a class `Config` with `lr: float = 1e-3` is `Config.lr`. Nothing is run.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from infrarsi.configs.constants import UNKNOWN, constant, dotted
from infrarsi.configs.entry import Entry, Key, join_key
from infrarsi.contract import Scalar
from infrarsi.errors import UserError

_BASES = ("_base_", "read_base")


class PythonText:
    """One Python module. Raises UserError with the line if it does not parse."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            raise UserError(
                f"this is not Python: {getattr(error, 'msg', error)}",
                where=f"{path}:{line}",
                fix="correct the line",
            ) from error
        self._values: dict[Key, ast.expr] = {}
        self._doubtful = self._names_set_again()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every value that is written at the top of the module or in a class of it."""
        return tuple(self._entries())

    @property
    def notes(self) -> tuple[str, ...]:
        """Other modules that this one is built on."""
        found = []
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and dotted(node.targets[0]) in _BASES:
                found.append(
                    f"{self.path}:{node.lineno}: `{dotted(node.targets[0])}` takes values from "
                    "other files; they are not read here"
                )
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                found.append(
                    f"{self.path}:{node.lineno}: `from {node.module} import *` takes values from "
                    "another file; they are not read here"
                )
        return tuple(found)

    def state(self) -> Mapping[Key, object]:
        """Every value as written: what is computed from the edited one follows it."""
        return {entry.key: (entry.raw, entry.why != "") for entry in self.entries}

    def with_value(self, key: Key, value: Scalar) -> str:
        """The text with the expression of one value replaced by a literal."""
        now = next((entry for entry in self.entries if entry.key == key), None)
        if now is None:
            raise self._refused(key, 1, "it is not written at the top of the file")
        if key[0] in self._doubtful:
            raise self._refused(key, now.line, self._doubtful[key[0]])
        node = self._values[key]
        start, end = self._offset(node, 0), self._offset(node, 1)
        data = self.text.encode()
        return (data[:start] + repr(value).encode() + data[end:]).decode()

    def without(self, key: Key) -> str:
        """Never: a name that is gone is an error in the program, not its default."""
        now = next((entry.line for entry in self.entries if entry.key == key), 1)
        raise self._refused(key, now, "a name of a Python file cannot be left out")

    def _offset(self, node: ast.expr, end: int) -> int:
        line = (node.end_lineno or node.lineno) if end else node.lineno
        column = (node.end_col_offset or 0) if end else node.col_offset
        lines = self.text.encode().splitlines(keepends=True)
        return sum(len(each) for each in lines[: line - 1]) + column

    def _entries(self) -> Iterator[Entry]:
        known: dict[str, Any] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    yield from self._assigned(item, (node.name,), known)
            else:
                yield from self._assigned(node, (), known)

    def _assigned(self, node: ast.stmt, above: Key, known: dict[str, Any]) -> Iterator[Entry]:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            return
        if not isinstance(target, ast.Name):
            return
        for entry in self._value((*above, target.id), value, node.lineno, known):
            if not above and entry.key[0] in self._doubtful:
                entry = Entry(entry.key, None, entry.line, entry.raw, self._doubtful[entry.key[0]])
            yield entry
        if not above:
            is_certain = target.id not in self._doubtful
            known[target.id] = constant(value, known) if is_certain else UNKNOWN

    def _value(
        self, key: Key, node: ast.expr, line: int, known: Mapping[str, Any]
    ) -> Iterator[Entry]:
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "field":
            inner = next((k.value for k in node.keywords if k.arg == "default"), None)
            if inner is not None:
                yield from self._value(key, inner, inner.lineno, known)
            return
        pairs = _pairs(node)
        if pairs is not None:
            for name, inner in pairs:
                yield from self._value((*key, name), inner, inner.lineno, known)
            return
        if isinstance(node, ast.List | ast.Tuple | ast.Lambda):
            return
        value = constant(node, known)
        self._values[key] = node
        raw = ast.get_source_segment(self.text, node) or ""
        if value is None or isinstance(value, Scalar):
            yield Entry(key, value, line, raw)
        elif value is UNKNOWN:
            yield Entry(key, None, line, raw, f"it is computed: `{raw.splitlines()[0]}`")

    def _names_set_again(self) -> dict[str, str]:
        """Names that more than one statement sets, or one that a condition decides on."""
        lines: dict[str, list[int]] = {}
        doubtful: dict[str, str] = {}
        for node in self.tree.body:
            is_plain = isinstance(node, ast.Assign | ast.AnnAssign)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    lines.setdefault(inner.id, []).append(inner.lineno)
                    if not is_plain:
                        doubtful[inner.id] = f"line {inner.lineno} may set it again"
        for name, places in lines.items():
            if len(places) > 1:
                doubtful[name] = f"lines {' and '.join(map(str, places))} set it"
        return doubtful

    def _refused(self, key: Key, line: int, why: str) -> UserError:
        return UserError(
            f"`{join_key(key)}` cannot be changed: {why}",
            where=f"{self.path}:{line}",
            fix="write the value out once, at the top of the file",
        )


def _pairs(node: ast.expr) -> list[tuple[str, ast.expr]] | None:
    """The parts of a dictionary, or of a call with keywords alone, such as `dict(lr=1)`."""
    if isinstance(node, ast.Dict):
        return [
            (key.value, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        ]
    names = ("dict", "ConfigDict", "SimpleNamespace", "Namespace", "EasyDict", "AttrDict")
    if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in names:
        return [(k.arg, k.value) for k in node.keywords if k.arg is not None]
    return None
