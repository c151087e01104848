"""Values are read with their lines, and a change leaves everything else byte for byte."""

import difflib
import json
import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from infrarsi.configs import join_key, read, split_key
from infrarsi.errors import UserError

YAML = """# all of it
base: &base
  lr: 1e-4   # rate
  wd: 0.1
train:
  <<: *base
  wd: 0.2
  batch_size: &bs 8  # rows
  eval_rows: *bs
  mode: 'full'
  empty:
  opt: {name: adam, betas: [0.9, 0.95]}
  on_: on
  old: 010
  day: 2024-01-01
  part: !include part.yaml
  text: |
    two
    lines
steps:
  - name: a
    size: 1
  - name: b
"""
TOML = """# all of it
[train]
steps = 10  # many
compile = false
names = ["a",
  "b"]
text = \"\"\"
x
y\"\"\"
[train.inner]
a.b = 'literal'
when = 2024-01-01
[[stage]]
size = 1
[[stage]]
size = 2
"""
JSON = """{
\t"micro": 2,
\t"zero": {"stage": 2, "overlap": true},
\t"lr": "auto",
\t"none": {}
}
"""
PYTHON = """# all of it
import os
batch_size = 4 * 3  # rows
half = batch_size // 2
train = dict(lr=1e-3, opt={"fused": False})
workers = os.cpu_count()
if workers:
    width = 3
twice = 1
twice = 2


class Config:
    size: int = 3
    rate: float = field(default=0.5, metadata={"help": "h"})
"""
TEXTS = {"a.yaml": YAML, "a.toml": TOML, "a.json": JSON, "a.py": PYTHON}


@pytest.mark.parametrize(
    ("path", "key", "value", "line"),
    [
        ("a.yaml", "base.lr", 1e-4, 3),
        ("a.yaml", "train.lr", 1e-4, 3),
        ("a.yaml", "train.wd", 0.2, 7),
        ("a.yaml", "train.batch_size", 8, 8),
        ("a.yaml", "train.eval_rows", 8, 9),
        ("a.yaml", "train.mode", "full", 10),
        ("a.yaml", "train.empty", None, 11),
        ("a.yaml", "train.opt.betas.1", 0.95, 12),
        ("a.yaml", "train.on_", True, 13),
        ("a.yaml", "train.text", "two\nlines\n", 17),
        ("a.yaml", "steps.1.name", "b", 23),
        ("a.toml", "train.steps", 10, 3),
        ("a.toml", "train.compile", False, 4),
        ("a.toml", "train.names.1", "b", 6),
        ("a.toml", "train.text", "x\ny", 7),
        ("a.toml", "train.inner.a.b", "literal", 11),
        ("a.toml", "stage.1.size", 2, 16),
        ("a.json", "micro", 2, 2),
        ("a.json", "zero.overlap", True, 3),
        ("a.json", "lr", "auto", 4),
        ("a.py", "batch_size", 12, 3),
        ("a.py", "half", 6, 4),
        ("a.py", "train.opt.fused", False, 5),
        ("a.py", "Config.rate", 0.5, 15),
    ],
)
def test_a_value_is_read_with_its_line(path: str, key: str, value: Any, line: int) -> None:
    entry = read(TEXTS[path], path).entry(split_key(key))
    assert entry is not None
    assert (entry.value, entry.line, entry.why) == (value, line, "")


@pytest.mark.parametrize(
    ("path", "key", "why"),
    [
        ("a.yaml", "train.old", "each version of YAML"),
        ("a.yaml", "train.day", "a date"),
        ("a.yaml", "train.part", "!include"),
        ("a.toml", "train.inner.when", "a date"),
        ("a.py", "workers", "computed"),
        ("a.py", "twice", "lines 9 and 10 set it"),
    ],
)
def test_what_cannot_be_known_says_why(path: str, key: str, why: str) -> None:
    entry = read(TEXTS[path], path).entry(split_key(key))
    assert entry is not None
    assert entry.value is None
    assert why in entry.why


@pytest.mark.parametrize(
    ("path", "key", "value", "removed", "added"),
    [
        ("a.yaml", "train.wd", 0.5, "  wd: 0.2", "  wd: 0.5"),
        ("a.yaml", "train.lr", 0.5, None, "  lr: 0.5"),
        ("a.yaml", "train.eval_rows", 4, "  eval_rows: *bs", "  eval_rows: 4"),
        ("a.yaml", "train.mode", "none", "  mode: 'full'", "  mode: 'none'"),
        ("a.yaml", "train.empty", 3, "  empty:", "  empty: 3"),
        ("a.yaml", "train.on_", "on", "  on_: on", '  on_: "on"'),
        ("a.yaml", "steps.0.size", 1e-5, "    size: 1", "    size: 1.0e-05"),
        ("a.yaml", "steps.1.size", 2, None, "    size: 2"),
        ("a.yaml", "brand_new", True, None, "brand_new: true"),
        ("a.toml", "train.steps", 20, "steps = 10  # many", "steps = 20  # many"),
        ("a.toml", "train.compile", True, "compile = false", "compile = true"),
        ("a.toml", "stage.1.size", 5, "size = 2", "size = 5"),
        ("a.json", "micro", 4, '\t"micro": 2,', '\t"micro": 4,'),
        ("a.py", "batch_size", 24, "batch_size = 4 * 3  # rows", "batch_size = 24  # rows"),
        ("a.py", "Config.size", 4, "    size: int = 3", "    size: int = 4"),
    ],
)
def test_a_change_touches_one_line(
    path: str, key: str, value: Any, removed: str | None, added: str
) -> None:
    changed = read(TEXTS[path], path).with_value(split_key(key), value)
    lines = list(difflib.ndiff(TEXTS[path].splitlines(), changed.text.splitlines()))
    assert [line[2:] for line in lines if line.startswith("- ")] == ([removed] if removed else [])
    assert [line[2:] for line in lines if line.startswith("+ ")] == [added]


@pytest.mark.parametrize(
    ("path", "key", "why"),
    [
        ("a.yaml", "train.batch_size", "`train.eval_rows` would change with it"),
        ("a.yaml", "base.lr", "`train.lr` would change with it"),
        ("a.yaml", "train.opt", "a mapping"),
        ("a.yaml", "train.part", "the tag"),
        ("a.yaml", "train.mode.deep", "no mapping"),
        ("a.toml", "train.names", "a table or a list"),
        ("a.json", "zero", "a mapping"),
        ("a.json", "micro.deep", "no object"),
        ("a.py", "twice", "lines 9 and 10 set it"),
        ("a.py", "absent", "not written at the top"),
    ],
)
def test_what_would_change_something_else_is_refused(path: str, key: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as error:
        read(TEXTS[path], path).with_value(split_key(key), 5)
    assert error.value.where.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "key", "gone"),
    [
        ("a.yaml", "train.mode", "  mode: 'full'"),
        ("a.yaml", "steps.0.size", "    size: 1"),
        ("a.toml", "train.compile", "compile = false"),
        ("a.json", "lr", '\t"lr": "auto",'),
    ],
)
def test_a_key_is_taken_out_with_its_line(path: str, key: str, gone: str) -> None:
    changed = read(TEXTS[path], path).without(split_key(key))
    lines = list(difflib.ndiff(TEXTS[path].splitlines(), changed.text.splitlines()))
    assert [line for line in lines if line[0] in "+-"] == [f"- {gone}"]


def test_a_key_that_is_not_there_is_taken_out_by_leaving_all_as_it_is() -> None:
    assert read(YAML, "a.yaml").without(("absent",)).text == YAML


def test_items_in_brackets_go_with_their_comma() -> None:
    assert '"zero": {"overlap": true}' in read(JSON, "a.json").without(("zero", "stage")).text
    assert '"zero": {"stage": 2}' in read(JSON, "a.json").without(("zero", "overlap")).text


@pytest.mark.parametrize(
    ("path", "text", "where"),
    [
        ("a.yaml", "a: 1\nb: [1\n", "a.yaml:"),
        ("a.yaml", "a: 1\na: 2\n", "a.yaml:2"),
        ("a.yaml", "a: 1\n---\nb: 2\n", "a.yaml:"),
        ("a.toml", "a = 1\nb = \n", "a.toml:2"),
        ("a.json", '{"a": 1,\n}', "a.json:2"),
        ("a.json", '{"a": 1,\n"a": 2}', "a.json:2"),
        ("a.json", "{'a': 1}", "a.json:1"),
        ("a.py", "a = 1\nb = (\n", "a.py:2"),
    ],
)
def test_a_broken_file_is_named_with_its_line(path: str, text: str, where: str) -> None:
    with pytest.raises(UserError, match=r"this is not|is given twice") as error:
        read(text, path)
    assert error.value.where.startswith(where)


def test_aliases_that_unfold_without_end_are_an_error() -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    for n in range(1, 9):
        lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]")
    with pytest.raises(UserError, match=r"unfold without end|more than"):
        read("\n".join(lines), "a.yaml")


def test_line_endings_stay() -> None:
    changed = read("a: 1\r\nb:\r\n  c: 2\r\n", "a.yaml").with_value(("b", "d"), 3)
    assert changed.text == "a: 1\r\nb:\r\n  c: 2\r\n  d: 3\r\n"


def test_includes_are_told() -> None:
    assert "a.yaml:16" in read(YAML, "a.yaml").notes[0]
    notes = read("_base_ = ['b.py']\nfrom x import *\n", "a.py").notes
    assert [note.partition(": ")[0] for note in notes] == ["a.py:1", "a.py:2"]


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_a_key_survives_being_written(parts: list[str]) -> None:
    assert split_key(join_key(parts)) == tuple(parts)


def loaded(text: str, path: str) -> dict[str, Any]:
    """What the library that a program would use reads."""
    if path.endswith(".py"):
        names: dict[str, Any] = {}
        exec(text, {}, names)
        return names
    loaders = {"a.yaml": yaml.safe_load, "a.toml": tomllib.loads, "a.json": json.loads}
    return dict(loaders[path](text))


_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["on", "no", "null", "1e-3", "010", "~", "2024-01-01", "true", "- a", "a: b"]),
)


@pytest.mark.parametrize("path", ["a.yaml", "a.toml", "a.json", "a.py"])
@given(value=_VALUES)
@settings(max_examples=60, deadline=None)
def test_every_value_that_is_written_is_read_back(path: str, value: Any) -> None:
    text = {"a.toml": "a = 1\nb = 2\n", "a.json": '{"a": 1, "b": 2}', "a.py": "a = 1\nb = 2\n"}
    config = read(text.get(path, "a: 1\nb: 2\n"), path)
    try:
        changed = config.with_value(("a",), value)
    except UserError:
        assert isinstance(value, str)  # a character that the format cannot hold
        assert not value.isprintable()
        return
    assert [(e.name, e.value) for e in changed.entries] == [("a", value), ("b", 2)]
    assert loaded(changed.text, path) == {"a": value, "b": 2}
