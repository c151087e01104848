"""How an infrarsi.yaml is laid out: order of the schema, short entries in one line, comments."""

import io
import re
from collections.abc import Mapping
from typing import Any

from infrarsi.contract.project import Knob, Project

Comments = Mapping[tuple[str, ...], str]
"""Where values came from, by path: `("workload", "planned_steps")`, `("knobs", "micro_batch")`."""

_ALWAYS = {
    "schema": None,
    "name": None,
    "stack": None,
    "launch": ("command", "nodes", "gpus_per_node"),
    "workload": ("planned_steps", "optimizer_steps", "ends_by"),
    "knobs": None,
    "constraints": None,
    "sinks": None,
    "allow": None,
    "editable": None,
    "frozen": None,
    "invariants": ("loss_tolerance",),
    "llm": ("backend",),
    "search": ("seed", "patches", "budget"),
}
_TITLES = {
    "launch": "The contract: fixed before the search, and nothing may widen it.",
    "llm": "Preferences: these may change between runs.",
}
_WIDTH = 100


def dump(project: Project, comments: Comments | None = None) -> str:
    """The text of an infrarsi.yaml; loading it gives an equal project."""
    comments = comments or {}
    content = _wanted(project)
    root = _map()
    for key, value in content.items():
        root[key] = _section(key, value, project, comments)
        if (key,) in comments:
            root.yaml_add_eol_comment(_plain(comments[(key,)]), key)
        if key in _TITLES:
            root.yaml_set_comment_before_after_key(key, before="\n" + _TITLES[key])
    return _aligned(_text(root), comments)


def amend(text: str, before: Project, after: Project) -> str:
    """`text` with only the values changed that differ; order and comments of the user stay."""
    yaml = _yaml()
    root = yaml.load(text)
    _change(root, _plain_data(before), _plain_data(after))
    out = io.StringIO()
    yaml.dump(root, out)
    return out.getvalue()


def _plain_data(project: Project) -> dict[str, Any]:
    return project.model_dump(mode="python", by_alias=True)


def _change(node: Any, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    for key in [key for key in before if key not in after]:
        node.pop(key, None)
    for key, value in after.items():
        old = before.get(key)
        if value == old:
            continue
        if value is None:
            node.pop(key, None)
        elif isinstance(value, dict) and isinstance(old, dict):
            if node.get(key) is None:
                node[key] = _map()
            _change(node[key], old, value)
        else:
            node[key] = value


def _wanted(project: Project) -> dict[str, Any]:
    """What is written: what always is, and whatever differs from its default."""
    full = project.model_dump(mode="python", by_alias=True)
    short = project.model_dump(mode="python", by_alias=True, exclude_defaults=True)
    wanted: dict[str, Any] = {}
    for key in full:
        always = _ALWAYS.get(key, ())
        if always is None:
            wanted[key] = full[key]
        elif isinstance(full[key], dict):
            kept = {k: v for k, v in full[key].items() if k in always or k in short.get(key, {})}
            if kept.get("resume"):
                kept["resume"] = short[key]["resume"]
            if kept:
                wanted[key] = kept
        elif key in short:
            wanted[key] = full[key]
    if "budget" in wanted.get("search", {}):
        budget = wanted["search"]["budget"]
        wanted["search"]["budget"] = {k: v for k, v in budget.items() if v is not None}
    return wanted


def _section(key: str, value: Any, project: Project, comments: Comments) -> Any:
    if key == "knobs":
        return _knobs(project.knobs, comments)
    if isinstance(value, dict) and value:
        return _mapping(key, value, comments)
    if isinstance(value, list) and key in ("editable", "constraints") and value:
        return _listed(key, value, comments)
    return _flow(value)


def _mapping(section: str, value: dict[Any, Any], comments: Comments) -> Any:
    node = _map()
    for key, item in value.items():
        node[key] = _flow(item)
        if (section, str(key)) in comments:
            node.yaml_add_eol_comment(_plain(comments[(section, str(key))]), key)
    return node


def _listed(section: str, value: list[Any], comments: Comments) -> Any:
    node = _seq()
    for index, item in enumerate(value):
        node.append(item)
        if (section, str(item)) in comments:
            node.yaml_add_eol_comment(_plain(comments[(section, str(item))]), index)
    return node


def _knobs(knobs: list[Knob], comments: Comments) -> Any:
    node = _seq()
    for index, knob in enumerate(knobs):
        node.append(_knob(knob))
        if ("knobs", knob.name) in comments:
            before = _plain(comments[("knobs", knob.name)])
            node.yaml_set_comment_before_after_key(index, before=before, indent=2)
    return node if knobs else _flow([])


def _knob(knob: Knob) -> Any:
    data = {"name": knob.name, "family": knob.family}
    if isinstance(knob.values, list):
        return _flow({**data, "at": knob.at, "values": knob.values, "reference": knob.reference})
    node = _map({**data, "reference": knob.reference})
    values = _map()
    for value, change in knob.values.items():
        values[value] = _flow(change.model_dump(exclude_defaults=True))
    node["values"] = values
    if knob.at is not None:
        node["at"] = knob.at
    return node


def _flow(value: Any) -> Any:
    """A container that is written in one line."""
    if isinstance(value, dict):
        node = _map({key: _flow(item) for key, item in value.items()})
        node.fa.set_flow_style()
        return node
    if isinstance(value, list | tuple):
        items = _seq([_flow(item) for item in value])
        items.fa.set_flow_style()
        return items
    return value


def _aligned(text: str, comments: Comments) -> str:
    """Two blanks before every comment at a line's end, wherever the emitter put it."""
    for comment in set(comments.values()):
        written = re.escape(_plain(comment))
        text = re.sub(rf"(?m)(?<=\S) +# {written}$", lambda found: "  " + found[0].lstrip(), text)
    return text


def _plain(comment: str) -> str:
    return " ".join(comment.split())


def _map(data: Mapping[Any, Any] | None = None) -> Any:
    from ruamel.yaml.comments import CommentedMap

    return CommentedMap(data or {})


def _seq(data: list[Any] | None = None) -> Any:
    from ruamel.yaml.comments import CommentedSeq

    return CommentedSeq(data or [])


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 10 * _WIDTH  # a flow entry is not broken
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _text(root: Any) -> str:
    out = io.StringIO()
    _yaml().dump(root, out)
    return out.getvalue()
