"""The untouched job, run again and again, is always the same job: `pytest -m long tests/long/...`.

Timed and audit runs in turn, two of five while another process takes a core. About ten minutes on
two cores; each part can be run alone (`-k part0`).
"""

import itertools
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from infrarsi.contract import (
    Candidate,
    ExecutionRequest,
    ExecutionResult,
    Project,
    RunKind,
    SnapshotRef,
)
from infrarsi.node.local_bench import LocalBench
from infrarsi.verify import Evidence, judge, reference_evidence
from infrarsi.workspace import Sources, overlay, take

pytestmark = pytest.mark.long
PARTS, RUNS = 4, 50
PLAN = (
    RunKind.TIMED,
    RunKind.AUDIT,
    RunKind.TIMED,
    RunKind.PERTURBED,
    RunKind.TIMED,
    RunKind.TIMED,
)
"""As a campaign measures its reference."""
LOADED = (1, 4)
"""Which of every five runs share the machine; both kinds are among them."""
JOB = """
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

STEPS, VOCAB, LENGTH = 20, 96, 48
torch.manual_seed(1)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        )
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, x, y):
        logits = self.head(self.blocks(self.embed(x)))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


order = torch.Generator().manual_seed(7)
data = torch.cumsum(torch.randint(1, 5, (20_000,)), 0) % VOCAB


def get_batch(low, high):
    starts = torch.randint(low, high - LENGTH - 1, (8,), generator=order).tolist()
    rows = torch.stack([data[s : s + LENGTH + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def evaluate(model):
    model.eval()
    losses = [model(*get_batch(18_000, 20_000)).item() for _ in range(2)]
    model.train()
    return sum(losses) / len(losses)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
for step in range(STEPS):
    began = time.perf_counter()
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * step / STEPS))
    total = 0.0
    for _ in range(2):
        loss = model(*get_batch(0, 18_000)) / 2
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step} loss {total:.4f} ms {1000 * (time.perf_counter() - began):.1f}")
    if step % 10 == 9:
        print(f"eval {evaluate(model):.4f}")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "out.pt")
"""
PROJECT = Project.model_validate(
    {
        "schema": "infrarsi-project-v1",
        "name": "again",
        "launch": {"command": f"{sys.executable} train.py"},
        "workload": {"optimizer_steps": 20, "ends_by": "job"},
        "editable": ["train.py"],
        "sinks": {"path:out.pt": "fresh"},
    }
)


@dataclass
class Bench:
    """The job, its snapshot, and one execution of it after another."""

    folder: Path
    snapshot: SnapshotRef
    key: str
    numbers: Iterator[int]

    def run(self, kind: RunKind) -> ExecutionResult:
        """One fresh execution of the untouched job."""
        name = f"{next(self.numbers):03d}-{kind}"
        request = ExecutionRequest(
            execution_id=name,
            kind=kind,
            snapshot=self.snapshot,
            overlay=overlay(PROJECT, Sources.of(self.snapshot), Candidate.of()),
            receipt_dir=str(self.folder / name),
            cache_dir=str(self.folder / "cache"),
            optimizer_steps=PROJECT.workload.optimizer_steps,
            ends_by=PROJECT.workload.ends_by,
            witness_key=self.key,
        )
        with LocalBench() as bench:
            result = bench.start(request).wait()
        assert result is not None
        return result


@contextmanager
def another_process_on_a_core() -> Iterator[None]:
    """A process that computes all the time."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The job on disk and its snapshot."""
    folder = tmp_path_factory.mktemp("again")
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(JOB)
    snapshot = take(job, folder / "store")
    return Bench(folder, snapshot, secrets.token_hex(16), itertools.count())


@pytest.fixture(scope="module")
def evidence(bench: Bench) -> Evidence:
    """The reference's runs."""
    steps = PROJECT.workload.optimizer_steps
    return reference_evidence([bench.run(kind) for kind in PLAN], optimizer_steps=steps)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS), ids=lambda part: f"part{part}")
def test_the_reference_again_is_the_same_job(bench: Bench, evidence: Evidence, part: int) -> None:
    rejected = []
    for number in range(RUNS):
        kind = RunKind.AUDIT if number % 2 else RunKind.TIMED
        loaded = number % 5 in LOADED
        with another_process_on_a_core() if loaded else nullcontext():
            result = bench.run(kind)
        verdict = judge(evidence, result, PROJECT)
        if not verdict.same_job:
            why = "; ".join(f"{check.check}: {check.reason}" for check in verdict.failed)
            rejected.append(f"{number} {kind}{' under load' if loaded else ''}: {why}")
    print(f"part {part}: the same job in {RUNS - len(rejected)} of {RUNS} runs")
    assert not rejected, "\n".join(rejected)
