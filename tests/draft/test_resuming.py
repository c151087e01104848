"""How a job goes on from a checkpoint, read out of its flags and its code."""

from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read

TRAIN = """import argparse
import os
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default={steps})
parser.add_argument("--out", default="out")
parser.add_argument({flag})
args = parser.parse_args()
model = torch.nn.Linear(1, 1)


def load(path):
    return torch.load(path)


if args.{dest}:
    {load}
for step in range(args.steps):
    loss = model(torch.zeros(1, 1)).sum()
    loss.backward()
torch.save(model.state_dict(), os.path.join(args.out, "last.pt"))
"""


def resume(
    folder: Path, flag: str, dest: str, load: str, steps: int = 1000, script: str = ""
) -> dict[str, Any] | None:
    text = TRAIN.format(flag=flag, dest=dest, load=load, steps=steps)
    (folder / "train.py").write_text(text)
    (folder / "train.sh").write_text(f"python train.py {script}\n")
    found = read(folder / "train.sh").project.verify.resume
    return None if found is None else dict(found.set)


@pytest.mark.parametrize(
    ("flag", "dest", "load", "expected"),
    [
        (
            '"--resume", default=None',
            "resume",
            "torch.load(args.resume)",
            {"flag:--resume": "@CHECKPOINT@"},
        ),
        (
            '"--resume_from_checkpoint", type=str',
            "resume_from_checkpoint",
            "state = load(args.resume_from_checkpoint)",
            {"flag:--resume_from_checkpoint": "@CHECKPOINT@"},
        ),
        (
            '"--load", default=""',
            "load",
            'torch.load(os.path.join(args.load, "last.pt"))',
            {"flag:--load": "@CHECKPOINT_DIR@"},
        ),
        (
            '"--init-from", default=None',
            "init_from",
            'torch.load(f"{args.init_from}/last.pt")',
            {"flag:--init-from": "@CHECKPOINT_DIR@"},
        ),
        (
            '"--resume", action="store_true"',
            "resume",
            'torch.load(os.path.join(args.out, "last.pt"))',
            {"flag:--resume": True},
        ),
        (
            '"--init_from", default="scratch", choices=["scratch", "resume"]',
            "init_from",
            'torch.load(os.path.join(args.out, "last.pt"))',
            {"flag:--init_from": "resume"},
        ),
    ],
    ids=["a file", "through a function", "a folder", "in a string", "a switch", "a choice"],
)
def test_a_flag_that_the_code_loads_is_found(
    tmp_path: Path, flag: str, dest: str, load: str, expected: dict[str, Any]
) -> None:
    assert resume(tmp_path, flag, dest, load) == expected


def test_a_job_that_ends_by_itself_gets_some_steps_more(tmp_path: Path) -> None:
    flag, load = '"--resume", default=None', "torch.load(args.resume)"
    found = resume(tmp_path, flag, "resume", load, steps=30)
    assert found == {"flag:--resume": "@CHECKPOINT@", "flag:--steps": 35}


@pytest.mark.parametrize(
    ("flag", "dest", "load", "script"),
    [
        ('"--resume", default=None', "resume", "print('not loaded')", ""),
        ('"--teacher", default=None', "teacher", "torch.load(args.teacher)", ""),
        ('"--resume", default=None', "resume", "torch.load(args.resume)", "--resume old.pt"),
        ('"--resume", action="store_true"', "resume", "torch.load('pretrained/x.pt')", ""),
    ],
    ids=["not loaded", "another name", "in use today", "a switch that loads elsewhere"],
)
def test_nothing_is_drafted_where_it_cannot_be_told(
    tmp_path: Path, flag: str, dest: str, load: str, script: str
) -> None:
    (tmp_path / "old.pt").write_bytes(b"")
    assert resume(tmp_path, flag, dest, load, script=script) is None


def test_what_a_short_file_says_of_verification_stays_beside_what_is_drafted(
    tmp_path: Path,
) -> None:
    from infrarsi.contract.files import load
    from infrarsi.draft import complete

    resume(tmp_path, '"--resume", default=None', "resume", "torch.load(args.resume)")
    (tmp_path / "infrarsi.yaml").write_text(
        "schema: infrarsi-project-v1\nname: x\nlaunch: {command: bash train.sh}\n"
        "verify: {long_steps: 0}\n"
    )
    verify = complete(load(tmp_path / "infrarsi.yaml"), environ={}).project.verify
    assert verify.long_steps == 0
    assert verify.resume is not None
    assert dict(verify.resume.set) == {"flag:--resume": "@CHECKPOINT@"}


def test_the_drafted_file_says_it_in_one_line_and_loads_again(tmp_path: Path) -> None:
    from infrarsi.contract.files import dump, load

    resume(tmp_path, '"--resume", default=None', "resume", "torch.load(args.resume)")
    drafted = read(tmp_path / "train.sh")
    text = dump(drafted.project, drafted.comments)
    line = next(line for line in text.splitlines() if line.startswith("  resume:"))
    assert line.startswith("  resume: {set: {flag:--resume: '@CHECKPOINT@'}}  # `--resume`")
    (tmp_path / "infrarsi.yaml").write_text(text)
    assert load(tmp_path / "infrarsi.yaml").project == drafted.project


TITAN = """[training]
steps = 30

[checkpoint]
enable = true
"""


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            "last_save_model_only = false\n",
            {
                "flag:--checkpoint.initial_load_path": "@CHECKPOINT@",
                "flag:--checkpoint.no_initial_load_model_only": True,
                "flag:--training.steps": 35,
            },
        ),
        ("", None),
        ('last_save_model_only = false\ninitial_load_path = "base"\n', None),
    ],
    ids=["all states", "the model alone", "starts from another"],
)
def test_torchtitan_goes_on_from_a_checkpoint_of_all_states(
    tmp_path: Path, keys: str, expected: dict[str, Any] | None
) -> None:
    (tmp_path / "job.toml").write_text(TITAN + keys)
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torchtitan.train import main\n\nmain()\n"
    )
    (tmp_path / "train.sh").write_text(
        "torchrun --nproc_per_node 2 train.py --job.config_file job.toml\n"
    )
    found = read(tmp_path / "train.sh").project.verify.resume
    assert (None if found is None else dict(found.set)) == expected
