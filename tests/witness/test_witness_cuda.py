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
    assert [step.loss for step in rank.steps] == pytest.approx(losses, rel=1e-6)
    assert all(step.event_s is not None and step.event_s > 0 for step in rank.steps[:-1])
    assert all(bool(step.weights) == bool(step.digests) == step.close_look for step in rank.steps)
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
