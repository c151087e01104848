"""On a GPU: no step waits for the device, and times and memory come from it."""

import sys

import pytest

JOB = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512))
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(40, 64, 512, device="cuda")
losses = []
torch.cuda.synchronize()
torch.cuda.set_sync_debug_mode("error")
for batch in x:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(batch).float().pow(2).mean()
    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    optimizer.zero_grad()
    losses.append(loss.detach())
torch.cuda.set_sync_debug_mode("default")
torch.cuda.reset_peak_memory_stats()
print([value.item() for value in losses])
print(torch.cuda.max_memory_reserved())
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["timed", "audit", "perturbed"])
def test_nothing_waits_for_the_device_and_its_values_arrive(watch, kind):
    observed = watch(JOB, steps=40, kind=kind, command=(sys.executable,))
    assert observed.exit_code == 0, observed.stderr
    rank = observed.rank
    assert rank.sealed
    losses, peak = map(eval, observed.stdout.splitlines())
    said = {step.index: step.loss for step in rank.steps if step.loss is not None}
    assert said == pytest.approx({i: losses[i] for i in said}, rel=1e-6)
    assert set(said) >= {step.index for step in rank.steps if step.close_look}  # short steps
    marked = [step for step in rank.steps if step.close_look or step is rank.steps[-1]]
    assert [step for step in rank.steps if step.event_s is not None] == marked
    total = sum(step.event_s for step in marked[1:])
    assert total == pytest.approx(marked[-1].harness_s - marked[0].harness_s, rel=0.05, abs=0.05)
    assert all(bool(step.digests) == step.close_look for step in rank.steps)
    sampled = [step for step in rank.steps if step.close_look or step is rank.steps[-1]]
    assert [step for step in rank.steps if step.weights] == sampled
    assert all(bool(step.sketches) == step.close_look for step in rank.steps)
    assert rank.peak_bytes >= peak > 0
    assert rank.head["device"]


FORKS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=4, num_workers=2)
for epoch in range(3):  # the second epoch's workers are forked while the record is under way
    for (x,) in loader:
        model(x.cuda()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
print("done")
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["timed", "audit"])
def test_workers_forked_after_training_began_live(watch, kind):
    observed = watch(FORKS, steps=48, kind=kind, command=(sys.executable,))
    assert observed.exit_code == 0, observed.stderr
    assert observed.stdout == "done\n"
    assert observed.rank.sealed
    assert len(observed.rank.steps) == 48


AUDITED = """
import torch
torch.manual_seed(0)
one, two = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)
model = torch.nn.Sequential(one, torch.nn.Dropout(0.1), two)
model.cuda()
shadow = {k: v.detach().clone() for k, v in model.named_parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(6, 32, 64, device="cuda")
norms = []
torch.cuda.synchronize()
torch.cuda.set_sync_debug_mode("error")
for batch in x:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(batch).float().pow(2).mean()
    loss.backward()
    norms.append([p.grad.double().norm() for p in model.parameters()])
    optimizer.step(); optimizer.zero_grad()
    torch._foreach_lerp_(list(shadow.values()), [p.data for p in model.parameters()], 0.1)
torch.cuda.set_sync_debug_mode("default")
print([[n.item() for n in some] for some in norms])
print([p.double().norm().item() for p in model.parameters()])
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["timed", "audit"])
def test_an_audit_on_a_device_says_what_the_job_computes(watch, kind):
    observed = watch(AUDITED, steps=6, kind=kind, command=(sys.executable,))
    assert observed.exit_code == 0, observed.stderr
    rank = observed.rank
    assert rank.sealed
    assert rank.problems == ()
    assert rank.precision[0]["autocast"]["cuda"] == "bfloat16"
    looks = [step for step in rank.steps if step.close_look]
    # An audit takes the dropout away, so nothing is drawn there.
    assert all((step.random["cuda:0"] > 0) == (kind == "timed") for step in looks)
    if kind == "timed":
        assert {state["key"]: state["norm"] for state in rank.states}["exp_avg"] is None
        return
    gradients, weights = map(eval, observed.stdout.splitlines())
    for step, norms in zip(rank.steps, gradients, strict=True):
        assert [norm for norm, _ in step.gradients.values()] == pytest.approx(norms, rel=1e-6)
        assert step.matmul_dtypes == ("bfloat16",)
    end = rank.weights[-1]
    assert (end["when"], end["i"]) == ("end", 6)
    assert [norm for norm, _ in end["tensors"].values()] == pytest.approx(weights, rel=1e-6)
    assert {(c["when"], c["kind"]) for c in rank.companions} == {("start", "dict"), ("end", "dict")}


GRAPHED = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
x = torch.randn(32, 64, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).pow(2).mean(); loss.backward(); optimizer.step()
    return loss
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3): step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(10): graph.replay()
torch.cuda.synchronize()
print(loss.item())
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["timed", "audit"])
def test_replays_of_a_whole_step_are_counted_and_said_to_be_unseen(watch, kind):
    observed = watch(GRAPHED, steps=14, kind=kind, command=(sys.executable,))
    assert observed.exit_code == 0, observed.stderr
    rank = observed.rank
    assert rank.sealed
    assert rank.end["graph_replays"] == 10
    assert rank.problems == ("whole-step CUDA graph: inputs and gradients are not seen (10 times)",)
    assert len(rank.steps) == 14  # three eager ones, the capture, ten replays
    assert all(sum(step.optimizer_calls.values()) == 1 for step in rank.steps)
