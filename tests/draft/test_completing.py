"""A short infrarsi.yaml runs as it is: the rest is drafted, what it says stays."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infrarsi.contract.files import load
from infrarsi.draft import Machine, complete, is_short
from infrarsi.errors import UserError

Copy = Callable[[str], Path]
HEAD = 'schema: infrarsi-project-v1\nname: mine\nlaunch:\n  command: "bash train.sh"\n'


def completed(root: Path, text: str):  # type: ignore[no-untyped-def]  # a Draft, in tests only
    path = root / "infrarsi.yaml"
    path.write_text(text)
    loaded = load(path)
    assert is_short(loaded.project)
    return complete(loaded, machine=Machine(4), environ={})


def test_three_keys_are_enough(job: Copy) -> None:
    drafted = completed(job("ddp_gpt"), HEAD)
    project = drafted.project
    assert project.name == "mine"
    assert project.launch.script == "train.sh"
    assert project.sinks == {"flag:--out-dir": "fresh"}
    assert not is_short(project)


def test_what_the_file_says_stays(job: Copy) -> None:
    text = HEAD + (
        "  timeout_s: 50\nworkload: {optimizer_steps: 12}\neditable: [data.py]\n"
        "constraints: ['micro_batch <= 2']\nsearch: {budget: {screens: 3}}\nsinks: {}\n"
    )
    project = completed(job("ddp_gpt"), text).project
    assert project.launch.timeout_s == 50
    assert project.workload.optimizer_steps == 12
    assert project.workload.planned_steps > 12
    assert project.editable == ["data.py"]
    assert "data.py" not in project.frozen
    assert project.constraints == ["micro_batch <= 2"]
    assert project.search.budget.screens == 3
    assert project.sinks == {}


def test_evidence_is_kept_only_for_what_was_drafted(job: Copy) -> None:
    drafted = completed(job("ddp_gpt"), HEAD + "sinks: {'flag:--out-dir': fresh}\n")
    assert not any(item.path[0] in ("sinks", "name") for item in drafted.evidence)
    assert any(item.path[0] == "knobs" for item in drafted.evidence)


def test_a_constraint_on_nothing_is_refused_with_its_line(job: Copy) -> None:
    with pytest.raises(UserError, match="names 'compile'") as caught:
        completed(job("ddp_gpt"), HEAD + "constraints:\n  - compile == 'on'\n")
    assert caught.value.where.endswith("infrarsi.yaml:6")


def test_the_file_fixes_the_projects_folder(job: Copy) -> None:
    root = job("run_from_above")
    text = HEAD.replace("bash train.sh", "bash scripts/train.sh")
    drafted = completed(root, text)
    assert drafted.root == root
    assert drafted.project.launch.command == "bash scripts/train.sh"
    assert drafted.project.launch.script == "scripts/train.sh"
