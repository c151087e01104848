"""TF32 is allowed at the entry of a job, below its imports, and nowhere it was decided already."""

import re

import pytest
import torch
from recipe_runs import applied, changed_lines, declined, job, run

from infrarsi.workspace.recipes.matmul_precision import MatmulPrecision

RECIPE = MatmulPrecision()
TRAIN = job(
    """
    def main():
        global losses
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(torch.ones(2, 4)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


    if __name__ == "__main__":
        main()
    """
)

FITS = {
    "imports alone": "import torch\n\n",
    "docstring": '"""Trains."""\nfrom __future__ import annotations\n\nimport torch\n\n',
    "alias": "import math\nimport torch as torch\nfrom torch import nn\n\n",
    "environment between imports": (
        'import os\n\nos.environ["OMP_NUM_THREADS"] = "1"\nimport torch\n\n'
    ),
    "optional import": (
        "import torch\n\ntry:\n    from wandb import init\nexcept ImportError:\n    init = None\n\n"
    ),
    "long import": "import torch\nfrom torch import (\n    nn,\n    optim,\n)\n\n",
    "constants after imports": "import torch\n\nSEED = 1\ntorch.manual_seed(SEED)\n\n",
    "windows line ends": "import torch\r\n\r\n",
}


@pytest.fixture(autouse=True)
def _precision() -> "pytest.FixtureRequest":
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("name", FITS)
def test_the_entry_allows_tf32_below_its_imports(name: str) -> None:
    code = FITS[name] + TRAIN
    if "\r" in code:
        code = code.replace("\r\n", "\n").replace("\n", "\r\n")
    after = applied(RECIPE, {"train.py": code})["train.py"]
    added = [line for line in changed_lines(code, after) if line != "+"]
    assert added == ['+torch.set_float32_matmul_precision("high")']
    assert ("\r\n" in after) == ("\r" in code)
    assert run(after)["losses"] == run(code)["losses"]
    assert torch.get_float32_matmul_precision() == "high"


def test_an_alias_of_torch_is_used() -> None:
    code = "import torch as th\n\nmodel.fit()\nloss.backward()\n"
    after = applied(RECIPE, {"train.py": code})["train.py"]
    assert 'th.set_float32_matmul_precision("high")' in after


def test_the_program_that_trains_is_found_among_others() -> None:
    files = {
        "model.py": "import torch\n",
        "prepare.py": "import torch\n\nif __name__ == '__main__':\n    print(1)\n",
        "main.py": "import torch\n\n" + TRAIN,
    }
    after = applied(RECIPE, files)
    assert [path for path in files if files[path] != after[path]] == ["main.py"]


LOOK_ALIKES = {
    "set already": 'torch.set_float32_matmul_precision("highest")',
    "backend flag": "torch.backends.cuda.matmul.allow_tf32 = False",
    "new flag": 'torch.backends.cuda.matmul.fp32_precision = "ieee"',
    "command line flag": 'parser.add_argument("--tf32", action="store_true")',
    "trainer argument": "arguments = TrainingArguments(tf32=False)",
    "environment": 'os.environ["NVIDIA_TF32_OVERRIDE"] = "0"',
    "double parameters": "model = model.double()",
    "double tensors": "scale = torch.ones(3, dtype=torch.float64)",
    "default dtype": "torch.set_default_dtype(torch.float32)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "deterministic cudnn": "torch.backends.cudnn.deterministic = True",
    "workspace": 'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"',
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_job_that_decided_already_is_left(name: str) -> None:
    code = "import os\nimport torch\n\n" + LOOK_ALIKES[name] + "\n" + TRAIN
    assert re.match(r"train\.py:4: ", declined(RECIPE, {"train.py": code}))


def test_the_flag_may_stand_in_another_file() -> None:
    other = "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = True\n"
    reason = declined(RECIPE, {"train.py": "import torch\n" + TRAIN, "setup.py": other})
    assert reason.startswith("setup.py:3: TF32 is chosen already")


def test_numpys_float64_says_nothing_of_the_model() -> None:
    code = "import numpy as np\nimport torch\n\nSCALE = np.float64(1)\n" + TRAIN
    applied(RECIPE, {"train.py": code})


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        pytest.param({"model.py": "import torch\n"}, "no editable file", id="no entry"),
        pytest.param(
            {"a.py": "import torch\n" + TRAIN, "b.py": "import torch\n" + TRAIN},
            "b.py:1: several files",
            id="two entries",
        ),
        pytest.param({"a.py": "from torch import nn\n" + TRAIN}, "not imported", id="no torch"),
        pytest.param({}, "no editable file", id="nothing"),
    ],
)
def test_without_one_clear_entry_nothing_is_changed(files: dict[str, str], reason: str) -> None:
    assert reason in declined(RECIPE, files)


def test_it_is_offered_only_where_tf32_is_allowed() -> None:
    assert RECIPE.needs == ("tf32",)
