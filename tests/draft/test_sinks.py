"""Where a job writes: which place redirects it, and what is left alone."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import TRAIN, read

from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
LAUNCH = "python train.py --steps 50\n"
NO_SINK = TRAIN.replace('parser.add_argument("--out", default="out")\n', "")


def sinks(write: Make, code: str, *, launch: str = LAUNCH, **files: str) -> dict[str, str]:
    root = write({"train.sh": launch, "train.py": f"{NO_SINK}{code}\n", **files})
    return read(root / "train.sh").project.sinks


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("torch.save({}, 'out/model.pt')", "path:out"),
        ("torch.save(obj={}, f='a/b/model.pt')", "path:a"),
        ("open('log.txt', 'w')", "path:log.txt"),
        ("from pathlib import Path\n(Path('x') / 'y').mkdir(parents=True)", "path:x"),
        ("from pathlib import Path\nPath('x/y.txt').open('w')", "path:x"),
        ("import numpy as np\nnp.savez('arrays/a.npz')", "path:arrays"),
        ("import logging\nlogging.FileHandler('logs/a.log')", "path:logs"),
        ("from torch.utils.tensorboard import SummaryWriter\nSummaryWriter()", "path:runs"),
        (
            "from torch.utils.tensorboard import SummaryWriter\nSummaryWriter(log_dir='tb')",
            "path:tb",
        ),
        (
            "import os\nHERE = os.path.dirname(__file__)\nos.makedirs(os.path.join(HERE, 'w'))",
            "path:w",
        ),
        ("import os\nfor i in range(3):\n    torch.save({}, 'ck/{}.pt'.format(i))", "path:ck"),
        (
            "class A:\n    def __init__(self, to):\n        self.to = to\n"
            "    def go(self):\n        torch.save({}, self.to)\n\n\nA('deep/er.pt').go()",
            "path:deep",
        ),
        ("name = 'n'\nwith open(name + '/x.txt', 'a') as f:\n    pass", "path:n"),
        ("import wandb", "env:WANDB_MODE"),
        ("import mlflow", "env:MLFLOW_TRACKING_URI"),
        ("import os\ntorch.save({}, os.environ.get('OUT', 'o') + '/x')", "env:OUT"),
        ("import os\ntorch.save({}, os.path.join(os.getenv('OUT', 'o'), 'x'))", "env:OUT"),
    ],
)
def test_a_write_in_code_becomes_a_sink(write: Make, code: str, place: str) -> None:
    assert set(sinks(write, code)) == {place}


@pytest.mark.parametrize(
    "definition",
    [
        '"--output-dir", default="o"',
        '"--save_dir", default="o"',
        '"--checkpoint-path", default="o"',
        '"--log-file", default="o.txt"',
        '"--tensorboard-dir", default="o"',
        '"--model-to", default="o", help="file that the model is saved to"',
        '"--results", default="o"',
    ],
)
def test_a_flag_that_says_that_it_is_written_to_is_a_sink(write: Make, definition: str) -> None:
    code = NO_SINK.replace("args =", f"parser.add_argument({definition})\nargs =")
    root = write({"train.sh": LAUNCH, "train.py": code})
    flag = definition.split('"')[1]
    assert read(root / "train.sh").project.sinks == {f"flag:{flag}": "fresh"}


@pytest.mark.parametrize(
    "definition",
    [
        '"--save-every", type=int, default=5',
        '"--log-level", default="info"',
        '"--checkpoint", default="base.pt", help="checkpoint to resume from"',
        '"--resume", default="out/last.pt"',
        '"--load-checkpoint", default="x"',
        '"--output-dir", default=None',
        '"--save", action="store_true"',
        '"--log", choices=["a", "b"], default="a"',
        '"--data", default="data/x.txt", help="text file to train on"',
        '"--run-name", default="a", help="name of the run"',
    ],
)
def test_a_flag_that_only_sounds_like_it_is_none(write: Make, definition: str) -> None:
    code = NO_SINK.replace("args =", f"parser.add_argument({definition})\nargs =")
    root = write({"train.sh": LAUNCH, "train.py": code})
    assert read(root / "train.sh").project.sinks == {}


def test_a_flag_that_code_writes_to_is_a_sink_whatever_it_is_called(write: Make) -> None:
    code = NO_SINK.replace("args =", 'parser.add_argument("--where", default="w")\nargs =')
    root = write({"train.sh": LAUNCH, "train.py": code + "torch.save({}, args.where + '/x.pt')\n"})
    assert read(root / "train.sh").project.sinks == {"flag:--where": "fresh"}


def test_a_name_inside_a_fixed_folder_does_not_hide_the_folder(write: Make) -> None:
    code = NO_SINK.replace("args =", 'parser.add_argument("--tag", default="t")\nargs =')
    root = write({"train.sh": LAUNCH, "train.py": code + "torch.save({}, f'runs/{args.tag}/x')\n"})
    assert read(root / "train.sh").project.sinks == {"path:runs": "fresh"}


@pytest.mark.parametrize(
    ("launch", "places"),
    [
        (LAUNCH.strip() + " > train.log\n", {"path:train.log"}),
        (LAUNCH.strip() + " 2>&1 | tee logs/$(date +%s).txt\n", set()),
        ("mkdir -p out/a\n" + LAUNCH, {"path:out"}),
        ("OUT=${OUT:-/scratch/x}\nmkdir -p $OUT\n" + LAUNCH, {"env:OUT"}),
        ("mkdir -p data\n" + LAUNCH, set()),
        (LAUNCH.strip() + " > /dev/null 2>&1\n", set()),
    ],
)
def test_writes_of_the_script(write: Make, launch: str, places: set[str]) -> None:
    found = sinks(write, "", launch=launch, **{"data/train.csv": "1,2\n"})
    assert set(found) == places


def test_an_input_that_is_also_written_stays_in_every_copy(write: Make) -> None:
    files = {"data/train.csv": "1", "data/meta.json": "{}", "checkpoints/old.pt": "x"}
    code = "open('data/meta.json', 'w')\nopen('data/new.bin', 'wb')\nopen('checkpoints/n.pt', 'wb')"
    assert set(sinks(write, code, **files)) == {"path:data/new.bin", "path:checkpoints"}


def test_a_folder_with_source_code_is_never_emptied(write: Make) -> None:
    files = {"exp/model.py": "x = 1\n", "work/conf.py": "y = 1\n"}
    code = "open('exp/out.txt', 'w')\nopen('work/model.py', 'w')"
    assert set(sinks(write, code, **files)) == {"path:exp/out.txt", "path:work/model.py"}


def test_an_unreadable_place_is_said_and_not_guessed(write: Make) -> None:
    root = write(
        {"train.sh": LAUNCH, "train.py": NO_SINK + "import x\ntorch.save({}, x.place())\n"}
    )
    drafted = read(root / "train.sh")
    assert drafted.project.sinks == {}
    assert drafted.unknowns == ("where train.py:10 writes to (`torch.save`)",)


def test_functions_that_pass_a_path_on_to_each_other_are_read_once(write: Make) -> None:
    functions = [
        f"def f{i}(path):\n" + "".join(f"    f{j}(path)\n" for j in range(12) if j != i)
        for i in range(12)
    ]
    code = "\n\n".join([*functions, "def save(path):\n    torch.save({}, path)", "f0('o/m.pt')"])
    code = code.replace("    f1(path)\n", "    save(path)\n    f1(path)\n", 1)
    began = time.thread_time()
    assert set(sinks(write, code)) == {"path:o"}
    assert time.thread_time() - began < 5.0  # following every chain of calls takes hours


UPLOADS = """import argparse
import torch
from shared import publish, train

parser = argparse.ArgumentParser()
parser.add_argument("--hub_id", default=None)
args = parser.parse_args()
loss = torch.zeros(1, requires_grad=True)
loss.sum().backward()
train(args)
"""


@pytest.mark.parametrize(
    ("shared", "more", "is_refused"),
    [
        ("def publish(model):\n    model.push_to_hub('x')\n", "", False),
        ("def publish(model):\n    model.push_to_hub('x')\n", "publish(None)\n", True),
        ("def publish(model):\n    send(model)\n\ndef send(model):\n    model.push_to_hub('x')\n",
         "", False),
        ("def publish(model):\n    send(model)\n\ndef send(model):\n    model.push_to_hub('x')\n",
         "publish(None)\n", True),
        ("def publish(model):\n    pass\n\nclass A:\n    def on_end(self):\n"
         "        self.push_to_hub('x')\n", "", True),
        ("def publish(model):\n    model.push_to_hub('x')\n\n"
         "if __name__ == '__main__':\n    publish(None)\n", "", False),
        ("def publish(args):\n    if args.hub_id is not None:\n        args.push_to_hub('x')\n",
         "publish(args)\n", False),
        ("def publish(model):\n    open('/srv/models/x', 'w')\n", "", False),
        ("def publish(model):\n    open('/srv/models/x', 'w')\n", "publish(None)\n", True),
    ],
    ids=["never called", "called", "called by what is never called", "called through another",
         "a method", "called by its own main", "behind an id that is not given",
         "a write that is not come to", "a write that is come to"],
)  # fmt: skip
def test_what_a_job_never_comes_to_does_not_stop_it(
    write: Make, shared: str, more: str, is_refused: bool
) -> None:
    shared += "\ndef train(args):\n    pass\n"
    files = {"run.sh": "python main.py\n", "main.py": UPLOADS + more, "shared.py": shared}
    target = write(files) / "run.sh"
    if is_refused:
        with pytest.raises(UserError, match="every trial would"):
            read(target)
    else:
        read(target)


def test_a_cache_of_downloads_is_shared(write: Make) -> None:
    more = "import os\nos.makedirs(os.path.expanduser('~/.cache/weights'), exist_ok=True)\n"
    text = UPLOADS + more
    files = {
        "run.sh": "python main.py\n",
        "main.py": text,
        "shared.py": "publish = train = print\n",
    }
    draft = read(write(files) / "run.sh")
    assert any("a cache of downloads" in note for note in draft.notes)


def test_a_checkpoint_among_the_downloads_stops(write: Make) -> None:
    more = "import os\ntorch.save({}, os.path.expanduser('~/.cache/weights/own.pt'))\n"
    files = {
        "run.sh": "python main.py\n",
        "main.py": UPLOADS + more,
        "shared.py": "publish = train = print\n",
    }
    with pytest.raises(UserError, match="outside the project"):
        read(write(files) / "run.sh")


def test_a_path_of_parts_that_are_not_known_is_no_place_outside(write: Make) -> None:
    text = UPLOADS + (
        "class Probe:\n    def dump(self, name):\n"
        "        torch.save({}, self.folder / f'{name}.pkl')\n"
    )
    files = {
        "run.sh": "python main.py\n",
        "main.py": text,
        "shared.py": "publish = train = print\n",
    }
    assert any("torch.save" in text for text in read(write(files) / "run.sh").unknowns)
