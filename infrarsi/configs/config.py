"""A configuration file as a value: read completely, changed in one place at a time."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from infrarsi.configs.entry import Entry, Key, join_key
from infrarsi.configs.json_text import JsonText
from infrarsi.configs.python_text import PythonText
from infrarsi.configs.toml_text import TomlText
from infrarsi.configs.yaml_text import YamlText
from infrarsi.contract import Scalar
from infrarsi.errors import UserError


class ConfigText(Protocol):
    """One format. Every method raises UserError with file and line for what it cannot do."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every value of the text, in its order."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the text takes from elsewhere (includes), each with its place."""
        ...

    def with_value(self, key: Key, value: Scalar) -> str:
        """The text with one value set; a key that is not there is added."""
        ...

    def without(self, key: Key) -> str:
        """The text without one key."""
        ...

    def state(self) -> Mapping[Key, object]:
        """What must not change but at the edited key."""
        ...


_FORMATS: dict[str, Callable[[str, str], ConfigText]] = {
    ".yaml": YamlText,
    ".yml": YamlText,
    ".toml": TomlText,
    ".json": JsonText,
    ".py": PythonText,
}


@dataclass(frozen=True)
class Config:
    """A file's text and its name for messages; `path` decides the format.

    `unknown` are words of the text that stand for what cannot be known, each with the reason.
    """

    path: str
    text: str
    unknown: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _format(self) -> ConfigText:
        return _FORMATS[posixpath.splitext(self.path)[1].lower()](self.text, self.path)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every value, in the order of the file; the last one of a name counts."""
        entries = self._format.entries
        return tuple(map(self._doubted, entries)) if self.unknown else entries

    def _doubted(self, entry: Entry) -> Entry:
        """An entry without a value where its text holds an unknown word."""
        shown = (entry.raw, *entry.key, str(entry.value))
        why = next((w for word, w in self.unknown.items() if any(word in t for t in shown)), "")
        return replace(entry, value=None, why=f"it depends on `{why}`") if why else entry

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file takes from elsewhere and is therefore not read here."""
        return self._format.notes

    def entry(self, key: Key) -> Entry | None:
        """The value at a key."""
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)

    def with_value(self, key: Key, value: Scalar) -> "Config":
        """The file with one value set, all else byte for byte.

        Raises UserError with the line where that cannot be done without changing something else.
        """
        now = self.entry(key)
        if now is not None and not now.why and _same(now.value, value):
            return self
        changed = Config(self.path, self._format.with_value(key, value), self.unknown)
        after = changed.entry(key)
        if after is None or after.why or not _same(after.value, value):
            raise self._unsafe(key, "the new value would not be read back")
        self._insist_alone(changed, key)
        return changed

    def without(self, key: Key) -> "Config":
        """The file without one key; unchanged where it is not there."""
        if self.entry(key) is None:
            return self
        changed = Config(self.path, self._format.without(key), self.unknown)
        after = changed.entry(key)
        if after is not None:
            raise self._unsafe(key, f"it would still have a value, from line {after.line}")
        self._insist_alone(changed, key)
        return changed

    def _insist_alone(self, changed: "Config", key: Key) -> None:
        before, after = dict(self._format.state()), dict(changed._format.state())
        before.pop(key, None)
        after.pop(key, None)
        moved = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        if moved:
            raise self._unsafe(key, f"`{join_key(moved[0])}` would change with it")

    def _unsafe(self, key: Key, why: str) -> UserError:
        now = self.entry(key)
        return UserError(
            f"`{join_key(key)}` cannot be changed: {why}",
            where=f"{self.path}:{now.line if now is not None else 1}",
            fix="write the value out at a key of its own",
        )


def can_read(path: str) -> bool:
    """Whether a file of this name is in a format that is read."""
    return posixpath.splitext(path)[1].lower() in _FORMATS


def read(text: str, path: str, unknown: Mapping[str, str] | None = None) -> Config:
    """A file of YAML, TOML, JSON or Python; raises UserError with the line if it does not parse."""
    if not can_read(path):
        known = ", ".join(sorted(_FORMATS))
        raise UserError(
            f"`{path}` is in no format that is read; the formats are {known}", where=path
        )
    config = Config(path, text, unknown or {})
    assert config.entries is not None  # parses it
    return config


def _same(a: Scalar | None, b: Scalar | None) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool) and type(a) is type(b)
