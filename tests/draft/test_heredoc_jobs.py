"""Jobs whose launch scripts write their configuration or their program by heredocs."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read

from infrarsi.contract import SINKS_TOKEN, Candidate
from infrarsi.draft import Draft
from infrarsi.errors import UserError
from infrarsi.workspace.applying import plan
from infrarsi.workspace.applying import write as write_change
from infrarsi.workspace.overlay import overlay
from infrarsi.workspace.sources import Sources

Write = Callable[[Mapping[str, str]], Path]
TRAIN = """import argparse
import torch
import yaml

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf/a.yaml")
args = parser.parse_args()
config = yaml.safe_load(open(args.config))
optimizer = torch.optim.AdamW([torch.zeros(1)])
for _ in range(config["steps"]):
    loss = torch.zeros(1, requires_grad=True)
    loss.sum().backward()
    optimizer.step()
torch.save(loss, config["out_dir"] + "/last.pt")
"""
SCRIPT = """#!/bin/bash
set -e
MICRO=4   # rows
LR=1e-3
OUT=out
mkdir -p conf
cat > conf/cfg.yaml <<EOF
# the job of $USER
lr: $LR   # rate
steps: 200
batch_size: $MICRO
grad_accum: 2   # keep
num_workers: 2
out_dir: $OUT
EOF
echo "micro batch $MICRO"
torchrun --nproc_per_node 2 train.py --config conf/cfg.yaml
"""
RUN = """#!/bin/bash
cat <<'EOF' > run.py
import torch
from torch.utils.data import DataLoader
import argparse
from model import Model
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--num-workers", type=int, default=2)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--out", default="out")
args = parser.parse_args()
model = Model(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(range(9), batch_size=args.batch_size, num_workers=args.num_workers)
for step in range(args.steps):
    model(torch.zeros(2, 2)).sum().backward()
    optimizer.step()
torch.save(model.state_dict(), args.out + "/a.pt")
EOF
python run.py --batch-size 8
"""


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def knobs(draft: Draft) -> dict[str, Any]:
    return {knob.family: knob for knob in draft.project.knobs}


def job(write: Write, script: str = SCRIPT, **files: str) -> Path:
    more = {name.replace("_sh", ".sh"): text for name, text in files.items()}
    return write({"train.sh": script, "train.py": TRAIN, **more})


def test_a_configuration_in_a_heredoc_is_read_as_that_file(write: Write) -> None:
    found = read(job(write) / "train.sh")
    assert facts(found)["global_batch"] == 16
    assert found.project.workload.planned_steps == 200
    told = next(fact.told for fact in found.facts if fact.name == "accumulation")
    assert told.startswith("train.sh:12 ")
    assert found.project.sinks["config:conf/cfg.yaml:out_dir"] == "fresh"
    assert knobs(found)["dataloader_workers"].at == "config:conf/cfg.yaml:num_workers"
    assert knobs(found)["micro_batch"].values[8].set == {
        "config:conf/cfg.yaml:batch_size": 8,
        "config:conf/cfg.yaml:grad_accum": 1,
    }


def test_a_candidate_changes_the_heredoc_and_bash_writes_its_file(
    write: Write, tmp_path: Path
) -> None:
    root = job(write)
    project = read(root / "train.sh").project
    candidate = Candidate.of({"micro_batch": 8, "dataloader_workers": 4})
    made = overlay(project, Sources(root), candidate)
    assert "conf/cfg.yaml" not in made.files
    assert f"""OUT='"{SINKS_TOKEN}/conf_cfg.yaml_out_dir"'\n""" in made.files["train.sh"]
    write_change(plan(root, project, candidate, sources=Sources(root), expected={}))
    wanted = SCRIPT.replace("MICRO=4 ", "MICRO=8 ").replace("accum: 2 ", "accum: 1 ")
    wanted = wanted.replace("workers: 2", "workers: 4").partition("\n")[2]
    assert (root / "infrarsi_optimized.sh").read_text().endswith("\n" + wanted)
    assert (root / "train.sh").read_text() == SCRIPT
    started = tmp_path / "bin" / "torchrun"
    started.parent.mkdir()
    started.write_text('#!/bin/sh\nprintf "%s " "$@" > started\n')
    started.chmod(0o755)
    path = f"{started.parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "USER": "me"}
    subprocess.run(
        ["bash", "infrarsi_optimized.sh"], cwd=root, env=environment, check=True, timeout=30
    )
    assert (root / "conf/cfg.yaml").read_text() == (
        "# the job of me\nlr: 1e-3   # rate\nsteps: 200\nbatch_size: 8\n"
        "grad_accum: 1   # keep\nnum_workers: 4\nout_dir: out\n"
    )
    assert "--config conf/cfg.yaml" in (root / "started").read_text()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("--config conf", "--seed $MICRO --config conf", "`MICRO` is used in line 17 too"),
        ("MICRO=4 ", "MICRO=${MICRO:-4}; N=$MICRO ", "`MICRO` is used in line 3 too"),
        ("batch_size: $MICRO", "batch_size: $(echo 4)", "what stands there is computed"),
    ],
    ids=["used elsewhere", "a default used elsewhere", "printed"],
)
def test_a_value_that_is_not_the_heredocs_own_makes_no_knob(
    write: Write, old: str, new: str, why: str
) -> None:
    train = TRAIN.replace("args = ", 'parser.add_argument("--seed", type=int)\nargs = ')
    root = write({"train.sh": SCRIPT.replace(old, new), "train.py": train})
    found = read(root / "train.sh")
    assert facts(found)["micro_batch"] == 4
    assert "micro_batch" not in knobs(found)
    (told,) = (unknown for unknown in found.unknowns if "batch_size" in unknown)
    assert told.startswith("`batch_size` of conf/cfg.yaml is not searched: ")
    assert why in told


@pytest.mark.parametrize("value", ["${MICRO:-4}", "$((2 * 2))"])
def test_a_default_of_the_heredocs_own_makes_a_knob(write: Write, value: str) -> None:
    root = job(write, SCRIPT.replace("MICRO=4 ", f"MICRO={value} "))
    project = read(root / "train.sh").project
    made = overlay(project, Sources(root), Candidate.of({"micro_batch": 8}))
    assert "\nbatch_size: 8\ngrad_accum: 1 " in made.files["train.sh"]


def test_a_value_that_only_a_run_can_tell_is_no_fact(write: Write) -> None:
    found = read(job(write, SCRIPT.replace("MICRO=4 ", "MICRO=$(cat rows) ")) / "train.sh")
    assert "micro_batch" not in facts(found)
    assert "global_batch" not in facts(found)
    assert "micro_batch" not in knobs(found)


def test_a_file_that_something_else_changes_is_not_read(write: Write) -> None:
    script = SCRIPT.replace("echo ", "sed -i s/200/300/ conf/cfg.yaml\necho ")
    found = read(job(write, script) / "train.sh")
    assert "micro_batch" not in facts(found)
    assert any("`sed` in line 16 may change it" in unknown for unknown in found.unknowns)


def test_an_old_file_of_that_name_is_not_taken_for_it(write: Write) -> None:
    root = job(write)
    (root / "conf").mkdir()
    (root / "conf/cfg.yaml").write_text("batch_size: 64\nsteps: 3\n")
    assert facts(read(root / "train.sh"))["micro_batch"] == 4


def test_an_output_folder_that_cannot_be_changed_is_emptied_in_its_place(write: Write) -> None:
    found = read(job(write, SCRIPT.replace("mkdir -p conf", "mkdir -p conf $OUT")) / "train.sh")
    assert "path:out" in found.project.sinks
    assert "config:conf/cfg.yaml:out_dir" not in found.project.sinks


def test_an_output_folder_that_only_a_run_can_tell_stops(write: Write) -> None:
    with pytest.raises(UserError, match="`out_dir` says, which cannot be changed"):
        read(job(write, SCRIPT.replace("OUT=out", "OUT=$(date)")) / "train.sh")


def test_what_a_calling_script_writes_is_read_and_stays(write: Write) -> None:
    heredoc, command = SCRIPT.rsplit("\n", 2)[0], "torchrun --nproc_per_node 2 train.py"
    inner = f"#!/bin/bash\n{command} --config conf/cfg.yaml\n"
    root = job(write, heredoc + "\nbash inner.sh\n", inner_sh=inner)
    found = read(root / "train.sh")
    assert facts(found)["micro_batch"] == 4
    assert not any("config:" in str(knob) for knob in found.project.knobs)
    assert found.project.sinks == {"path:out": "fresh"}


def test_a_program_in_a_heredoc_is_read_as_that_file(write: Write) -> None:
    root = write({"run.sh": RUN, "model.py": "from torch.nn import Linear as Model\n"})
    found = read(root / "run.sh")
    assert facts(found)["micro_batch"] == 8
    assert facts(found)["optimizer"] == "AdamW"
    assert found.project.sinks == {"flag:--out": "fresh"}
    assert knobs(found)["dataloader_workers"].at == "flag:--num-workers"
    assert found.project.editable == ["model.py"]
    assert "run.sh:2 writes run.py anew in every run, so no patch changes it" in found.notes


def test_what_is_not_known_of_a_program_is_said(write: Write) -> None:
    script = RUN.replace("'EOF'", "EOF").replace("default=16", "default=$B")
    root = write({"run.sh": script.replace(" --batch-size 8", ""), "model.py": "Model = print\n"})
    found = read(root / "run.sh")
    assert "micro_batch" not in facts(found)
    assert "what `$B` is in run.py, which run.sh:2 writes" in found.unknowns


def test_accelerates_file_in_a_heredoc_is_read(write: Write) -> None:
    script = """#!/bin/bash
cd "$(dirname "$0")/.."
tee acc.yaml > /dev/null <<'EOF'
num_processes: 4
num_machines: 1
mixed_precision: bf16
EOF
cat > cfg.yaml <<EOF
batch_size: 4
steps: 300
out_dir: out
EOF
accelerate launch --config_file acc.yaml train.py --config cfg.yaml
"""
    train = TRAIN.replace(
        "import yaml\n", "import yaml\nfrom accelerate import Accelerator\na = Accelerator()\n"
    )
    root = write({"sub/go.sh": script, "train.py": train})
    found = read(root / "sub/go.sh", gpus=4)
    assert facts(found)["processes"] == 4
    assert facts(found)["precision"] == "bf16"
    told = next(fact.told for fact in found.facts if fact.name == "precision")
    assert told.startswith("sub/go.sh:6 ")


def test_deepspeeds_file_in_a_heredoc_gets_new_keys(write: Write) -> None:
    script = """#!/bin/bash
STAGE=2
cat <<EOT > ds.json
{
  "train_batch_size": $((4 * 8)),
  "zero_optimization": {"stage": $STAGE, "overlap_comm": false}
}
EOT
deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config ds.json
"""
    train = """import argparse
import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=[1, 2])
engine.step()
"""
    root = write({"train.sh": script, "train.py": train})
    project = read(root / "train.sh", gpus=4).project
    found = {knob.family: knob for knob in project.knobs}
    assert facts(read(root / "train.sh", gpus=4))["global_batch"] == 32
    values = {"zero_stage": 1, "reduce_bucket": 125000000, "zero_overlap_comm": True}
    assert set(values) <= set(found)
    text = overlay(project, Sources(root), Candidate.of(values)).files["train.sh"]
    assert "STAGE=1\n" in text
    assert '"stage": $STAGE, "overlap_comm": true, "reduce_bucket_size": 125000000}' in text


def test_a_launch_script_in_a_heredoc_is_drafted_and_changed(write: Write) -> None:
    script = (
        "cat > start.sh <<'EOF'\ntorchrun --nproc_per_node 2 run.py --batch-size 8\nEOF\n"
        "bash start.sh\n"
    )
    program = RUN.partition("EOF' > run.py\n")[2].partition("EOF\n")[0]
    files = {"run.py": program, "model.py": "from torch.nn import Linear as Model\n"}
    root = write({"go.sh": script, **files})
    found = read(root / "go.sh")
    assert facts(found)["processes"] == 2
    assert found.project.launch.script == "go.sh"
    assert found.project.sinks == {"flag:--out": "fresh"}
    made = overlay(found.project, Sources(root), Candidate.of({"dataloader_workers": 4}))
    assert "--num-workers 4" in made.files["go.sh"]
