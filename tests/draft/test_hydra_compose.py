"""Configurations composed here are those that Hydra composes."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from infrarsi.draft.argument_systems.hydra_compose import Composer
from infrarsi.draft.argument_systems.job import Job

TREES: dict[str, tuple[Mapping[str, str], list[str]]] = {
    "self-last": (
        {"config": "defaults:\n  - model: a\nmodel:\n  x: 9\n", "model/a": "x: 1\ny: 2\n"},
        [],
    ),
    "self-first": (
        {
            "config": "defaults:\n  - _self_\n  - model: a\nmodel:\n  x: 9\n  z: 3\n",
            "model/a": "x: 1\n",
        },
        [],
    ),
    "group-chosen": (
        {"config": "defaults:\n  - model: a\n", "model/a": "x: 1\n", "model/b": "x: 2\n"},
        ["model=b"],
    ),
    "group-deleted": (
        {"config": "defaults:\n  - model: a\n  - _self_\nz: 1\n", "model/a": "x: 1\n"},
        ["~model"],
    ),
    "group-null": (
        {"config": "defaults:\n  - model: null\n  - _self_\nz: 1\n", "model/a": "x: 1\n"},
        [],
    ),
    "optional": (
        {
            "config": "defaults:\n  - optional model: absent\n  - _self_\nz: 1\n",
            "model/a": "x: 1\n",
        },
        [],
    ),
    "global-package": (
        {
            "config": "defaults:\n  - _self_\n  - exp: one\nlr: 1\nmodel: {x: 1}\n",
            "exp/one": "# @package _global_\nlr: 2\nmodel:\n  x: 5\n",
        },
        [],
    ),
    "experiment-overrides-a-group": (
        {
            "config": "defaults:\n  - model: a\n  - exp: null\n  - _self_\n",
            "model/a": "x: 1\n",
            "model/b": "x: 2\n",
            "exp/one": "# @package _global_\ndefaults:\n  - override /model: b\nlr: 3\n",
        },
        ["exp=one"],
    ),
    "package-of-a-default": (
        {
            "config": "defaults:\n  - data@train: a\n  - data@test: b\n",
            "data/a": "rows: 1\n",
            "data/b": "rows: 2\n",
        },
        [],
    ),
    "nested-defaults": (
        {
            "config": "defaults:\n  - model: big\n",
            "model/base": "x: 1\ny: 1\n",
            "model/big": "defaults:\n  - base\n  - part: p\n  - _self_\nx: 2\n",
            "model/part/p": "w: 4\n",
        },
        [],
    ),
    "absolute-group": (
        {
            "config": "defaults:\n  - model: a\n",
            "model/a": "defaults:\n  - /opt@opt: adam\n  - _self_\nx: 1\n",
            "opt/adam": "lr: 0.5\n",
        },
        [],
    ),
    "interpolation": (
        {
            "config": "defaults:\n  - model: a\n  - _self_\nrows: 4\nsteps: ${rows}\n"
            "name: r-${rows}\n",
            "model/a": "x: ${rows}\ny: ${.x}\n",
        },
        [],
    ),
    "scalar-over-mapping": (
        {
            "config": "defaults:\n  - _self_\n  - exp: one\nopt:\n  lr: 1\nother: null\n",
            "exp/one": "# @package _global_\nopt: null\nother:\n  a: 1\n",
        },
        [],
    ),
}
_HYDRA = """
import json, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

def flat(node, prefix=""):
    found = {}
    for key, value in node.items():
        if isinstance(value, dict):
            found.update(flat(value, prefix + key + "."))
        else:
            found[prefix + key] = value
    return found

result = {}
for name, words in json.loads(sys.argv[2]).items():
    with initialize_config_dir(version_base="1.3", config_dir=sys.argv[1] + "/" + name):
        made = OmegaConf.to_container(compose("config", overrides=words), resolve=True)
        result[name] = flat(made)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All trees on disk."""
    root = tmp_path_factory.mktemp("trees")
    for name, (files, _) in TREES.items():
        for path, text in files.items():
            file = root / name / f"{path}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return root


@pytest.fixture(scope="module")
def composed(trees: Path) -> dict[str, dict[str, object]]:
    """What Hydra makes of each tree."""
    words = json.dumps({name: words for name, (_, words) in TREES.items()})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _HYDRA, str(trees), words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", TREES)
def test_it_is_what_hydra_composes(
    name: str, trees: Path, composed: dict[str, dict[str, object]]
) -> None:
    chosen: dict[str, str | None] = {}
    for word in TREES[name][1]:
        group, _, choice = word.lstrip("~").partition("=")
        chosen[group] = choice or None
    made = Composer(Job(trees, name), name, chosen, {}).compose("config")
    assert made.unknowns == []
    assert {key: leaf.value for key, leaf in made.leaves.items()} == composed[name]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("defaults:\n  - model: ${kind}\n", "only known at run time"),
        ("defaults:\n  - model: absent\n", "there is no `model/absent`"),
        ("defaults:\n  - model: ???\n", "only known at run time"),
        ("a: [1\n", "not YAML"),
    ],
)
def test_what_cannot_be_followed_is_told_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    made = Composer(Job(tmp_path, "."), ".", {}, {}).compose("config")
    assert why in made.unknowns[0]
    assert made.unknowns[0].startswith("config.yaml:2")
