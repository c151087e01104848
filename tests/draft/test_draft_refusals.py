"""What cannot be read or must not be run: one message with place, fact and fix."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import TRAIN, read

from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
LAUNCH = "#!/bin/bash\npython train.py --steps 50\n"


def refused(target: Path, words: str, **options: str) -> UserError:
    with pytest.raises(UserError, match=words) as caught:
        read(target, **options)
    assert caught.value.where
    assert caught.value.fix
    return caught.value


def test_a_script_that_does_not_exist_lists_what_does(write: Make) -> None:
    root = write({"run.sh": LAUNCH, "train.py": TRAIN})
    refused(root / "train.sh", r"there is no 'train.sh'; in .* there are 'run.sh', 'train.py'")


def test_an_empty_folder(write: Make) -> None:
    refused(write({"notes.txt": "x"}), "no launch script and no Python file that trains")


def test_several_scripts_are_named(write: Make) -> None:
    root = write({"a.sh": LAUNCH, "b.sh": LAUNCH, "train.py": TRAIN})
    error = refused(root, r"2 files may start the training: 'a.sh', 'b.sh'")
    assert "--command" in error.fix


def test_several_programs_are_named(write: Make) -> None:
    main = TRAIN + 'if __name__ == "__main__":\n    pass\n'
    refused(write({"a.py": main, "b.py": main}), r"2 files may start the training: 'a.py', 'b.py'")


def test_an_entry_chooses_among_them(write: Make) -> None:
    root = write(
        {
            "a.sh": LAUNCH,
            "b.sh": LAUNCH.replace("train", "tune"),
            "train.py": TRAIN,
            "tune.py": TRAIN,
        }
    )
    assert read(root, entry="tune.py").project.launch.command == "bash b.sh"


def test_a_command_chooses_among_them(write: Make) -> None:
    root = write({"a.sh": LAUNCH, "b.sh": LAUNCH, "train.py": TRAIN})
    project = read(root, command="bash b.sh --fast").project
    assert (project.launch.command, project.launch.script) == ("bash b.sh --fast", "b.sh")
    bare = read(root, command="python train.py --steps 60").project
    assert (bare.launch.script, bare.workload.optimizer_steps) == (None, 60)


def test_an_entry_that_does_not_exist(write: Make) -> None:
    refused(write({"train.py": TRAIN}), "there is no 'main.py' in", entry="main.py")


def test_a_binary_file_is_no_script(write: Make) -> None:
    root = write({"train.py": TRAIN})
    (root / "train.sh").write_bytes(b"\x7fELF\xff\xfe\x00")
    refused(root / "train.sh", "not a text file, so it is no bash script")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.fish", "#!/usr/bin/env fish\npython train.py\n", "this is a fish script"),
        ("train.txt", "python train.py\n", r"it ends in '.txt' and has no `#!` line"),
        ("train.sh", "#!/bin/bash\necho hello\n", "no command that starts training"),
        ("train.sh", "", "no command that starts training"),
        ("train.sh", "python missing.py\n", "the entry 'missing.py' does not exist"),
        ("train.sh", 'python "$1"\n', "depends on what only a run can tell"),
        ("train.sh", "python train.py &\npython train.py\n", "2 commands may start the training"),
        ("train.sh", "python train.py --steps 3\n", "takes 3 optimizer steps"),
    ],
)
def test_a_script_that_cannot_be_used(write: Make, name: str, text: str, words: str) -> None:
    refused(write({name: text, "train.py": TRAIN}) / name, words)


def test_an_entry_that_is_no_python(write: Make) -> None:
    root = write({"train.sh": LAUNCH, "train.py": "def broken(:\n"})
    error = refused(root / "train.sh", "does not parse as Python")
    assert error.where == "train.py:1"


def test_a_framework_that_is_not_understood_is_named(write: Make) -> None:
    code = TRAIN + "import pytorch_lightning as pl\n"
    root = write({"train.sh": "python train.py\n", "train.py": code})
    error = refused(root / "train.sh", "this job uses PyTorch Lightning")
    assert error.where.startswith("train.py:")


def test_a_program_without_torch(write: Make) -> None:
    root = write({"train.sh": LAUNCH, "train.py": "print('steps')\n"})
    refused(root / "train.sh", "do not import torch")


def test_a_trainer_of_the_jobs_own_is_no_other_stack(write: Make) -> None:
    own = "class Trainer:\n    pass\n\n\nTrainer()\n"
    read(write({"train.sh": LAUNCH, "train.py": TRAIN + own}) / "train.sh")


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("torch.save({}, '/scratch/model.pt')", "/scratch/model.pt"),
        ("open('/data/log.txt', 'a')", "/data/log.txt"),
        ("import os\nos.makedirs(os.path.expanduser('~/runs'))", "~/runs"),
        ("from pathlib import Path\n(Path.home() / 'runs').mkdir()", "~/runs"),
        ("from pathlib import Path\nPath('../shared/x.txt').write_text('')", r"\.\./shared/x\.txt"),
        ("ROOT = '/scratch'\ntorch.save({}, f'{ROOT}/{args.steps}.pt')", "/scratch/"),
        ("def save(to):\n    torch.save({}, to)\n\n\nsave('/scratch/m.pt')", "/scratch/m.pt"),
        ("import shutil\nshutil.copy('a', '/scratch/b')", "/scratch/b"),
        ("open('/tmp/shared.txt', mode='w')", "/tmp/shared.txt"),
    ],
)
def test_a_fixed_place_outside_the_project_stops_before_the_first_run(
    write: Make, code: str, path: str
) -> None:
    root = write({"train.sh": LAUNCH, "train.py": f"{TRAIN}{code}\n"})
    error = refused(root / "train.sh", f"it writes to '{path}', outside the project")
    assert error.where.startswith("train.py:")
    assert "--out-dir" in error.fix


@pytest.mark.parametrize(
    "code",
    [
        "open('/dev/null', 'w')",
        "open('/data/tokens.bin', 'rb')",
        "torch.load('/models/base.pt')",
        "import tempfile\nopen(tempfile.mkdtemp() + '/x', 'w')",
        "import os\ntorch.save({}, os.path.join(args.out, 'm.pt'))",
        "import os\nos.makedirs(os.path.dirname(os.path.abspath(__file__)) + '/out2')",
        "from PIL import Image\nImage.open('/data/a.png')",
    ],
)
def test_reading_elsewhere_and_writing_inside_is_fine(write: Make, code: str) -> None:
    read(write({"train.sh": LAUNCH, "train.py": f"{TRAIN}{code}\n"}) / "train.sh")


def test_all_fixed_places_are_named_at_once(write: Make) -> None:
    code = "torch.save({}, '/a/1.pt')\ntorch.save({}, '/b/2.pt')\n"
    root = write({"train.sh": LAUNCH, "train.py": TRAIN + code})
    error = refused(root / "train.sh", "'/a/1.pt'")
    assert "train.py:11: it writes to '/b/2.pt'" in error.what


def test_a_script_that_writes_outside(write: Make) -> None:
    text = "python train.py --steps 50 > /var/log/train.log\n"
    root = write({"train.sh": text, "train.py": TRAIN})
    error = refused(root / "train.sh", "the script writes to '/var/log/train.log'")
    assert error.where == "train.sh:1"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("model.push_to_hub('me/model')", "uploads to a model hub"),
        ("import comet_ml", "reports to Comet"),
    ],
)
def test_what_leaves_the_machine_stops_before_the_first_run(
    write: Make, code: str, words: str
) -> None:
    refused(write({"train.sh": LAUNCH, "train.py": f"{TRAIN}{code}\n"}) / "train.sh", words)


def test_a_config_that_does_not_exist(write: Make) -> None:
    root = write({"train.sh": LAUNCH, "train.py": TRAIN})
    refused(root / "train.sh", "there is no 'a.yaml'", config="a.yaml")


def test_a_program_that_relies_on_torchrun_is_started_by_it(write: Make) -> None:
    code = TRAIN + "import os\nrank = int(os.environ['LOCAL_RANK'])\n"
    drafted = read(write({"train.py": code}) / "train.py", gpus=4)
    assert drafted.project.launch.command.startswith("torchrun --standalone --nproc_per_node=4")
    assert "train.py:11" in drafted.questions[0].text


@pytest.mark.parametrize("folder", ["with space", "quo'te", "d$llar", "um laut ue", "-dash"])
def test_odd_names_of_folders(tmp_path: Path, folder: str) -> None:
    root = tmp_path / folder
    (root / "sub dir").mkdir(parents=True)
    (root / "sub dir" / "train it.sh").write_text('cd "$(dirname "$0")" && python train.py\n')
    (root / "sub dir" / "train.py").write_text(TRAIN)
    drafted = read(root / "sub dir" / "train it.sh")
    assert drafted.project.launch.command == "bash 'train it.sh'"
    assert drafted.root == root / "sub dir"
