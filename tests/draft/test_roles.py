"""Which files may be edited."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import TRAIN, read

Make = Callable[[Mapping[str, str]], Path]
MODULE = "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    pass\n"
READER = """class R:
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return i
"""
LOSS_AND_MORE = "\n\ndef lm_loss(a):\n    return a\n\n\nclass A(nn.Module):\n    pass\n"
MADE = """from datasets import Dataset, load_dataset


def rows(name):
    return load_dataset(name) if name else Dataset.from_dict({"a": [1]})


def name_of(row):
    return row
"""
DATASET = "from torch.utils.data import Dataset\n\n\nclass D(Dataset):\n    pass\n"


@pytest.mark.parametrize(
    ("name", "text", "frozen"),
    [
        ("model", MODULE, False),
        ("data_parallel_model", MODULE, False),
        ("layers", "def rotate(x):\n    return x\n", False),
        ("corpus_reader", "def rows():\n    return []\n", True),
        ("stuff", DATASET, True),
        ("stuff", DATASET + "\n\ndef loader():\n    return DataLoader(D())\n", False),
        ("data", "def loader(d):\n    return DataLoader(d)\n", False),
        ("reader", READER, True),
        ("conversations", MADE, True),
        ("helpers", MADE + "\n\ndef a():\n    return 0\n\n\ndef b():\n    return 0\n", False),
        ("words", "def make():\n    return AutoTokenizer.from_pretrained('x')\n", True),
        ("evaluation", "def run(m):\n    return 0\n", True),
        ("quality", "def evaluate(m):\n    return 0\n", True),
        ("losses", "def ce(a, b):\n    return 0\n", True),
        ("focal", "class FocalLoss:\n    pass\n", True),
        ("modeling", MODULE + LOSS_AND_MORE, False),
        ("timer", "def now():\n    return 0\n", True),
        ("logger", "def write(x):\n    return x\n", True),
        ("lr_schedule", "def rate(step):\n    return step\n", False),
    ],
)
def test_a_files_role(write: Make, name: str, text: str, frozen: bool) -> None:
    root = write(
        {"train.sh": "python train.py\n", "train.py": f"import {name}\n{TRAIN}", f"{name}.py": text}
    )
    project = read(root / "train.sh").project
    assert (f"{name}.py" in project.frozen) is frozen
    assert (f"{name}.py" in project.editable) is not frozen


def test_files_that_are_not_imported_are_neither(write: Make) -> None:
    root = write({"train.sh": "python train.py\n", "train.py": TRAIN, "model.py": MODULE})
    project = read(root / "train.sh").project
    assert project.editable == ["train.py"]
    assert project.frozen == {}


def test_a_file_that_does_not_parse_is_frozen(write: Make) -> None:
    files = {"train.sh": "python train.py\n", "train.py": f"import m\n{TRAIN}", "m.py": "def :\n"}
    assert list(read(write(files) / "train.sh").project.frozen) == ["m.py"]


SHARED = {
    "train.sh": "python train.py\n",
    "train.py": f"import pipeline.reader\nimport checks\nimport model\n{TRAIN}",
    "pipeline/__init__.py": "from . import reader, rows\n",
    "pipeline/reader.py": f"from pipeline import rows, shared\n{DATASET}",
    "pipeline/rows.py": "import deep\n\n\ndef split(x):\n    return x\n",
    "pipeline/shared.py": "def both(x):\n    return x\n",
    "deep.py": "def rows(x):\n    return x\n",
    "checks.py": "import numbers_of\n\n\ndef evaluate(m):\n    return 0\n",
    "numbers_of.py": "def mean(x):\n    return x\n",
    "model.py": f"from pipeline import shared\nimport layers\n{MODULE}",
    "layers.py": "def rotate(x):\n    return x\n",
}


def test_what_only_data_loading_or_evaluation_imports_is_frozen_with_them(write: Make) -> None:
    drafted = read(write(SHARED) / "train.sh")
    frozen = {"pipeline/reader.py", "pipeline/rows.py", "deep.py", "checks.py", "numbers_of.py"}
    assert set(drafted.project.frozen) == frozen
    assert {"pipeline/shared.py", "layers.py", "model.py"} <= set(drafted.project.editable)
    why = drafted.comments[("frozen", "deep.py")]
    assert why == "data, imported only by pipeline/rows.py"


@pytest.mark.parametrize(
    "text",
    [
        "class PadCollator:\n    pass\n",
        "class BpeTokenizer:\n    pass\n",
        "class BucketSampler:\n    pass\n",
        "class RougeMetric:\n    pass\n",
    ],
    ids=["collator", "tokenizer", "sampler", "metric"],
)
def test_what_prepares_or_judges_data_is_frozen(write: Make, text: str) -> None:
    files = {"train.sh": "python train.py\n", "train.py": f"import m\n{TRAIN}", "m.py": text}
    assert list(read(write(files) / "train.sh").project.frozen) == ["m.py"]


def test_a_large_or_binary_file_is_neither(write: Make) -> None:
    files = {"train.sh": "python train.py\n", "train.py": f"import m\nimport n\n{TRAIN}"}
    root = write({**files, "m.py": "X = 1\n" * 600_000})
    (root / "n.py").write_bytes(b"\x80\0\xff" * 10)
    drafted = read(root / "train.sh")
    assert drafted.project.editable == ["train.py"]
    assert drafted.project.frozen == {}
    assert any("m.py: 3.6 MB" in told for told in drafted.unknowns)
    assert any("n.py: it is no text" in told for told in drafted.unknowns)
