"""Compiled code is shared between executions."""

import os
from pathlib import Path

import pytest

from infrarsi.contract import Outcome
from infrarsi.node.local_bench import LocalBench
from infrarsi.testing import Lab

_COMPILED = """\
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [m for _ in range(4) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())]
model = torch.nn.Sequential(*layers, torch.nn.LayerNorm(64), torch.nn.Linear(64, 1))
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    loss = compiled(torch.randn(8, 64)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_the_second_execution_of_a_compiled_job_starts_faster(tmp_path: Path) -> None:
    first_step_s = []
    with LocalBench(base=dict(os.environ)) as bench:
        lab = Lab(bench, tmp_path)
        for _ in range(2):
            result = lab.run("python train.py", files={"train.py": _COMPILED}, steps=10)
            assert result.outcome is Outcome.OK, result
            first_step_s.append(result.ranks[0].steps[0].harness_s)
    cold, warm = first_step_s
    print(f"first step after {cold:.1f} s cold, {warm:.1f} s warm")
    assert warm < 0.6 * cold
