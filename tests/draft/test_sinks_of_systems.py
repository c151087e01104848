"""A place that the job writes to is redirected where its argument system, or its file, names it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from argument_programs import CONFIGURATOR
from reading_jobs import read

Write = Callable[[Mapping[str, str]], Path]
LOSS = "loss = torch.zeros(1, requires_grad=True)\nloss.sum().backward()\n"
INDENTED = "    " + LOSS.replace("\n", "\n    ").rstrip() + "\n"
GLOBALS = (
    "import os\nimport torch\nout_dir = '/scratch/me/out'\nmax_iters = 500\n"
    "exec(open('configurator.py').read())\nos.makedirs(out_dir, exist_ok=True)\n"
    + LOSS
    + "torch.save(loss, os.path.join(out_dir, 'last.pt'))\n"
)
HYDRA = (
    "import hydra\nimport torch\n\n\n@hydra.main(config_path='conf', config_name='config')\n"
    "def main(cfg):\n"
    + INDENTED
    + "    torch.save(loss, cfg.paths.save_dir + '/last.pt')\n\n\nmain()\n"
)
TYPER = (
    "import torch\nimport typer\n\n\ndef main(steps: int = 500, where: str = '/scratch/out'):\n"
    + INDENTED
    + "    torch.save(loss, where + '/last.pt')\n\n\ntyper.run(main)\n"
)
JSON = (
    "import json\nimport torch\nc = json.load(open('run.json'))\n"
    + LOSS
    + "torch.save(loss, c['io']['target'] + '/last.pt')\n"
)


@pytest.mark.parametrize(
    ("files", "sink"),
    [
        ({"train.py": GLOBALS, "configurator.py": CONFIGURATOR}, "flag:--out_dir="),
        (
            {
                "train.py": HYDRA,
                "conf/config.yaml": "paths:\n  save_dir: /scratch/me\nmax_steps: 500\n",
            },
            "flag:paths.save_dir",
        ),
        ({"train.py": TYPER}, "flag:--where"),
        (
            {"train.py": JSON, "run.json": '{"max_steps": 500, "io": {"target": "/scratch/me"}}'},
            "config:run.json:io.target",
        ),
    ],
    ids=["globals", "hydra", "typer", "json"],
)
def test_a_place_outside_is_redirected_where_it_is_named(
    files: Mapping[str, str], sink: str, write: Write
) -> None:
    drafted = read(write({"train.sh": "python train.py\n", **files}) / "train.sh")
    assert drafted.project.sinks == {sink: "fresh"}
    assert drafted.project.workload.planned_steps == 500
