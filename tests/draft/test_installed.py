"""Jobs whose program no file of the project holds: it is installed, or only known by its name."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
AXOLOTL = """base_model: some/model
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 300
sequence_len: 2048
sample_packing: true
flash_attention: false
output_dir: ./out
datasets:
  - path: data.jsonl
"""
FACTORY = """model_name_or_path: some/model
stage: sft
do_train: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
max_steps: 200
cutoff_len: 1024
output_dir: saves/x
"""
TITAN = """[training]
local_batch_size = 4
seq_len = 4096
steps = 500

[job]
dump_folder = "./out"
"""
TRL = """model_name_or_path: some/model
dataset_name: some/data
per_device_train_batch_size: 4
max_steps: 250
gradient_accumulation_steps: 2
output_dir: out
"""
FILES = {"conf/axolotl.yaml": AXOLOTL, "factory.yaml": FACTORY, "titan.toml": TITAN, "t.yaml": TRL}
LAUNCHES = {
    "axolotl module": ("python -m axolotl.cli.train conf/axolotl.yaml", "hf-trainer", 300),
    "axolotl by accelerate": (
        "accelerate launch --num_processes 4 -m axolotl.cli.train conf/axolotl.yaml",
        "hf-trainer",
        300,
    ),
    "axolotl program": ("axolotl train conf/axolotl.yaml", "hf-trainer", 300),
    "llama-factory": ("llamafactory-cli train factory.yaml", "hf-trainer", 200),
    "llama-factory in srun": (
        "srun --nodes=1 --ntasks=1 llamafactory-cli train factory.yaml",
        "hf-trainer",
        200,
    ),
    "torchtitan": (
        "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file titan.toml",
        "torchtitan",
        500,
    ),
    "trl module": ("python -m trl.scripts.sft --config t.yaml", "hf-trainer", 250),
    "trl program": ("trl sft --config t.yaml --num_processes 2", "hf-trainer", 250),
}


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the machine of the test has one of the libraries must not matter."""
    monkeypatch.setattr("infrarsi.draft.installed.site_folders", list)


def drafted(write: Make, command: str, **files: str) -> Draft:
    root = write({**FILES, **files, "train.sh": f"#!/bin/bash\n{command}\n"})
    return read(root / "train.sh", gpus=8)


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_facts_come_from_the_configuration(write: Make, name: str) -> None:
    command, stack, steps = LAUNCHES[name]
    found = drafted(write, command)
    project = found.project
    assert project.stack == stack
    assert project.workload.planned_steps == steps
    assert project.launch.command == "bash train.sh"
    assert project.editable == []
    assert project.frozen == {}
    assert any("is not installed" in note for note in found.notes)
    facts = {fact.name for fact in found.facts}
    assert "micro_batch" in facts


def test_knobs_of_the_configuration_are_offered(write: Make) -> None:
    found = drafted(write, "axolotl train conf/axolotl.yaml")
    places = {
        place
        for knob in found.project.knobs
        for v in knob.values
        for place, _ in knob.change(v).set
    }
    assert "config:conf/axolotl.yaml:micro_batch_size" in {str(place) for place in places}


def test_the_folder_is_the_one_where_the_files_lie(write: Make) -> None:
    files = {"scripts/train.sh": "axolotl train conf/axolotl.yaml\n"}
    root = write({**FILES, **files})
    assert read(root / "scripts/train.sh", gpus=8).project.launch.command == "bash scripts/train.sh"


def test_processes_are_read_or_said_to_be_unknown(write: Make) -> None:
    found = drafted(write, "trl sft --config t.yaml --num_processes 2")
    assert found.project.launch.gpus_per_node == 2
    found = drafted(write, "NPROC_PER_NODE=4 llamafactory-cli train factory.yaml")
    assert found.project.launch.gpus_per_node == 4
    found = drafted(write, "axolotl train conf/axolotl.yaml")
    assert any("the processes that axolotl starts" in told for told in found.unknowns)


def test_an_installed_program_is_read_and_not_run(
    write: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "ownlib/cli").mkdir(parents=True)
    (site / "ownlib/__init__.py").write_text("raise SystemExit('imported')\n")
    (site / "ownlib/cli/__init__.py").write_text("")
    (site / "ownlib/flags.py").write_text(
        "def add(p):\n    p.add_argument('--max-steps', type=int, default=700)\n"
    )
    (site / "ownlib/cli/train.py").write_text(
        "import argparse\nimport torch\nimport other\nfrom ownlib.flags import add\n"
        "p = argparse.ArgumentParser()\nadd(p)\nloss.backward()\n"
    )
    (site / "other.py").write_text("import lightning\n")
    monkeypatch.setattr("infrarsi.draft.installed.site_folders", lambda: [str(site)])
    found = drafted(write, "python -m ownlib.cli.train")
    assert found.project.workload.planned_steps == 700
    assert found.project.editable == []
    assert any(f"installed ({site}" in note for note in found.notes)
    assert "ownlib" not in sys.modules


def test_a_module_that_is_nowhere_is_an_error(write: Make) -> None:
    with pytest.raises(UserError, match=r"'nobody.train' is neither in .* nor installed") as caught:
        drafted(write, "python -m nobody.train --x 1")
    assert caught.value.where == "train.sh:2"
    assert "environment" in caught.value.fix


def test_a_module_of_the_project_is_not_looked_for_elsewhere(write: Make) -> None:
    own = {"axolotl/cli/train.py": "import torch\nMAX_STEPS = 90\n", "axolotl/__init__.py": ""}
    found = drafted(write, "python -m axolotl.cli.train conf/axolotl.yaml", **own)
    assert found.project.editable == ["axolotl/cli/train.py"]


def test_flags_are_put_behind_the_program(write: Make) -> None:
    from infrarsi.scripts import Script

    script = Script.parse("trl sft --config t.yaml \\\n  --max_steps 5\n", "t.sh")
    changed = script.with_flag("--max_steps", "9").with_flag("--bf16", True)
    assert changed.text == "trl sft --config t.yaml \\\n  --max_steps 9 \\\n  --bf16\n"
    training = changed.training_command()
    assert (training.launcher, training.entry, training.is_module) == (
        "trl",
        "trl.scripts.sft",
        True,
    )
    with pytest.raises(UserError, match="started by trl itself"):
        script.with_launcher_option("--nnodes", "2")
