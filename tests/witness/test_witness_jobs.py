"""What the witness records of real jobs, and that the jobs do not notice."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from infrarsi.contract.record import StepRecord
from infrarsi.witness.guest.digests import Digester, add
from infrarsi.witness.guest.values import MASK

PLAIN = """
import hashlib, random, sys
import torch
torch.manual_seed(0); random.seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = torch.randn(12, 8, 8, generator=torch.Generator().manual_seed(1))
micro = int(sys.argv[1]) if len(sys.argv) > 1 else 1
for batch in batches:
    total = 0.0
    for part in batch.chunk(micro):
        loss = model(part).pow(2).mean() / micro
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    print("loss %r" % total)
    if "repeat" in sys.argv:
        batches[1:] = batches[0]
model.eval()
with torch.no_grad():
    print("eval %r" % model(batches[0]).pow(2).mean().item())
state = torch.get_rng_state().numpy().tobytes()
print(hashlib.sha256(state).hexdigest(), random.random())
"""


def losses(stdout: str) -> list[float]:
    return [float(line.split()[1]) for line in stdout.splitlines() if line.startswith("loss")]


def digest_of(step: StepRecord) -> tuple[int, int]:
    (digest,) = step.digests.values()
    return digest


@pytest.fixture(scope="module")
def whole(watch):
    """A fresh process that runs the plain job to its own end."""
    return watch(PLAIN, steps=12, command=(sys.executable,))


@pytest.fixture(scope="module")
def audit(watch):
    return watch(PLAIN, kind="audit", steps=12).rank.steps


def test_a_job_prints_the_same_to_the_last_bit_with_and_without_the_witness(whole, tmp_path):
    (tmp_path / "bare.py").write_text(PLAIN)
    bare = subprocess.run(
        [sys.executable, "bare.py"],
        cwd=tmp_path,
        env={"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert whole.stdout == bare.stdout
    assert whole.exit_code == 0
    assert whole.stderr == ""


def test_a_record_of_a_whole_job_says_what_was_trained(whole):
    observed = whole
    rank = observed.rank
    assert rank.sealed
    assert rank.problems == ()
    assert [step.index for step in rank.steps] == list(range(12))
    assert [step.loss for step in rank.steps] == losses(observed.stdout)
    for step in rank.steps:
        assert (step.forwards, step.backwards, step.samples) == (1, 1, 8)
        assert step.elements == {"input": 64}
        assert step.shapes == {"input:float32:8x8": 1}
        assert step.optimizer_calls == {"0:AdamW": 1}
        assert step.learning_rates == (1e-2,)
        timed = {"fwd", "bwd", "opt", "other"} if step.close_look else set()
        assert set(step.phases_s) - {"eval"} == timed
        assert bool(step.digests) == step.close_look
        assert bool(step.weights) == (step.close_look or step is rank.steps[-1])
        assert bool(step.sketches) == step.close_look
        assert all(sketch[0] == 8 for sketch in step.sketches.values())
    assert [step.eval_calls for step in rank.steps] == [0] * 11 + [1]
    assert rank.model["numel"] == 161
    assert rank.optimizers[0]["cls"] == "torch.optim.adamw.AdamW"
    assert rank.end["how"] == "exit"
    assert rank.end["closed_at_exit"]
    assert rank.end["static_bytes"] == {
        "parameters": 644,
        "gradients": 644,
        "optimizer_states": 2 * 644 + 4 * 4,
    }
    assert 2**27 < rank.peak_bytes < 2**31
    assert observed.progress.steps == 12


def test_clocks_of_harness_and_witness_agree(whole):
    steps = whole.rank.steps
    offset = steps[0].harness_s - steps[0].witness_s
    assert all(abs(step.harness_s - step.witness_s - offset) < 0.1 for step in steps)
    times = [step.harness_s for step in steps]
    assert times == sorted(times)


def test_the_witness_ends_the_job_after_the_last_requested_step(watch):
    observed = watch(PLAIN, steps=5, ends_by="witness")
    assert observed.exit_code == 0
    assert len(losses(observed.stdout)) == 5
    assert observed.rank.sealed
    assert observed.rank.end["how"] == "witness"
    assert not observed.rank.end["closed_at_exit"]
    assert len(observed.rank.steps) == 5


def test_another_micro_batch_split_gives_the_same_digests_and_samples(watch, audit):
    whole = audit
    split = watch(PLAIN, "4", kind="audit", steps=12).rank.steps
    assert [digest_of(step) for step in whole] == [digest_of(step) for step in split]
    for one, other in zip(whole, split, strict=True):
        assert one.sketches["input"] == pytest.approx(other.sketches["input"], abs=1e-9)
    evaluated = whole[-1].eval_sketches["input"]
    assert evaluated == pytest.approx(split[-1].eval_sketches["input"], abs=1e-9)
    assert [step.samples for step in whole] == [step.samples for step in split]
    assert {step.forwards for step in split} == {4}
    assert all(
        math.isclose(a.loss, b.loss, rel_tol=1e-4) for a, b in zip(whole, split, strict=True)
    )


def test_a_repeated_batch_shows_in_the_digests(watch):
    steps = watch(PLAIN, "1", "repeat", kind="audit", steps=12).rank.steps
    assert len({digest_of(step) for step in steps}) == 1


def test_an_audit_has_no_dropout_and_a_perturbed_one_moves_the_weights_by_a_rounding(watch, audit):
    without = watch(PLAIN.replace("0.2", "0.0"), kind="audit", steps=12).rank.steps
    perturbed = watch(PLAIN, kind="perturbed", steps=12).rank.steps
    assert [step.loss for step in audit] == [step.loss for step in without]
    moved = [a.loss / b.loss - 1 for a, b in zip(perturbed, audit, strict=True)]
    assert 0 < max(map(abs, moved)) < 1e-4
    assert perturbed[0].weights != audit[0].weights


FUNCTIONAL = """
import torch
from torch.nn.functional import dropout, scaled_dot_product_attention as attention
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 8)
        self.heads = torch.nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.memory = torch.nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)
    def forward(self, x):
        x = dropout(self.line(x), 0.5, self.training)
        x = torch.nn.functional.dropout(attention(x, x, x, dropout_p=0.5), 0.5, self.training)
        return self.memory(self.heads(x, x, x)[0])[0].sum()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
x = torch.randn(2, 4, 8)
for _ in range(4):
    loss = model(x); loss.backward(); optimizer.step()
"""


def test_every_kind_of_torchs_dropout_is_off_in_an_audit(watch):
    audit = watch(FUNCTIONAL, kind="audit").rank
    assert len({step.loss for step in audit.steps}) == 1
    assert [step.dropout_calls for step in audit.steps] == [{"0.5": 3}] * 4
    assert audit.model["dropout"] == {"0.5": 2}
    assert len({step.loss for step in watch(FUNCTIONAL, kind="timed").rank.steps}) == 4


MANY = """
import torch, os
torch.manual_seed(0)
one, two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.Adam(two.parameters(), lr=0.2)
third = torch.optim.LBFGS([torch.nn.Parameter(torch.zeros(3))], max_iter=3)
weight = third.param_groups[0]["params"][0]
def closure():
    third.zero_grad()
    loss = (weight - 1).pow(4).sum()
    loss.backward()
    return loss
for _ in range(3):
    loss = two(one(torch.randn(2, 4))).sum()
    loss.backward()
    first.step(); second.step()
    third.step(closure)
loss = two(one(torch.randn(2, 4))).mean() * float("nan")
loss.backward(); first.step()
"""


def test_several_optimizers_and_a_closure_make_one_step_and_nan_is_recorded(watch):
    rank = watch(MANY).rank
    assert rank.sealed
    assert [set(step.optimizer_calls) for step in rank.steps[:3]] == [
        {"0:SGD", "1:Adam", "2:LBFGS"}
    ] * 3
    assert rank.steps[0].backwards > 2
    assert len(rank.steps) == 4
    assert math.isnan(rank.steps[3].loss)
    assert set(rank.steps[0].elements) == {"input", "Linear.input"}


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 32
    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index)), "y": index}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.line = torch.nn.Linear(4, 1)
    def forward(self, x, y=None): return (self.line(x).squeeze(1) - y).pow(2).mean()
if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loader = DataLoader(Rows(), batch_size=8, num_workers=2, multiprocessing_context="METHOD")
    for i, batch in enumerate(loader):
        loss = model(**batch)
        if i == 2: loss = loss * float("inf")
        scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
        optimizer.zero_grad()
"""


def test_loader_workers_leave_no_record_and_scaled_losses_are_unscaled(watch):
    rank = watch(LOADER.replace("METHOD", "fork")).rank
    assert rank.sealed
    assert len(rank.steps) == 4
    assert [step.skipped for step in rank.steps] == [0, 0, 1, 0]
    assert rank.steps[0].elements == {"x": 32, "y": 8}
    assert rank.steps[0].loss == pytest.approx(42.2466, rel=1e-4)  # scaled it would be 169
    assert rank.steps[0].data_wait_s > 0


DDP = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
batches = torch.randn(40, 8, 8, generator=torch.Generator().manual_seed(1))
for batch in batches:
    loss = model(batch[rank::world]).pow(2).mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
print("went on")
"""


def test_ranks_under_torchrun_are_each_recorded_and_their_digests_add_up(watch):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    two = watch(DDP, kind="audit", steps=5, ends_by="witness", command=command)
    assert two.exit_code == 0, two.stderr
    assert "went on" not in two.stdout
    assert [rank.rank for rank in two.ranks] == [0, 1]
    assert all(rank.sealed and rank.world_size == 2 for rank in two.ranks)
    batches = torch.randn(40, 8, 8, generator=torch.Generator().manual_seed(1))
    for batch, left, right in zip(batches[:5], two.ranks[0].steps, two.ranks[1].steps, strict=True):
        both = add(digest_of(left), digest_of(right))
        assert both == [value & MASK for value in Digester().digest(batch).tolist()]
        assert left.weights == right.weights
        assert left.loss != right.loss


WRITER = """
import os, sys, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
open(sys.argv[1] + "/early.txt", "w").close()
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward(); optimizer.step()
open("inside.txt", "w").close()
open("inside.txt").close()
torch.save(model.state_dict(), sys.argv[1] + "/model.pt")
os.rename("inside.txt", sys.argv[1] + "/moved.txt")
os.symlink(sys.argv[1], "link")
open("link/through.txt", "a").close()
"""


def test_paths_written_outside_the_roots_are_noted(watch):
    elsewhere = Path.home() / f".witness-{random.SystemRandom().randrange(10**9)}"
    elsewhere.mkdir()
    try:
        rank = watch(WRITER, str(elsewhere)).rank
    finally:
        for path in elsewhere.iterdir():
            path.unlink()
        elsewhere.rmdir()
    names = {Path(path).name for path in rank.outside_writes}
    assert names == {"early.txt", "model.pt", "moved.txt", "through.txt"}


EVAL_MODE = """
import torch
model = torch.nn.Linear(2, 1).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(3, 2)).sum().backward(); optimizer.step()
"""


def test_a_job_that_trains_in_eval_mode_is_recorded_from_its_first_backward(watch):
    rank = watch(EVAL_MODE).rank
    assert len(rank.steps) == 5
    assert [step.samples for step in rank.steps] == [0, 3, 3, 3, 3]
    assert all(step.backwards == 1 for step in rank.steps)


def test_lines_are_json_with_the_harness_stamp(whole):
    text = (whole.receipt / "witness/rank0.jsonl").read_text()
    kinds = [json.loads(line)["k"] for line in text.splitlines()]
    assert kinds[:3] == ["hello", "head", "model"]
    assert kinds[-1] == "end"
    assert kinds.count("mark") == kinds.count("step") == 12
