"""What is wrong with an infrarsi.yaml, each mistake with its line, in the words of the house."""

import difflib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from infrarsi.contract.document import Document, PathKey
from infrarsi.contract.project import Knob, Project, ValueChange
from infrarsi.errors import UserError

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "a text that is not empty",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_EXAMPLES = {
    "name": "add `name:` and a word for this job",
    "launch": 'add `launch: {command: "bash train.sh"}`',
    "launch.command": 'add `command: "bash train.sh"` under `launch`',
}
_CONTAINERS = ("list_type", "dict_type", "model_type", "literal_error")
_MANY = 8  # more mistakes than this are counted, not listed
_SECTIONS = ("knobs", "constraints", "sinks", "editable", "frozen")
_WHERE_THE_SAME_NAME_MAY_STAND = 3


@dataclass(frozen=True, order=True)
class Mistake:
    """One thing that is wrong, at a line of the file."""

    line: int
    what: str
    fix: str = ""


def all_together(mistakes: Sequence[Mistake], path: Path) -> UserError:
    """One error that lists all mistakes of a file, the first one first."""
    first, *others = sorted(mistakes, key=lambda mistake: mistake.line)
    lines = [first.what]
    for mistake in others[:_MANY]:
        hint = f" ({mistake.fix})" if mistake.fix else ""
        lines.append(f"{path}:{mistake.line}: {mistake.what}{hint}")
    if len(others) > _MANY:
        lines.append(f"and {len(others) - _MANY} more")
    return UserError("\n".join(lines), where=f"{path}:{first.line}", fix=first.fix)


def mistakes_of(
    error: ValidationError, document: Document, model: type[BaseModel] = Project
) -> list[Mistake]:
    """Every mistake that pydantic found, one for each place, in the order of the file.

    `model` is what the whole file was read as.
    """
    groups: dict[tuple[PathKey, ...], list[Any]] = {}
    for item in error.errors(include_url=False):
        groups.setdefault(_path(item, document.data), []).append(item)
    for path in list(groups):
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in groups)
        if deeper:  # a union: the branch that does not even have the right shape says nothing
            groups[path] = [item for item in groups[path] if item["type"] not in _CONTAINERS]
    found = [_mistake(path, items, document, model) for path, items in groups.items() if items]
    return sorted(found, key=lambda mistake: mistake.line)


def dotted(path: Sequence[PathKey], data: Any) -> str:
    """`knobs[micro_batch].values`: a path as a person reads it."""
    text = ""
    for key in path:
        is_item = isinstance(data, list) and isinstance(key, int)
        data = _get(data, key)
        if is_item:
            name = data.get("name") if isinstance(data, dict) else None
            text += f"[{name if isinstance(name, str) else key}]"
        else:
            text += f".{key}" if text else str(key)
    return text


def _path(item: Mapping[str, Any], data: Any) -> tuple[PathKey, ...]:
    """The location without the names of union branches that pydantic puts in."""
    path: list[PathKey] = []
    *parents, last = item["loc"] or (None,)
    for key in parents:
        if _has(data, key):
            path.append(key)
            data = _get(data, key)
    if item["loc"] and (_has(data, last) or item["type"] == "missing"):
        path.append(last)
    return tuple(path)


def _mistake(
    path: tuple[PathKey, ...], items: list[Any], document: Document, model: type[BaseModel]
) -> Mistake:
    first = items[0]
    line = document.line(path)
    name = dotted(path, document.data)
    if first["type"] == "extra_forbidden":
        return _unknown(path, line, name, model)
    if first["type"] == "missing":
        return Mistake(line, f"`{name}` is missing", _EXAMPLES.get(name, f"add `{path[-1]}`"))
    if first["type"] in ("value_error", "assertion_error"):
        return _refused(path, str(first["ctx"]["error"]), document)
    wanted = _wanted(items)
    value = first["input"]
    found = "is empty" if value is None else f"is {reprlib.repr(value)}"
    return Mistake(line, f"`{name}` {found}, but must be {wanted}", f"write {wanted}")


def _wanted(items: list[Any]) -> str:
    expected = list(dict.fromkeys(_expected(item) for item in items))
    if {"true or false", "a number", "text"} <= set(expected):
        return "text, a number, true or false"
    return " or ".join(expected)


def _expected(item: Mapping[str, Any]) -> str:
    kind = item["type"]
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {item['ctx'][key]:g}"
    if kind == "literal_error":
        return str(item["ctx"]["expected"])
    return _EXPECTED.get(kind, str(item["msg"]).lower())


def _unknown(path: tuple[PathKey, ...], line: int, name: str, model: type[BaseModel]) -> Mistake:
    known = _known_keys(path[:-1], model)
    key = str(path[-1])
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    what = f"`{name}` is not a key of this file; known here are {', '.join(known)}"
    if near:
        return Mistake(line, what, f"rename `{key}` to `{near[0]}`")
    homes = [home for home, keys in _all_keys(model) if key in keys]
    if 0 < len(homes) <= _WHERE_THE_SAME_NAME_MAY_STAND:
        return Mistake(line, what, f"move it under `{homes[0] or 'the top level'}`")
    return Mistake(line, what, "remove it")


def _known_keys(path: Sequence[PathKey], of: type[BaseModel]) -> list[str]:
    if path[:1] == ("knobs",):
        return _fields(Knob if len(path) == 2 else ValueChange)
    model: Any = of
    for key in path:
        model = _nested(model, str(key)) or model
    return _fields(model)


def _fields(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _nested(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    field = model.model_fields.get(key)
    for kind in (field.annotation, *get_args(field.annotation)) if field else ():
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _all_keys(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, list[str]]]:
    yield path, _fields(model)
    for key in model.model_fields:
        nested = _nested(model, key)
        if nested is not None:
            yield from _all_keys(nested, f"{path}.{key}" if path else key)


def _refused(path: tuple[PathKey, ...], message: str, document: Document) -> Mistake:
    """A rule of a validator: its line is that of the value or key which the message quotes."""
    if path:
        name = dotted(path, document.data)
        mentioned = [key for key in re.findall(r"`(\w+)`", message) if _has_at(document, path, key)]
        line = document.line([*path, *mentioned[:1]])
        return Mistake(line, f"`{name}`: {message}", "correct one of the two")
    quoted = re.search(r"'([^']*)'|\"([^\"]*)\"", message)
    value = next((text for text in quoted.groups() if text is not None), "") if quoted else ""
    return Mistake(_last_line(document, value), message, "correct one of the two")


def _last_line(document: Document, value: str) -> int:
    """The last line in the lists of the contract where `value` is written."""
    lines = [1]
    for section in _SECTIONS:
        content = _get(document.data, section)
        if isinstance(content, list):
            for index, item in enumerate(content):
                named = item.get("name") if isinstance(item, dict) else item
                if named == value:
                    lines.append(document.line([section, index]))
        elif isinstance(content, dict) and value in content:
            lines.append(document.line([section, value]))
    return max(lines)


def _has_at(document: Document, path: Sequence[PathKey], key: str) -> bool:
    data = document.data
    for step in path:
        data = _get(data, step)
    return _has(data, key)


def _has(data: Any, key: Any) -> bool:
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


def _get(data: Any, key: Any) -> Any:
    return data[key] if _has(data, key) else None
