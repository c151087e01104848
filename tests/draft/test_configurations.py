"""Which configuration files a job reads, and what is said where that cannot be known."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read as draft_of
from test_argument_systems import told

from infrarsi.contract import SINKS_TOKEN, Candidate, Place, PlaceKind
from infrarsi.draft import Draft
from infrarsi.draft.settings import Setting
from infrarsi.errors import UserError
from infrarsi.workspace.applying import plan
from infrarsi.workspace.applying import write as write_change
from infrarsi.workspace.overlay import overlay
from infrarsi.workspace.sources import Sources

Write = Callable[[Mapping[str, str]], Path]
SCRIPT = "#!/bin/bash\npython train.py {}\n"
TRAIN = """import argparse
import torch
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/a.yaml")
{more}
args = parser.parse_args()
config = yaml.safe_load(open(args.config))
for _ in range(config["steps"]):
    loss = torch.zeros(1, requires_grad=True)
    loss.sum().backward()
torch.save(loss, config["out_dir"] + "/last.pt")
"""
CONF = """# the whole job
steps: 200
out_dir: out
data:
  num_workers: 2  # processes
batch_size: 8
grad_accum: 2
compile: false
eval:
  batch_size: 64
"""


def job(write: Write, arguments: str = "", more: str = "", **files: str) -> Path:
    """A job that reads `conf/a.yaml`."""
    texts = {name.replace("__", "/").replace("_yaml", ".yaml"): t for name, t in files.items()}
    return write(
        {
            "train.sh": SCRIPT.format(arguments),
            "train.py": TRAIN.replace("{more}", more),
            "conf/a.yaml": CONF,
            **texts,
        }
    )


def by_dest(root: Path) -> dict[str, Setting]:
    """The settings of a job by their names in the code."""
    return {setting.key or setting.dest: setting for setting in told(root).settings}


def knobs(drafted: Draft) -> dict[str, Any]:
    """The drafted knobs by family."""
    return {knob.family: knob for knob in drafted.project.knobs}


def test_values_of_a_file_become_knobs_length_and_sinks(write: Write) -> None:
    drafted = draft_of(job(write) / "train.sh")
    found = knobs(drafted)
    assert found["dataloader_workers"].at == "config:conf/a.yaml:data.num_workers"
    assert found["dataloader_workers"].reference == 2
    assert found["micro_batch"].values[16].set == {
        "config:conf/a.yaml:batch_size": 16,
        "config:conf/a.yaml:grad_accum": 1,
    }
    assert drafted.project.workload.planned_steps == 200
    assert drafted.project.sinks["config:conf/a.yaml:out_dir"] == "fresh"
    assert drafted.comments["knobs", "dataloader_workers"].startswith("conf/a.yaml:5")


def test_a_setting_in_a_file_is_applied_to_the_copy_and_to_the_project(write: Write) -> None:
    root = job(write)
    project = draft_of(root / "train.sh").project
    candidate = Candidate.of({"micro_batch": 16, "dataloader_workers": 4})
    made = overlay(project, Sources(root), candidate)
    copy = made.files["conf/a.yaml"]
    assert "  num_workers: 4  # processes\nbatch_size: 16\ngrad_accum: 1\n" in copy
    assert f'out_dir: "{SINKS_TOKEN}/conf_a.yaml_out_dir"' in copy
    change = plan(root, project, candidate, sources=Sources(root), expected={})
    assert "+batch_size: 16" in change.diff
    write_change(change)
    applied = (root / "conf/a.yaml").read_text()
    expected = CONF.replace("num_workers: 2", "num_workers: 4").replace("size: 8", "size: 16")
    assert applied == expected.replace("grad_accum: 2", "grad_accum: 1")


def test_the_reference_changes_no_file_but_for_its_sinks(write: Write) -> None:
    root = job(write)
    project = draft_of(root / "train.sh").project
    made = overlay(project, Sources(root), Candidate.of())
    lines = zip(CONF.splitlines(), made.files["conf/a.yaml"].splitlines(), strict=True)
    assert [before for before, after in lines if before != after] == ["out_dir: out"]


def test_a_flag_and_a_file_that_both_give_a_value_are_not_guessed(write: Write) -> None:
    root = job(write, "--batch_size 4", 'parser.add_argument("--batch_size", type=int)')
    found = told(root)
    assert any("both give `batch_size`" in unknown for unknown in found.unknowns)
    assert not any(
        s.is_known for s in found.settings if s.dest == "batch_size" and "eval" not in s.key
    )
    assert "micro_batch" not in knobs(draft_of(root / "train.sh"))


def test_a_file_that_the_script_writes_itself_is_no_place_for_a_setting(write: Write) -> None:
    root = job(write)
    script = "envsubst < a.in > conf/a.yaml\npython train.py\n"
    (root / "train.sh").write_text(script)
    setting = by_dest(root)["data.num_workers"]
    assert not setting.is_known
    assert "the launch script writes it anew" in setting.why


def test_a_file_named_by_its_whole_path_is_no_place_for_a_setting(write: Write) -> None:
    root = job(write)
    (root / "train.sh").write_text(f"python train.py --config {root}/conf/a.yaml\n")
    setting = by_dest(root)["data.num_workers"]
    assert not setting.is_known
    assert "by its whole path" in setting.why


def test_keys_that_end_the_same_are_told_apart(write: Write) -> None:
    root = job(write)
    (root / "conf/a.yaml").write_text(
        "steps: 200\nout_dir: o\na: {batch_size: 2}\nb: {batch_size: 4}\n"
    )
    found = by_dest(root)
    assert found["a.batch_size"].words == "--a-batch-size"
    assert found["b.batch_size"].words == "--b-batch-size"


def test_a_section_of_evaluation_is_not_the_training(write: Write) -> None:
    assert by_dest(job(write))["eval.batch_size"].words == "--eval-batch-size"


def test_a_broken_file_is_told_with_its_line(write: Write) -> None:
    root = job(write)
    (root / "conf/a.yaml").write_text("steps: 200\nx: [1\n")
    assert any(u.startswith("conf/a.yaml:") and "YAML" in u for u in told(root).unknowns)


def test_what_an_include_brings_in_is_told(write: Write) -> None:
    root = job(write)
    (root / "conf/a.yaml").write_text(CONF + "more: !include b.yaml\n")
    assert any("conf/a.yaml:11: `!include`" in unknown for unknown in told(root).unknowns)


def test_a_file_that_the_user_names_is_read(write: Write) -> None:
    root = job(write, more="")
    (root / "own.yaml").write_text("prefetch_factor: 4\n")
    found = knobs(draft_of(root / "train.sh", config="own.yaml"))
    assert found["dataloader_prefetch"].at == "config:own.yaml:prefetch_factor"


def test_a_file_of_another_kind_is_refused(write: Write) -> None:
    root = job(write)
    (root / "own.ini").write_text("a = 1\n")
    with pytest.raises(UserError, match="in no format that is read"):
        draft_of(root / "train.sh", config="own.ini")


def test_data_in_json_is_no_configuration(write: Write) -> None:
    root = write(
        {
            "train.sh": "python train.py --data train.json\n",
            "train.py": "import argparse, json\np = argparse.ArgumentParser()\n"
            'p.add_argument("--data")\na = p.parse_args()\njson.load(open(a.data))\n'
            'json.load(open("vocab.json"))\n',
            "train.json": '{"batch_size": 3}',
            "vocab.json": '{"batch_size": 4}',
        }
    )
    kinds = {setting.place.kind for setting in told(root).settings}
    assert kinds == {PlaceKind.FLAG}


def test_accelerate_reads_the_file_that_its_launcher_is_given(write: Write) -> None:
    root = job(write)
    (root / "acc.yaml").write_text("mixed_precision: bf16\nnum_processes: 2\n")
    (root / "train.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    assert by_dest(root)["mixed_precision"].place == Place.parse("config:acc.yaml:mixed_precision")
