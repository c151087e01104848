"""Packs on disk: YAML in a run directory, JSON lines of the same records everywhere else.

A file of JSON lines holds one pack or several, each begun by its `pack` record.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from infrarsi.errors import UserError
from infrarsi.experience.pack import SCHEMA, Change, Effect, Failure, Head, Pack

if TYPE_CHECKING:
    from pydantic import ValidationError

_FIX = f"write it as infrarsi/experience/README.md says of {SCHEMA!r}"
_LISTS = {"effect": "effects", "failure": "failures", "conflict": "conflicts"}
_MODELS: dict[str, type[BaseModel]] = {
    "pack": Head,
    "effect": Effect,
    "failure": Failure,
    "conflict": Failure,
    "change": Change,
}


def as_yaml(pack: Pack) -> str:
    """The pack as YAML text."""
    import io

    from ruamel.yaml import YAML

    stream = io.StringIO()
    yaml = YAML()
    yaml.width = 4096
    yaml.dump(_plain(pack), stream)
    return stream.getvalue()


def as_lines(pack: Pack) -> str:
    """The pack as JSON lines: the `pack` record, then its others, each with its `record`."""
    data = _plain(pack)
    change = data.pop("change", None)
    lists = {name: data.pop(key, []) for name, key in _LISTS.items()}
    records = [{"record": "pack", **data}]
    records += [{"record": name, **each} for name, found in lists.items() for each in found]
    if change:
        records.append({"record": "change", **change})
    return "".join(json.dumps(record) + "\n" for record in records)


def _plain(pack: Pack) -> dict[str, Any]:
    return pack.model_dump(mode="json", by_alias=True, exclude_none=True)


def load(path: Path) -> list[Pack]:
    """The packs of a file, YAML or JSON lines; raises UserError naming the place."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(
            f"the pack cannot be read: {why}", where=str(path), fix="name a file with a pack in it"
        ) from None
    return _of_lines(text, path) if text.lstrip().startswith("{") else [_of_yaml(text, path)]


def _of_yaml(text: str, path: Path) -> Pack:
    from pydantic import ValidationError
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return Pack.model_validate(YAML(typ="safe").load(text))
    except ValidationError as error:
        raise _refusal(_first(error), str(path)) from None
    except YAMLError as error:
        raise _refusal(str(error).splitlines()[0], str(path)) from None


def _of_lines(text: str, path: Path) -> list[Pack]:
    from pydantic import ValidationError

    begun: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        kind, data = _record(line, where)
        try:
            _MODELS[kind].model_validate(data)
        except ValidationError as error:
            raise _refusal(_first(error), where) from None
        if kind == "pack":
            begun.append((number, data))
        elif not begun:
            raise _refusal("the first record must be a `pack`", where)
        elif kind == "change":
            if "change" in begun[-1][1]:
                raise _refusal("a pack has one `change`", where)
            begun[-1][1]["change"] = data
        else:
            begun[-1][1].setdefault(_LISTS[kind], []).append(data)
    packs = []
    for number, data in begun:
        try:
            packs.append(Pack.model_validate(data))
        except ValidationError as error:
            raise _refusal(_first(error), f"{path}:{number}") from None
    return packs


def _record(line: str, where: str) -> tuple[str, dict[str, Any]]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise _refusal(f"this line is no JSON: {error}", where) from None
    kind = data.pop("record", None) if isinstance(data, dict) else None
    if kind not in _MODELS:
        raise _refusal(f"`record` is {kind!r}, but must be one of {', '.join(_MODELS)}", where)
    return kind, data


def _first(error: "ValidationError") -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"`{place}`: {message}" if place else message


def _refusal(what: str, where: str) -> UserError:
    return UserError(f"this is no pack: {what}", where=where, fix=_FIX)


def lines_of(packs: Sequence[Pack]) -> str:
    """Several packs as JSON lines."""
    return "".join(as_lines(pack) for pack in packs)
