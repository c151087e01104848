"""Which model is compiled in place, where, and when the recipe keeps its hands off."""

import json
import re
import subprocess
import sys

import pytest

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.compile_model import CompileModel

MODEL = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""

PLAIN = """import torch
import torch.nn.functional as F

from model import Net


def main():
    torch.manual_seed(0)
    device = "cpu"
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(4, 8, device=device)
        loss = F.mse_loss(model(x), x.sum(-1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model
"""

DDP = """import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Net


def main():
    torch.manual_seed(0)
    model = Net(width=8)
    model.to("cpu")
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if world > 1:
        model = DDP(model)
    raw_model = model.module if world > 1 else model  # unwrap
    optimizer = torch.optim.SGD(raw_model.parameters(), lr=0.01)
    for step in range(3):
        x = torch.randn(4, 8)
        loss = F.mse_loss(model(x), x.sum(-1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return raw_model
"""

FUNCTION = """import argparse

import torch
import torch.nn.functional as F

import model as models


def train_one_epoch(net, optimizer, batches, device="cpu"):
    net.train()
    for x in batches:
        out = net(x.to(device))
        loss = F.mse_loss(out, x.sum(-1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(epochs=2):
    torch.manual_seed(0)
    network = models.Net(
        width=8,
        depth=1,
    )  # small
    network = network.to("cpu")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for epoch in range(epochs):
        train_one_epoch(network, optimizer, [torch.randn(4, 8) for _ in range(2)])
    return network
"""

SCRIPT = """import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
criterion = nn.MSELoss()
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def main():
    for _ in range(3):
        x = torch.randn(4, 8)
        loss = criterion(net(x), x.sum(-1, keepdim=True))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net
"""

CRITERION = """import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

from model import Net


class Trainer:
    pass


def main():
    torch.manual_seed(0)
    criterion = nn.MSELoss()
    model: Net = Net(8, 2)
    if torch.distributed.is_initialized():
        model = DistributedDataParallel(model.to("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step in range(3):
        x = torch.randn(4, 8)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            out = model(x)
            loss = criterion(out, x.sum(-1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    return model
"""

LATER_CHECKPOINT = """import copy

import torch
import torch.nn.functional as F

from model import Net


def evaluate(model):
    model.eval()
    with torch.no_grad():
        value = model(torch.ones(2, 8)).mean().item()
    model.train()
    return value


def main():
    torch.manual_seed(0)
    model = Net()
    model.load_state_dict(model.state_dict())
    ema = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        x = torch.randn(4, 8)
        loss = F.mse_loss(model(x), x.sum(-1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for old, new in zip(ema.parameters(), model.parameters()):
            old.data.lerp_(new.data, 0.1)
        step += 1
        if step == 3:
            evaluate(model)
            break
    return model
"""

WRAPPED_AT_ONCE = DDP.replace(
    """    model = Net(width=8)
    model.to("cpu")
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if world > 1:
        model = DDP(model)
    raw_model = model.module if world > 1 else model  # unwrap
""",
    """    model = DDP(Net(width=8).to("cpu"))
    raw_model = model.module
""",
)

SPELLINGS = {
    "plain": (PLAIN, "    model = Net().to(device)\n    model.compile()\n"),
    "ddp": (DDP, "    model = Net(width=8)\n    model.compile()\n    model.to("),
    "function": (FUNCTION, "    )  # small\n    network.compile()\n    network = network.to("),
    "script": (SCRIPT, "nn.Linear(16, 1))\nnet.compile()\n"),
    "criterion": (CRITERION, "    model: Net = Net(8, 2)\n    model.compile()\n"),
    "ema": (LATER_CHECKPOINT, "    model = Net()\n    model.compile()\n"),
    "wrapped-at-once": (
        WRAPPED_AT_ONCE,
        '    model = DDP(Net(width=8).to("cpu"))\n    model.module.compile()\n',
    ),
}


def apply(train: str, model: str = MODEL) -> Applied | Declined:
    return CompileModel().apply({"model.py": model, "train.py": train})


def run(train: str, tmp_path, monkeypatch):
    """The trained model, with model.py importable."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    space: dict[str, object] = {}
    exec(compile(train, "train.py", "exec"), space)
    return eval("main()", space)


@pytest.mark.parametrize("name", SPELLINGS)
def test_model_is_compiled_right_after_it_is_made(name: str) -> None:
    text, expected = SPELLINGS[name]
    result = apply(text)
    assert isinstance(result, Applied), result
    assert list(result.files) == ["train.py"]
    assert expected in result.files["train.py"]
    assert len(result.files["train.py"].splitlines()) == len(text.splitlines()) + 1
    again = apply(result.files["train.py"])
    assert isinstance(again, Declined)
    assert "already" in again.reason


@pytest.fixture
def eager_kernels():
    """Graphs are traced and run without generated code, which takes 35 s to build."""
    import torch

    before = torch.compiler.get_default_backend()
    torch.compiler.set_default_backend("eager")
    yield
    torch.compiler.set_default_backend(before)
    torch._dynamo.reset()


@pytest.fixture
def one_process_group():
    """A real process group of one rank, so that DistributedDataParallel wraps."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_model_wrapped_at_once_trains_the_same_weights(
    tmp_path, monkeypatch, eager_kernels, one_process_group
) -> None:
    import torch

    result = apply(WRAPPED_AT_ONCE)
    assert isinstance(result, Applied)
    old = run(WRAPPED_AT_ONCE, tmp_path, monkeypatch)
    new = run(result.files["train.py"], tmp_path, monkeypatch)
    assert new._compiled_call_impl is not None
    for key, value in old.state_dict().items():
        torch.testing.assert_close(new.state_dict()[key], value)


@pytest.mark.parametrize("name", sorted(SPELLINGS.keys() - {"wrapped-at-once"}))
def test_compiled_job_trains_the_same_weights_under_the_same_names(
    name: str, tmp_path, monkeypatch, eager_kernels
) -> None:
    import torch

    result = apply(SPELLINGS[name][0])
    assert isinstance(result, Applied)
    old = run(SPELLINGS[name][0], tmp_path, monkeypatch)
    new = run(result.files["train.py"], tmp_path, monkeypatch)
    assert old._compiled_call_impl is None
    assert new._compiled_call_impl is not None
    before, after = old.state_dict(), new.state_dict()
    assert list(before) == list(after)
    for key in before:
        torch.testing.assert_close(after[key], before[key])


COMPARE = """
import json
import sys

import torch

import train

new = train.main()
sys.path.insert(0, "old")
del sys.modules["train"]
import train

old = train.main()
states = new.state_dict(), old.state_dict()
same = all(torch.allclose(states[0][k], states[1][k], atol=1e-6) for k in states[1])
print(json.dumps([list(states[0]) == list(states[1]), same, new._compiled_call_impl is not None]))
"""


@pytest.mark.slow
def test_compiled_by_inductor_the_weights_are_the_same(tmp_path) -> None:
    result = apply(PLAIN)
    assert isinstance(result, Applied)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "train.py").write_text(PLAIN)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(result.files["train.py"])
    (tmp_path / "compare.py").write_text(COMPARE)
    done = subprocess.run(
        [sys.executable, "compare.py"], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, True, True]


MAKE = "    model = Net().to(device)\n"
CALL = "        loss = F.mse_loss(model(x), x.sum(-1, keepdim=True))\n"
OPTIMIZER = "    optimizer ="

LOOK_ALIKES = [
    ("compiled", MAKE, MAKE + "    model = torch.compile(model)\n", "already compiles"),
    ("compiled-in-place", MAKE, MAKE + "    model.compile(dynamic=True)\n", "already compiles"),
    ("scripted", MAKE, MAKE + "    model = torch.jit.script(model)\n", "scripted or traced"),
    ("unknown-wrapper", MAKE, MAKE + "    model = wrap(model)\n", "rebound to `wrap"),
    (
        "fsdp",
        MAKE,
        "    from torch.distributed.fsdp import FullyShardedDataParallel\n"
        + MAKE
        + "    model = FullyShardedDataParallel(model)\n",
        "FSDP",
    ),
    ("data-parallel", MAKE, MAKE + "    model = torch.nn.DataParallel(model)\n", "DataParallel"),
    (
        "accelerate",
        MAKE,
        MAKE + "    from accelerate import Accelerator\n    a = Accelerator()\n",
        "Accelerate",
    ),
    (
        "made-twice",
        MAKE,
        "    if device:\n        model = Net()\n    else:\n        model = Net(16)\n",
        "made in 2 places",
    ),
    ("factory", MAKE, "    model = build_model(device)\n", "construction is in the editable files"),
    ("method", "model(x)", "model.loss(x)", "calls no model"),
    ("method-too", CALL, CALL + "        loss = loss + model.penalty()\n", "`model.penalty`"),
    ("generate", CALL, "        y = model.generate(x)\n" + CALL, "`model.generate`"),
    ("forward", "model(x)", "model.forward(x)", "calls no model"),
    (
        "double-backward",
        "loss.backward()",
        "loss.backward(create_graph=True)",
        "differentiates twice",
    ),
    (
        "autograd-grad",
        "loss.backward()",
        "torch.autograd.grad(loss, x); loss.backward()",
        "torch.autograd.grad",
    ),
    ("hook", MAKE, MAKE + "    model.head.register_forward_hook(print)\n", "hook"),
    ("cuda-graph", MAKE, MAKE + "    graph = torch.cuda.CUDAGraph()\n", "CUDA graph"),
    ("no-loop", "    for step in range(3):\n", "    if True:\n", "no training loop"),
]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [c[1:] for c in LOOK_ALIKES],
    ids=[c[0] for c in LOOK_ALIKES],
)
def test_look_alike_declines_with_a_place(old: str, new: str, reason: str) -> None:
    assert old in PLAIN
    code = PLAIN.replace(old, new)
    compile(code, "train.py", "exec")
    result = apply(code)
    assert isinstance(result, Declined), result.files
    assert re.match(r"[a-z]+\.py:\d+[:,]", result.reason), result.reason
    assert reason in result.reason


@pytest.mark.parametrize(
    "loop",
    [
        "        fake = model(x)\n        loss = critic(fake).mean()\n",
        "        with torch.no_grad():\n            target = critic(x)\n"
        "        loss = F.mse_loss(model(x), target)\n",
    ],
    ids=["gan", "teacher"],
)
def test_two_models_decline(loop: str) -> None:
    code = PLAIN.replace(MAKE, MAKE + "    critic = Net().to(device)\n").replace(CALL, loop)
    result = apply(code)
    assert isinstance(result, Declined)
    assert "several models, `model` and `critic`" in result.reason.replace(
        "`critic` and `model`", "`model` and `critic`"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "        return self.head(x)",
            "        if x.max().item() > 9:\n            x = x / 2\n        return self.head(x)",
            "`Net.forward` breaks the graph by `item()`",
        ),
        (
            "        return self.head(x)",
            "        print(x.shape)\n        return self.head(x)",
            "print()",
        ),
        (
            "        return self.head(x)",
            "        self.calls += 1\n        return self.head(x)",
            "changes `self.calls`",
        ),
        (
            "        return x + self.down",
            "        self.last = x\n        return x + self.down",
            "changes `self.last`",
        ),
        (
            "        return self.head(x)",
            "        return self.route(x)\n\n    def route(self, x):\n"
            "        return self.head(x[x.sum(-1).nonzero()])",
            "`Net.route` breaks the graph",
        ),
        (
            "        return self.head(x)",
            "        x = x + 0.1 * torch.randn_like(x)\n        return self.head(x)",
            "draws other numbers",
        ),
        (
            "    def forward(self, x):\n        for",
            "    def compile(self):\n        pass\n\n    def forward(self, x):\n        for",
            "has its own `compile`",
        ),
        ("import torch\n", "import random\n\nimport torch\n", ""),
    ],
    ids=["item", "print", "counter", "state", "inner-method", "noise", "own-compile", "harmless"],
)
def test_forward_that_breaks_the_graph_declines(old: str, new: str, reason: str) -> None:
    result = apply(PLAIN, MODEL.replace(old, new, 1))
    if not reason:
        assert isinstance(result, Applied)
        return
    assert isinstance(result, Declined)
    assert re.match(r"(model|train)\.py:\d+: ", result.reason)
    assert reason in result.reason


def test_unused_parameters_decline() -> None:
    result = apply(DDP.replace("DDP(model)", "DDP(model, find_unused_parameters=True)"))
    assert isinstance(result, Declined)
    assert "find_unused_parameters" in result.reason


def test_regular_expressions_are_no_models() -> None:
    code = PLAIN.replace("def main", 'import re\n\nPATTERN = re.compile("x")\n\n\ndef main')
    assert isinstance(apply(code), Applied)


@pytest.mark.parametrize("text", ["def f(:\n", "", "import torch\n"])
def test_nothing_to_compile_declines(text: str) -> None:
    assert isinstance(CompileModel().apply({"train.py": text}), Declined)
