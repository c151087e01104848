"""A small job on disk and its contract."""

from pathlib import Path
from typing import Any

from infrarsi.contract import Candidate, Patch, Project
from infrarsi.workspace.patching import make

MODEL = "import os\n\nwidth = 4\n\n\ndef size():\n    return width\n"
TRAIN = "import sys\nimport model\nprint(sys.argv[1:], model.size())\n"
SCRIPT = """#!/bin/bash
# the job
set -eu
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
torchrun --nproc_per_node=2 train.py \\
  --batch 1 \\
  --out out  # results
"""
KNOBS: list[dict[str, Any]] = [
    {
        "name": "batch",
        "family": "micro_batch",
        "reference": 1,
        "values": {1: {}, 4: {"set": {"flag:--batch": 4, "flag:--accum": 2}}},
    },
    {
        "name": "threads",
        "family": "cpu_threads",
        "at": "env:OMP_NUM_THREADS",
        "values": [1, 2],
        "reference": 1,
    },
    {
        "name": "procs",
        "family": "processes",
        "at": "launcher:--nproc_per_node",
        "values": [1, 2],
        "reference": 2,
    },
    {
        "name": "fused",
        "family": "fused",
        "at": "flag:--fused",
        "values": [True, False],
        "reference": False,
    },
    {
        "name": "quiet",
        "family": "logging",
        "reference": "no",
        "values": {"no": {}, "yes": {"remove": ["env:OMP_NUM_THREADS", "flag:--batch"]}},
    },
]


def write(root: Path) -> Path:
    """The job in a folder."""
    root.mkdir(parents=True)
    (root / "model.py").write_text(MODEL)
    (root / "train.py").write_text(TRAIN)
    (root / "train.sh").write_text(SCRIPT)
    (root / "train.sh").chmod(0o755)
    return root


def project(**changes: Any) -> Project:
    """Its contract; `changes` replace top-level keys."""
    data: dict[str, Any] = {
        "schema": "infrarsi-project-v1",
        "name": "small",
        "launch": {"command": "bash train.sh", "script": "train.sh"},
        "knobs": KNOBS,
        "editable": ["model.py", "train.py"],
        "sinks": {"flag:--out": "fresh", "env:WANDB_MODE": "offline", "path:out": "fresh"},
    }
    return Project.model_validate({**data, **changes})


def patch(path: str = "model.py", old: str = "width = 4", new: str = "width = 8") -> Patch:
    """A patch of one file of the job."""
    text = {"model.py": MODEL, "train.py": TRAIN}[path]
    return Patch(("widen",), make({path: text}, {path: text.replace(old, new)}))


def candidate(settings: dict[str, Any] | None = None, *, patched: bool = False) -> Candidate:
    """Settings, and the patch if asked for."""
    return Candidate.of(settings, patch() if patched else None)
