"""A place of a knob is changed where the launcher or the program reads it, in the real bash."""

from pathlib import Path

import pytest
from real_shell import RealShell

from infrarsi.contract import Place, Project
from infrarsi.errors import UserError
from infrarsi.workspace import Sources
from infrarsi.workspace.launch_text import LaunchText

PROCESSES = {  # the launcher's words with `@` for its number of processes, which is 2
    "joined": ("torchrun --nproc_per_node=2 t.py --lr 1", "--nproc_per_node=@ t.py --lr 1"),
    "dashes": ("torchrun --nproc-per-node=2 t.py --lr 1", "--nproc-per-node=@ t.py --lr 1"),
    "separate": ("torchrun --nproc_per_node 2 t.py", "--nproc_per_node @ t.py"),
    "separate dashes": ("torchrun --nproc-per-node 2 -m t", "--nproc-per-node @ -m t"),
    "variable": ('N=2\ntorchrun --nproc_per_node "$N" t.py', "--nproc_per_node @ t.py"),
    "joined variable": ("N=2\ntorchrun --nproc_per_node=$N t.py", "--nproc_per_node=@ t.py"),
    "default": ("torchrun --nproc_per_node=${N:-2} t.py", "--nproc_per_node=@ t.py"),
    "command": ('torchrun --nproc-per-node="$(echo 2)" t.py', "--nproc-per-node=@ t.py"),
    "array": (
        'D=(--standalone --nproc_per_node 2)\ntorchrun "${D[@]}" t.py --lr 1',
        "--standalone --nproc_per_node @ t.py --lr 1",
    ),
    "string": ('D="--nproc_per_node=2"\ntorchrun $D t.py', "--nproc_per_node=@ t.py"),
    "command in a string": (
        'C="torchrun --nproc_per_node 2 t.py"\n$C --lr 1',
        "--nproc_per_node @ t.py --lr 1",
    ),
    "eval": ('C="torchrun --nproc_per_node 2 t.py"\neval $C', "--nproc_per_node @ t.py"),
    "module": (
        "python -m torch.distributed.run --nproc_per_node=2 t.py",
        "-m torch.distributed.run --nproc_per_node=@ t.py",
    ),
    "old launcher": (
        "python -u -m torch.distributed.launch --nproc_per_node 2 t.py",
        "-u -m torch.distributed.launch --nproc_per_node @ t.py",
    ),
    "function": (
        'run() { torchrun --nproc_per_node 2 "$@"; }\nrun t.py --lr 1',
        "--nproc_per_node @ t.py --lr 1",
    ),
    "prefix": ("A=b torchrun --nproc_per_node=2 t.py | cat", "--nproc_per_node=@ t.py"),
    "env": ("env A=b torchrun --nproc_per_node=2 t.py", "--nproc_per_node=@ t.py"),
    "continuation": (
        "torchrun \\\n  --standalone \\\n  --nproc_per_node 2 \\\n  t.py",
        "--standalone --nproc_per_node @ t.py",
    ),
    "not given": ("torchrun t.py --lr 1", "--nproc_per_node=@ t.py --lr 1"),
    "not given among others": (
        "torchrun --nnodes 1 t.py",
        "--nproc_per_node @ --nnodes 1 t.py",
    ),
}
OTHER = {
    "accelerate": (
        "accelerate launch --num_processes 2 t.py --lr 1",
        "--num_processes",
        "launch --num_processes @ t.py --lr 1",
    ),
    "accelerate, joined": (
        "accelerate launch --multi_gpu --num_processes=2 t.py",
        "--num_processes",
        "launch --multi_gpu --num_processes=@ t.py",
    ),
    "accelerate, dashes": (
        "accelerate launch --config_file a.yaml t.py",
        "--num-processes",
        "launch --num_processes @ --config_file a.yaml t.py",
    ),
    "accelerate module": (
        "python -m accelerate.commands.launch --num_processes 2 t.py",
        "--num_processes",
        "-m accelerate.commands.launch --num_processes @ t.py",
    ),
    "deepspeed": ("deepspeed t.py --lr 1", "--num-gpus", "--num_gpus=@ t.py --lr 1"),
    "deepspeed, given": ("deepspeed --num_gpus 2 t.py", "--num_gpus", "--num_gpus @ t.py"),
    "program's own": (
        "torchrun t.py --nproc_per_node 2",
        "--nproc_per_node",
        "t.py --nproc_per_node @",
    ),
    "program without a launcher": (
        "python t.py --lr 1",
        "--nproc_per_node",
        "t.py --lr 1 --nproc_per_node @",
    ),
    "other nodes": ("torchrun t.py", "--nnodes", "--nnodes=@ t.py"),
    "given to the launcher": (
        "torchrun --log-dir out --nnodes 1 t.py",
        "--log_dir",
        "--log-dir @ --nnodes 1 t.py",
    ),
    "not the launcher's": ("torchrun t.py --lr 1", "--log-dir", "t.py --lr 1 --log-dir @"),
    "before what is no flag": ("torchrun t.py --lr 1 -- a", "--new", "t.py --lr 1 --new @ -- a"),
}
REFUSED = {
    "of another launcher": (
        "accelerate launch t.py",
        "launcher:--nproc_per_node",
        "is an option of torchrun",
    ),
    "no launcher": ("python t.py", "launcher:--nproc_per_node", "started by python itself"),
    "twice": (
        "torchrun --nproc_per_node=2 --nproc-per-node 4 t.py",
        "flag:--nproc_per_node",
        "is given 2 times",
    ),
    "shortened": ("torchrun --nproc 2 t.py", "flag:--nproc_per_node", "shortened form"),
    "computed options": (
        "torchrun $(cat options) t.py",
        "launcher:--nproc_per_node",
        "may be part of",
    ),
    "computed options behind": (
        "torchrun --nproc_per_node=2 $(cat options) t.py",
        "flag:--nproc_per_node",
        "may be part of",
    ),
    "computed flags behind": ("torchrun t.py --lr 1 $(cat flags)", "flag:--lr", "may be part of"),
    "behind what is no flag": ("torchrun t.py -- --lr 1", "flag:--lr", "cannot be changed where"),
    "a path": ("torchrun t.py", "path:out", "only a sink can"),
}


def _launch(text: str, root: Path) -> LaunchText:
    (root / "train.sh").write_text(text)
    project = Project.model_validate(
        {
            "schema": "infrarsi-project-v1",
            "name": "small",
            "launch": {"command": "bash train.sh", "script": "train.sh"},
        }
    )
    return LaunchText.of(project, Sources(root))


def _words(launch: LaunchText, shell: RealShell) -> list[str]:
    return shell.run(launch.script.text)[-1].arguments


@pytest.mark.parametrize(
    "place",
    ["flag:--nproc_per_node", "launcher:--nproc_per_node", "flag:--nproc-per-node"],
)
@pytest.mark.parametrize("name", PROCESSES)
def test_the_number_of_processes_is_the_launchers(
    name: str, place: str, shell: RealShell, tmp_path: Path
) -> None:
    text, words = PROCESSES[name]
    launch = _launch(text + "\n", tmp_path)
    found = _words(launch.with_place(Place.parse(place), 1), shell)
    wanted = words.replace("@", "1").split()
    if name.startswith("not given") and "-per-" in place:
        wanted = [word.replace("--nproc_per_node", "--nproc-per-node") for word in wanted]
    assert found == wanted


@pytest.mark.parametrize("name", OTHER)
def test_a_flag_goes_to_whom_it_is_meant_for(name: str, shell: RealShell, tmp_path: Path) -> None:
    text, flag, words = OTHER[name]
    launch = _launch(text + "\n", tmp_path).with_place(Place.parse(f"flag:{flag}"), 1)
    assert _words(launch, shell) == words.replace("@", "1").split()


def test_a_removed_flag_is_taken_from_the_launcher(shell: RealShell, tmp_path: Path) -> None:
    launch = _launch("torchrun --nproc-per-node 2 t.py --lr 1\n", tmp_path)
    found = launch.without(Place.parse("flag:--nproc_per_node"))
    assert _words(found, shell) == ["t.py", "--lr", "1"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_place_that_cannot_be_proven_to_take_effect_is_refused(name: str, tmp_path: Path) -> None:
    text, place, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        _launch(text + "\n", tmp_path).with_place(Place.parse(place), 1)


def test_a_variable_that_the_script_sets_itself_is_changed_in_it(tmp_path: Path) -> None:
    assert _launch("WANDB_DIR=a\ntorchrun t.py\n", tmp_path).assigns("WANDB_DIR")
    assert not _launch("torchrun t.py --dir ${WANDB_DIR:-a}\n", tmp_path).assigns("WANDB_DIR")


def test_a_file_of_the_project_that_is_read_in_is_looked_into(
    shell: RealShell, tmp_path: Path
) -> None:
    (tmp_path / "common.sh").write_text("OPTIONS=--standalone  # N\n")
    (shell.project / "common.sh").write_text("OPTIONS=--standalone  # N\n")
    launch = _launch("source common.sh\nN=2\ntorchrun --nproc_per_node=$N t.py\n", tmp_path)
    found = launch.with_place(Place.parse("env:N"), 1)
    assert _words(found, shell) == ["--nproc_per_node=1", "t.py"]
    (tmp_path / "common.sh").write_text("N=4\n")
    with pytest.raises(UserError, match=r"`source common\.sh` in line 1 sets it"):
        launch.with_place(Place.parse("env:N"), 1)
