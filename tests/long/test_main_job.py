"""The README's main job, whole: `pytest -m long`. Ten to fifteen minutes on two quiet cores."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"infrarsi.yaml", "infrarsi_optimized.sh"}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of the user's."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.name not in MADE
    }


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_the_example_becomes_faster_is_verified_and_applied(tmp_path: Path) -> None:
    job = tmp_path / "my-job"
    shutil.copytree(ROOT / "examples" / "ddp_gpt", job)
    before = digests(job)
    program = Path(sys.executable).with_name("infrarsi")
    began = time.monotonic()
    command = [str(program), "run", "my-job", "--llm", "none", "--screens", "8"]
    subprocess.run([str(program), "init", "my-job/train.sh"], cwd=tmp_path, check=True)
    subprocess.run(command, cwd=tmp_path, check=True)
    assert digests(job) == before
    subprocess.run([str(program), "apply", "--write"], cwd=tmp_path, check=True)
    assert time.monotonic() - began < 15 * 60

    (run,) = (tmp_path / ".infrarsi" / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    assert result["promoted"]
    assert result["speedup_low"] > 1.15
    assert result["overhead_per_trial_s"] < 3.0
    assert result["pairs"] >= 4

    shutil.rmtree(tmp_path / ".infrarsi")
    optimized = subprocess.run(
        ["bash", "infrarsi_optimized.sh"], cwd=job, capture_output=True, text=True, check=True
    )
    assert "saved out/checkpoint.pt" in optimized.stdout
