"""A draft is of the job that the user has, or it is an error: never of another one."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import TRAIN, read

from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
MAIN = TRAIN + 'if __name__ == "__main__":\n    pass\n'


def refused(target: Path, words: str, **options: str) -> UserError:
    with pytest.raises(UserError, match=words) as caught:
        read(target, **options)
    assert caught.value.where
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize("target", ["train.sh", "."])
def test_a_script_whose_program_is_not_there_is_not_replaced_by_one_that_is(
    write: Make, target: str
) -> None:
    root = write({"train.sh": "set -e\npython trian.py --steps 50\n", "train.py": MAIN})
    error = refused(root / target, "the entry 'trian.py' does not exist")
    assert error.where == "train.sh:2"
    assert error.fix.startswith("did you mean 'train.py'?")


@pytest.mark.parametrize("target", ["train.sh", "."])
@pytest.mark.parametrize(
    "text",
    [
        "python train.py --steps 50\npython tune.py --steps 50\n",
        "torchrun train.py --steps 50\npython tune.py --steps 50\n",
        "python tune.py --steps 50 && torchrun train.py --steps 50\n",
    ],
)
def test_a_script_that_starts_two_trainings_is_not_half_of_it(
    write: Make, text: str, target: str
) -> None:
    root = write({"train.sh": text, "train.py": MAIN, "tune.py": MAIN})
    error = refused(root / target, "2 commands (may )?start (the|a) training")
    assert error.where == "train.sh:1"


def test_a_training_in_a_loop_is_not_one_job(write: Make) -> None:
    text = "for seed in 1 2; do\n  python train.py --steps 50\ndone\n"
    root = write({"train.sh": text, "train.py": MAIN})
    assert refused(root / "train.sh", "runs more than once").where == "train.sh:2"


def test_what_prepares_and_evaluates_is_no_second_training(write: Make) -> None:
    text = "python prepare.py\npython train.py --steps 50\npython evaluate.py\n"
    files = {"train.sh": text, "train.py": MAIN, "prepare.py": "", "evaluate.py": "import torch\n"}
    assert read(write(files)).project.launch.command == "bash train.sh"


def test_a_broken_launch_script_beside_a_good_one_is_named(write: Make) -> None:
    files = {"train.sh": "python trian.py\n", "old.sh": "python train.py --steps 50\n"}
    root = write({**files, "train.py": MAIN})
    refused(root, r"2 files may start the training: 'old.sh', 'train.sh' .*'trian.py' does not")
    assert read(root, entry="train.py").project.launch.command == "bash old.sh"


def test_an_entry_that_no_script_starts_is_the_job_without_flags_and_said(write: Make) -> None:
    root = write({"train.sh": "python trian.py --steps 60\n", "train.py": MAIN})
    drafted = read(root, entry="train.py")
    assert drafted.project.launch.command == "python train.py"
    assert any("no launch script starts train.py" in note for note in drafted.notes)


def test_a_broken_helper_does_not_matter(write: Make) -> None:
    files = {"train.sh": "python train.py --steps 50\n", "plot.sh": "python gone.py\n"}
    assert read(write({**files, "train.py": MAIN})).project.launch.command == "bash train.sh"


def test_an_entry_that_the_script_does_not_start_is_not_ignored(write: Make) -> None:
    root = write({"train.sh": "python train.py --steps 50\n", "train.py": MAIN, "tune.py": MAIN})
    words = "`--entry` is 'tune.py', but the job starts 'train.py'"
    assert refused(root / "train.sh", words, entry="tune.py").where == "train.sh:1"


@pytest.mark.parametrize(
    ("flag", "fix"),
    [
        ("--stpes 50", "did you mean `--steps`?"),
        ("--micro-batch-size 4", "remove it, or define it"),
    ],
)
def test_a_flag_that_the_program_refuses_is_an_error(write: Make, flag: str, fix: str) -> None:
    root = write({"train.sh": f"set -e\npython train.py {flag}\n", "train.py": MAIN})
    error = refused(root / "train.sh", f"`{flag.split()[0]}` is passed, but train.py defines no")
    assert error.where == "train.sh:2"
    assert error.fix.startswith(fix)


def test_a_flag_of_a_program_that_takes_any_is_a_note_and_no_knob(write: Make) -> None:
    code = MAIN.replace("parse_args()", "parse_known_args()[0]")
    text = "python train.py --steps 50 --num-workers 2\n"
    drafted = read(write({"train.sh": text, "train.py": code}) / "train.sh")
    assert "dataloader_workers" not in [knob.name for knob in drafted.project.knobs]
    assert any("`--num-workers` is passed, but no definition" in note for note in drafted.notes)


@pytest.mark.parametrize("flag", ["--step 50", "--steps=50"])
def test_the_beginning_of_a_flag_is_the_flag(write: Make, flag: str) -> None:
    root = write({"train.sh": f"python train.py {flag}\n", "train.py": MAIN})
    assert read(root).project.workload.optimizer_steps == 50


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#!/bin/bash\n#SBATCH -N 2\npython train.py\n", 2),
        ("#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py\n", 2),
        ("#!/bin/bash\nsrun -N 2 --ntasks-per-node=1 python train.py\n", 2),
        ("torchrun --nnodes=2 --nproc-per-node=1 train.py\n", 1),
        ("torchrun --nnodes=1:2 train.py\n", 1),
    ],
)
def test_a_job_of_two_nodes_is_never_drafted_as_one(write: Make, text: str, line: int) -> None:
    drafted = read(write({"train.sh": text, "train.py": MAIN}) / "train.sh")
    assert drafted.project.launch.nodes == 2
    assert any(note.startswith(f"train.sh:{line}: the job asks for 2 no") for note in drafted.notes)


def test_a_number_of_nodes_that_cannot_be_read_is_no_guess(write: Make) -> None:
    root = write({"train.sh": 'torchrun --nnodes="$WORLD" train.py\n', "train.py": MAIN})
    assert refused(root / "train.sh", "the number of nodes is").where == "train.sh:1"


def test_a_number_of_nodes_that_repeats_the_header_is_known(write: Make) -> None:
    text = "#!/bin/bash\n#SBATCH -N 1\ntorchrun --nnodes=$SLURM_NNODES train.py\n"
    assert read(write({"train.sh": text, "train.py": MAIN})).project.launch.nodes == 1


def test_one_process_by_srun_is_said(write: Make) -> None:
    text = "#!/bin/bash\n#SBATCH --ntasks=1\nsrun python train.py\n"
    drafted = read(write({"train.sh": text, "train.py": MAIN}) / "train.sh")
    assert "train.sh:3: srun starts the training, so every run needs Slurm here" in drafted.notes


def test_a_home_that_the_script_sets_is_said(write: Make) -> None:
    text = "export HOME=/scratch/me\npython train.py\n"
    drafted = read(write({"train.sh": text, "train.py": MAIN}) / "train.sh")
    assert any("the script sets HOME to '/scratch/me'" in note for note in drafted.notes)
