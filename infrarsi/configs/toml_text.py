"""TOML through tomlkit, which keeps comments and order; lines are found by marking the values."""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from typing import Any

from infrarsi.configs.entry import Entry, Key, join_key
from infrarsi.contract import Scalar
from infrarsi.errors import UserError

_MARK = "@@value-{}@@"


class TomlText:
    """One TOML text. Raises UserError with the line if it is none."""

    def __init__(self, text: str, path: str) -> None:
        import tomlkit
        from tomlkit.exceptions import ParseError, TOMLKitError

        self.text, self.path = text, path
        try:
            self._document = tomlkit.parse(text)
        except ParseError as error:
            raise self._wrong(f"this is not TOML: {error}", error.line) from error
        except TOMLKitError as error:
            raise self._wrong(f"this is not TOML: {error}", 1) from error

    @property
    def notes(self) -> tuple[str, ...]:
        """TOML has no includes."""
        return ()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every value, with the line where it is written."""
        found = list(_leaves(self._document, ()))
        lines = self._lines([key for key, _ in found])
        return tuple(
            Entry(key, _plain(value), lines[key], _written(value), _why(value))
            for key, value in found
        )

    def state(self) -> Mapping[Key, object]:
        """Every value by its key."""
        return {entry.key: entry.raw for entry in self.entries}

    def with_value(self, key: Key, value: Scalar) -> str:
        """The text with one value set; tables that are not there are added."""
        import tomlkit

        document = tomlkit.parse(self.text)
        holder: Any = document
        for name in key[:-1]:
            if isinstance(holder, MutableMapping) and name not in holder:
                holder[name] = tomlkit.table()
            holder = self._step(holder, name, key)
        last: Any = key[-1]
        if isinstance(holder, list):
            last = self._index(holder, last, key)
        elif not isinstance(holder, MutableMapping):
            raise self._refused(key, "its parent is no table")
        if isinstance(holder, list) or last in holder:
            now = holder[last]
            if isinstance(now, Mapping | list):
                raise self._refused(key, "it is a table or a list, not one value")
        holder[last] = value
        return tomlkit.dumps(document)

    def without(self, key: Key) -> str:
        """The text without one key."""
        import tomlkit

        document = tomlkit.parse(self.text)
        holder: Any = document
        for name in key[:-1]:
            holder = self._step(holder, name, key)
        if not isinstance(holder, MutableMapping) or key[-1] not in holder:
            raise self._refused(key, "it is no key of a table")
        del holder[key[-1]]
        return tomlkit.dumps(document)

    def _step(self, holder: Any, name: str, key: Key) -> Any:
        if isinstance(holder, list):
            return holder[self._index(holder, name, key)]
        if not isinstance(holder, Mapping) or name not in holder:
            raise self._refused(key, f"there is no `{name}`")
        return holder[name]

    def _index(self, holder: list[Any], name: str, key: Key) -> int:
        if not name.isdigit() or int(name) >= len(holder):
            raise self._refused(key, f"the list has {len(holder)} items")
        return int(name)

    def _lines(self, keys: list[Key]) -> dict[Key, int]:
        """Every value is replaced by a mark of its own in a copy, whose lines are then searched."""
        import tomlkit

        marked = tomlkit.parse(self.text)
        for number, key in enumerate(keys):
            holder: Any = marked
            for name in key[:-1]:
                holder = holder[int(name) if isinstance(holder, list) else name]
            at: Any = int(key[-1]) if isinstance(holder, list) else key[-1]
            breaks = _written(holder[at]).count("\n")
            mark = _MARK.format(number) + "\n" * breaks
            holder[at] = tomlkit.string(mark, multiline=breaks > 0)
        text = tomlkit.dumps(marked)
        return {
            key: text.count("\n", 0, max(0, text.find(_MARK.format(number)))) + 1
            for number, key in enumerate(keys)
        }

    def _wrong(self, what: str, line: int) -> UserError:
        return UserError(what, where=f"{self.path}:{line}", fix="correct the line")

    def _refused(self, key: Key, why: str) -> UserError:
        now = next((entry.line for entry in self.entries if entry.key == key), 1)
        return UserError(
            f"`{join_key(key)}` cannot be changed: {why}",
            where=f"{self.path}:{now}",
            fix="correct the key",
        )


def _leaves(holder: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    pairs: Any = holder.items() if isinstance(holder, Mapping) else enumerate(holder)
    for name, value in pairs:
        path = (*key, str(name))
        if isinstance(value, Mapping | list):
            yield from _leaves(value, path)
        else:
            yield path, value


def _written(item: Any) -> str:
    """A value as written; tomlkit gives truth values as Python's own."""
    return str(item).lower() if isinstance(item, bool) else str(item.as_string())


def _plain(item: Any) -> Scalar | None:
    value = item if isinstance(item, bool) else item.unwrap()
    return value if isinstance(value, Scalar) else None


def _why(item: Any) -> str:
    if _plain(item) is not None:
        return ""
    return f"it is a {type(item.unwrap()).__name__}"
