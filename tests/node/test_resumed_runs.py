"""Real runs: checkpoints kept, runs that resume from them, commands without a witness."""

import os
from pathlib import Path
from typing import Any

import pytest

from infrarsi.contract import (
    SINKS_TOKEN,
    ExecutionRequest,
    ExecutionResult,
    Outcome,
    Overlay,
    RunKind,
    SnapshotRef,
)
from infrarsi.node.digests import digest_file
from infrarsi.node.local_bench import LocalBench

TRAIN = """import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out")
parser.add_argument("--resume")
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
first = 0
if args.resume:
    state = torch.load(args.resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
    print("resumed from step", first, flush=True)
for step in range(first, args.steps):
    x = torch.full((8, 4), 1.0 + step)
    loss = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
os.makedirs(args.out, exist_ok=True)
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": args.steps}
torch.save(state, os.path.join(args.out, "last.pt"))
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("it's a bed")  # a path that must be linked to
    (root / "snapshot" / "tree" / "tests").mkdir(parents=True)
    (root / "snapshot" / "tree" / "train.py").write_text(TRAIN)
    (root / "snapshot" / "tree" / "tests" / "check.py").write_text("print('checked')\n")
    return root


def execute(bed: Path, name: str, command: str, **changes: Any) -> ExecutionResult:
    fields: dict[str, Any] = {
        "execution_id": name,
        "kind": RunKind.AUDIT,
        "snapshot": SnapshotRef("d", str(bed / "snapshot"), "job"),
        "overlay": Overlay(command),
        "receipt_dir": str(bed / name),
        "cache_dir": str(bed / "cache"),
        "optimizer_steps": 6,
        "ends_by": "job",
        "witness_key": "00" * 16,
        "timeout_s": 60.0,
    }
    with LocalBench(base=dict(os.environ)) as bench:
        result = bench.start(ExecutionRequest(**(fields | changes))).wait(90.0)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def kept(bed: Path) -> ExecutionResult:
    return execute(bed, "first", f"python train.py --out {SINKS_TOKEN}/out", keep_checkpoints=True)


@pytest.mark.slow
def test_an_audit_lists_what_was_left_and_keeps_it_on_request(
    bed: Path, kept: ExecutionResult
) -> None:
    assert kept.outcome is Outcome.OK, kept.reason
    assert kept.checkpoints["out/last.pt"]["scalars"]["step"] == 6
    assert sorted(p.name for p in (bed / "first").iterdir()) == [
        "checkpoints",
        "stdout.log",
        "witness",
    ]
    assert (bed / "first" / "checkpoints" / "sinks" / "out" / "last.pt").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("is_laid_beside", [True, False], ids=["named", "put back"])
def test_a_run_resumes_from_what_was_kept_and_leaves_it_as_it_was(
    bed: Path, kept: ExecutionResult, is_laid_beside: bool
) -> None:
    source = bed / "first" / "checkpoints"
    before = digest_file(source / "sinks" / "out" / "last.pt")
    where = "@CHECKPOINT@" if is_laid_beside else f"{SINKS_TOKEN}/out/last.pt"
    result = execute(
        bed,
        f"resumed-{is_laid_beside}",
        f"python train.py --steps 11 --out {SINKS_TOKEN}/out --resume {where}",
        optimizer_steps=4,
        ends_by="witness",
        kind=RunKind.AUDIT if is_laid_beside else RunKind.TIMED,
        resume_from=str(source),
        checkpoint="out/last.pt" if is_laid_beside else None,
    )
    assert result.outcome is Outcome.OK, result.reason
    assert "resumed from step 6" in result.log_tail
    assert len(result.ranks[0].steps) == 4
    assert digest_file(source / "sinks" / "out" / "last.pt") == before
    read = [left for left in result.checkpoints.values() if "tensors" in left]
    assert is_laid_beside or not read, "a timed run is not looked into"


def plain(bed: Path, name: str, command: str, **changes: Any) -> ExecutionResult:
    return execute(bed, name, command, kind=RunKind.PLAIN, **changes)


def test_a_command_that_is_not_the_job_is_judged_by_its_exit_code(bed: Path) -> None:
    good = plain(bed, "good", "python tests/check.py; env | grep -c INFRARSI_[^L]; true")
    assert (good.outcome, good.ranks, good.exit_code) == (Outcome.OK, (), 0)
    assert good.log_tail.split() == ["checked", "0"], "no variable of the witness"
    bad = plain(bed, "bad", "echo went wrong; exit 3")
    assert (bad.outcome, bad.reason) == (Outcome.USER_ERROR, "it ended with exit code 3")
    assert "went wrong" in bad.log_tail
    late = plain(bed, "late", "sleep 30", timeout_s=0.3)
    assert (late.outcome, late.reason) == (Outcome.TIMEOUT, "it did not end within 0.3 s")


def test_a_changed_test_file_is_seen_before_and_after(bed: Path) -> None:
    frozen = {"tests/check.py": digest_file(bed / "snapshot" / "tree" / "tests" / "check.py")}
    patched = Overlay("python tests/check.py", files={"tests/check.py": "print('all well')\n"})
    result = plain(bed, "patched", "", overlay=patched, frozen=frozen)
    assert result.outcome is Outcome.USER_ERROR
    assert "`tests/check.py` is not what the contract says" in result.reason
    result = plain(bed, "rewrites", "echo > tests/check.py", frozen=frozen)
    assert result.frozen_changed == ("tests/check.py",)
