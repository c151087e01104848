"""Compiled jobs under the witness: every step is seen, and the compiler sees nothing of it."""

import json
import os
import subprocess
import sys

import pytest

JOB = """
import json, sys
import torch
from torch._dynamo.utils import counters
torch.set_num_threads(1)
backend = sys.argv[1]
X = torch.randint(0, 32, (6, 4, 10), generator=torch.Generator().manual_seed(1))
F = torch.nn.functional

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(32, 16)
        self.line = torch.nn.Linear(16, 16)
        self.out = torch.nn.Linear(16, 32)
    def forward(self, x, y):
        h = self.tokens(x)
        h = h + F.scaled_dot_product_attention(h[:, None], h[:, None], h[:, None])[:, 0]
        h = h + F.dropout(torch.relu(self.line(h)), 0.1, self.training)
        return F.cross_entropy(self.out(h).flatten(0, 1), y.flatten())

def run(mode):
    torch._dynamo.reset(); counters.clear(); torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=mode == "whole fused")
    call, step, whole = model, optimizer.step, None
    def everything(x, y):
        loss = model(x, y); loss.backward(); optimizer.step(); optimizer.zero_grad()
        return loss
    if mode == "model": call = torch.compile(model, backend=backend, fullgraph=True)
    if mode == "in place": model.compile(backend=backend, fullgraph=True)
    if mode == "function":
        call = torch.compile(lambda x, y: model(x, y), backend=backend, fullgraph=True)
    if mode == "step": step = torch.compile(lambda: optimizer.step(), backend=backend)
    if mode.startswith("whole"): whole = torch.compile(everything, backend=backend)
    for x in X:
        if whole:
            loss = whole(x, x)
        else:
            loss = call(x, x); loss.backward(); step(); optimizer.zero_grad()
    return [mode, repr(loss.item()), sum(counters["graph_break"].values()),
            dict(counters["frames"]), len(counters["recompiles"]),
            counters["stats"].get("unique_graphs")]

for mode in sys.argv[2:]:
    print(json.dumps(run(mode)))
"""
MODES = ("model", "in place", "function", "step", "whole", "whole fused")


def bare(tmp_path, *arguments: str, text: str = JOB) -> str:
    (tmp_path / "bare.py").write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "bare.py", *arguments],
        cwd=tmp_path,
        env={**env, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def lines(stdout: str) -> list[object]:
    return [json.loads(line) for line in stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["timed", "audit"])
def test_graphs_breaks_recompiles_and_losses_are_those_of_the_bare_job(watch, tmp_path, kind):
    arguments = ("aot_eager", *MODES)
    text = JOB if kind == "timed" else JOB.replace("0.1,", "0.0,")  # audits turn dropout off
    observed = watch(text, *arguments, steps=99, kind=kind, command=(sys.executable,))
    assert lines(observed.stdout) == lines(bare(tmp_path, *arguments, text=text))
    steps = observed.rank.steps
    assert len(steps) == 6 * len(MODES)
    assert all(step.backwards == 1 for step in steps)
    assert all(step.forwards == 1 for step in steps)
    assert all(sum(step.optimizer_calls.values()) == 1 for step in steps)
    assert {tuple(name.split(".")[-1] for name in step.elements) for step in steps} == {("x", "y")}


@pytest.mark.slow
def test_dropout_is_off_inside_compiled_models_in_an_audit(watch):
    audit = watch(JOB, "aot_eager", "model", kind="audit", steps=99)
    eager = watch(JOB.replace("0.1,", "0.0,"), "aot_eager", "eager", kind="timed", steps=99)
    assert [step.loss for step in audit.rank.steps] == [step.loss for step in eager.rank.steps]


@pytest.mark.slow
def test_an_inductor_model_is_recorded_and_computes_the_same(watch, tmp_path):
    arguments = ("inductor", "model", "function")
    observed = watch(JOB, *arguments, steps=99, command=(sys.executable,))
    assert lines(observed.stdout) == lines(bare(tmp_path, *arguments))
    assert len(observed.rank.steps) == 12
