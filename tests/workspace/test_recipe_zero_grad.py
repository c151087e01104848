"""Gradients are dropped where zeros are never seen, and kept where a zero means something."""

import re

import pytest
import torch
from recipe_runs import applied, changed_lines, declined, job, run

from infrarsi.workspace.recipes.zero_grad import ZeroGrad

RECIPE = ZeroGrad()
HEAD = job(
    """
    import torch
    import torch.nn as nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 8)
            self.down = nn.Linear(8, 1)

        def forward(self, x, targets=None):
            y = self.down(torch.tanh(self.up(x)))
            if targets is None:
                return y
            return ((y - targets) ** 2).mean()


    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.5)
    x = torch.randn(16, 4)
    losses = []
    """
)
LOOP = """
for step in range(6):
    {zero}
    loss = model(x, x.sum(1, keepdim=True))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
"""

FITS = {
    "keyword": "optimizer.zero_grad(set_to_none=False)",
    "positional": "optimizer.zero_grad(False)",
    "of the model": "model.zero_grad(set_to_none=False)",
    "guarded loop": """
        for p in model.parameters():
            if p.grad is not None:
                p.grad.zero_()
        """,
    "loop with detach": """
        for p in model.parameters():
            if p.grad is not None:
                p.grad.detach_()
                p.grad.zero_()
        """,
    "data": """
        for param in model.parameters():
            if not (param.grad is None):
                param.grad.data.zero_()
        """,
    "fill": """
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.fill_(0)
        """,
    "groups": """
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None: p.grad.zero_()
        """,
}


def program(zero: str, loop: str = LOOP) -> str:
    """The job with the given way of zeroing."""
    return HEAD + loop.replace("{zero}", job(zero).rstrip().replace("\n", "\n    "))


@pytest.mark.parametrize("name", FITS)
def test_zeroing_becomes_dropping_and_trains_the_same(name: str) -> None:
    code = program(FITS[name])
    after = applied(RECIPE, {"train.py": code})["train.py"]
    assert len(changed_lines(code, after)) <= 5
    before, now = run(code), run(after)
    assert now["losses"] == before["losses"]
    for old, new in zip(before["model"].parameters(), now["model"].parameters(), strict=True):
        assert torch.equal(old, new)


def test_an_unguarded_loop_after_the_step_becomes_dropping() -> None:
    loop = LOOP.replace("    {zero}\n", "") + "    for p in model.parameters():\n        {zero}\n"
    code = HEAD + loop.format(zero="p.grad.zero_()")
    after = applied(RECIPE, {"train.py": code})["train.py"]
    assert changed_lines(code, after) == ["-        p.grad.zero_()", "+        p.grad = None"]
    assert run(after)["losses"] == run(code)["losses"]


ZERO = "optimizer.zero_grad(set_to_none=False)"
LOOK_ALIKES = {
    "the default": ("optimizer.zero_grad()", "", "dropped already"),
    "dropped already": ("optimizer.zero_grad(set_to_none=True)", "", "dropped already"),
    "chosen elsewhere": ("optimizer.zero_grad(set_to_none=flag)", "flag = 1", "chosen elsewhere"),
    "a part of the model": (
        "for p in model.up.parameters():\n    p.grad.zero_()",
        "",
        "not all gradients",
    ),
    "chosen parameters": (
        "for n, p in model.named_parameters():\n    if 'up' in n: p.grad.zero_()",
        "",
        "not all gradients",
    ),
    "more than zeroing": (
        "for p in model.parameters():\n    seen.append(p.grad.norm())\n    p.grad.zero_()",
        "seen = []",
        "not all gradients",
    ),
    "gradients read": (ZERO, "def norm():\n    return model.up.weight.grad.norm()", "used else"),
    "gradient noise": (ZERO, "for p in model.parameters():\n    p.grad = noise(p)", "used else"),
    "unused parameters": (ZERO, "m = DDP(model, find_unused_parameters=True)", "find_unused"),
    "unused by a flag": (ZERO, "m = DDP(model, find_unused_parameters=f)", "find_unused"),
    "freezing": (ZERO, "model.up.requires_grad_(False)", "frozen"),
    "thawing": (ZERO, "model.up.weight.requires_grad = True", "frozen"),
    "layer drop": (ZERO, "layerdrop = 0.1", "layerdrop"),
    "experts": (ZERO, "num_experts = 4", "num_experts"),
    "branch on data": (
        ZERO,
        "class M(nn.Module):\n    def forward(self, x):\n"
        "        return self.a(x) if x.sum() > 0 else self.b(x)",
        r"x\.sum\(\) > 0",
    ),
    "branch on chance": (
        ZERO,
        "class M(nn.Module):\n    def forward(self, x):\n"
        "        if self.training and random.random() < self.p:\n            return x\n"
        "        return self.a(x)",
        r"random\.random",
    ),
    "branch on the step": (
        ZERO,
        "class M(nn.Module):\n    def forward(self, x, step):\n"
        "        if step > warmup:\n            return self.a(x)\n        return x",
        "step > warmup",
    ),
    "two optimizers": (ZERO, "other.zero_grad()", "several owners"),
    "own zero_grad": (ZERO, "def zero_grad(self):\n    pass", "own"),
    "CUDA graph": (ZERO, "g = torch.cuda.CUDAGraph()", "CUDA graph"),
    "graph mode": (ZERO, "m = torch.compile(model, mode='reduce-overhead')", "CUDA graph"),
    "higher order": (ZERO, "loss.backward(create_graph=True)", "create_graph|sometimes"),
    "taken apart": (ZERO, "g = torch.autograd.grad(loss, ps)", "taken apart"),
    "engine": (ZERO, "import deepspeed", "deepspeed"),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_where_a_zero_may_mean_something_nothing_is_changed(name: str) -> None:
    zero, extra, reason = LOOK_ALIKES[name]
    code = program(zero, "\n" + extra + "\n" + LOOP)
    found = declined(RECIPE, {"train.py": code})
    assert re.match(r"train\.py:\d+: ", found)
    assert re.search(reason, found), found


@pytest.mark.parametrize(
    "body",
    [
        "    if loss.isfinite():\n        loss.backward()\n    optimizer.step()\n",
        "    try:\n        loss.backward()\n    except RuntimeError:\n        pass\n"
        "    optimizer.step()\n",
    ],
    ids=["guarded", "tried"],
)
def test_a_backward_that_may_be_left_out_before_a_step_declines(body: str) -> None:
    code = HEAD + "for s in range(3):\n    optimizer.zero_grad(False)\n    loss = model(x, x)\n"
    assert re.search("backward pass", declined(RECIPE, {"train.py": code + body}))


def test_a_step_left_out_with_its_backward_makes_no_difference() -> None:
    loop = LOOP.replace("    loss.backward()", "    if step >= 0:\n     loss.backward()")
    loop = loop.replace("    torch.nn.utils", "     torch.nn.utils")
    loop = loop.replace("    optimizer.step", "     optimizer.step")
    applied(RECIPE, {"train.py": program(ZERO, loop)})


def test_why_it_matters_a_zero_gradient_still_moves_a_parameter() -> None:
    weights = []
    for to_none in (False, True):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()
        weights.append(weight.detach())
    assert not torch.equal(*weights)
