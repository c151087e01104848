"""A change of a module is run on what the job really called it with, old against new."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from recipe_runs import job

from infrarsi.contract import ExecutionRequest, Overlay, RunKind, SnapshotRef
from infrarsi.contract.execution import NodeInfo
from infrarsi.workspace.local_check import CheckOutcome, CheckStatus, Recording, check, record

NODE = NodeInfo("node", "localhost", 2)
MODEL = job(
    """
    import math

    import torch
    import torch.nn as nn
    import torch.nn.functional as F


    def gelu(x):
        return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


    class Attention(nn.Module):
        def __init__(self, width, heads, length=16):
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(width, 3 * width)
            self.register_buffer("mask", torch.tril(torch.ones(length, length)))

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            att = att.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
            y = att.softmax(-1) @ v
            return y.transpose(1, 2).reshape(B, T, C)


    class MLP(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.up = nn.Linear(config["width"], 32)
            self.down = nn.Linear(32, config["width"])
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.down(gelu(self.up(x))))


    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x, *, scale):
            self.calls += 1
            x += scale
            return x


    class Unused(nn.Module):
        def forward(self, x):
            return x
    """
)
TRAIN = job(
    """
    import torch
    import torch.nn as nn

    from model import MLP, Attention, Counter

    STEPS = 50


    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.attention = Attention(width, heads=2)
            self.mlp = MLP({"width": width})
            self.counter = Counter()

        def forward(self, x):
            x = x + self.attention(x)
            return self.counter(x + self.mlp(x), scale=0.5).mean()


    torch.manual_seed(0)
    net = Net(8)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with open("ran", "a") as f:
        f.write("x")
    for step in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(2, 6, 8)).backward()
        optimizer.step()
    raise SystemExit("the recorder did not end the run")
    """
)
ZEROED = TRAIN[: TRAIN.index("optimizer.zero_grad")].count("\n") + 1
FILES = {"model.py": MODEL, "train.py": TRAIN}


def execution(folder: Path, command: str, files: dict[str, str]) -> ExecutionRequest:
    """A request to run a command in a snapshot of the files."""
    tree = folder / "snapshot" / "tree"
    tree.mkdir(parents=True)
    for path, text in files.items():
        (tree / path).write_text(text, encoding="utf-8")
    return ExecutionRequest(
        execution_id="record",
        kind=RunKind.TIMED,
        snapshot=SnapshotRef("digest", str(folder / "snapshot"), "job"),
        overlay=Overlay(command=command),
        receipt_dir=str(folder / "receipt"),
        cache_dir=str(folder / "cache"),
        optimizer_steps=1,
        ends_by="witness",
        witness_key="00",
    )


def recorded(
    folder: Path, command: str, files: dict[str, str], timeout_s: float = 100.0
) -> Recording | CheckOutcome:
    """Record a job."""
    request = execution(folder, command, files)
    into = folder / "recording"
    return record(request, NODE, base=os.environ, files=files, into=into, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    folder = tmp_path_factory.mktemp("local check")
    result = recorded(folder, f"{sys.executable} train.py", FILES)
    assert isinstance(result, Recording), result
    yield result
    shutil.rmtree(folder)


def checked(
    recording: Recording, path: str, old: str, new: str, timeout_s: float = 100.0
) -> CheckOutcome:
    """Check one replacement in one file."""
    assert old in FILES[path]
    after = {**FILES, path: FILES[path].replace(old, new)}
    return check(sys.executable, FILES, after, recording=recording, timeout_s=timeout_s)


def test_every_class_that_trained_is_recorded(recording: Recording) -> None:
    names = {name for _, name in recording.records}
    assert names == {"Net", "Attention", "MLP", "Counter"}
    assert recording.optimizer is not None


def test_recording_leaves_nothing_but_the_recording(recording: Recording) -> None:
    folder = recording.folder.parent
    assert sorted(p.name for p in folder.iterdir()) == ["calls", "site"]
    assert sorted(p.name for p in recording.tree.iterdir()) == ["model.py", "train.py"]
    assert not _processes_with("INFRARSI_RECORD_OUT", str(recording.folder))


def _processes_with(name: str, value: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(name) == value:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


ATTENTION = """        att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        att = att.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
        y = att.softmax(-1) @ v
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        pytest.param(
            "model.py",
            ATTENTION,
            "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
            id="sdpa",
        ),
        pytest.param("model.py", "0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))", "F.gelu(x)",
                     id="function"),
        pytest.param(
            "model.py",
            "self.drop(self.down(gelu(self.up(x))))",
            "F.dropout(self.down(gelu(self.up(x))), 0.5, self.training)",
            id="dropout by function",
        ),
        pytest.param("model.py", "        x += scale\n        return x", "        return x + scale",
                     id="out of place"),
        pytest.param("train.py", "x = x + self.attention(x)", "x = self.attention(x) + x",
                     id="class of the entry"),
        pytest.param("model.py", '        self.register_buffer("mask", torch.tril(torch.ones(length'
                     ", length)))\n", '        self.register_buffer("mask", torch.ones(length, '
                     "length).tril(), persistent=False)\n", id="buffer not saved"),
    ],
)  # fmt: skip
def test_the_same_computation_passes(recording: Recording, path: str, old: str, new: str) -> None:
    outcome = checked(recording, path, old, new)
    assert outcome.status is CheckStatus.PASSED, outcome
    assert outcome.figures["output"] < 1e-6
    assert outcome.figures["gradient"] < 1e-5


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        pytest.param("model.py", "math.sqrt(q.size(-1))", "math.sqrt(C)", "output .*differs by",
                     id="scale"),
        pytest.param("model.py", "== 0, float", "< -1, float", "output .*differs by", id="mask"),
        pytest.param(
            "model.py",
            ATTENTION,
            "        y = F.scaled_dot_product_attention(q, k, v)\n",
            "output .*differs by",
            id="not causal",
        ),
        pytest.param("model.py", "self.up(x))))", "self.up(x.detach()))))", "gradient",
                     id="gradient lost"),
        pytest.param("model.py", "self.up = nn.Linear(config[\"width\"], 32)",
                     "self.up = nn.Linear(config[\"width\"], 32, bias=False)", "parameters are",
                     id="parameter gone"),
        pytest.param("model.py", "nn.Dropout(0.5)", "nn.Dropout(0.3)", "dropout", id="less"),
        pytest.param("model.py", "self.drop(self.down(", "(self.down(", "dropout", id="dropout"),
        pytest.param(
            "model.py",
            "self.drop(self.down(gelu(self.up(x))))",
            "F.dropout(self.down(gelu(self.up(x))), 0.5)",
            r"output \(eval",
            id="dropout in evaluation",
        ),
        pytest.param("model.py", "self.calls += 1", "self.calls += 2", "state after",
                     id="buffer"),
        pytest.param("model.py", "torch.erf(x / math.sqrt(2.0))", "torch.tanh(x)", "output",
                     id="function"),
        pytest.param("model.py", "return self.drop(", "raise ValueError('no')\n        return (",
                     "cannot run", id="raises"),
        pytest.param("model.py", "return y.transpose(1, 2).reshape(B, T, C)",
                     "return y.transpose(1, 2).reshape(B, T, C).half()", "float16", id="dtype"),
        pytest.param("model.py", "return y.transpose(1, 2).reshape(B, T, C)",
                     "return y.transpose(1, 2).reshape(B, T, C), y", "structure", id="structure"),
        pytest.param("train.py", "x + self.mlp(x)", "x - self.mlp(x)", "output", id="entry"),
    ],
)  # fmt: skip
def test_another_computation_fails(
    recording: Recording, path: str, old: str, new: str, reason: str
) -> None:
    outcome = checked(recording, path, old, new)
    assert outcome.status is CheckStatus.FAILED, outcome
    assert re.search(reason, outcome.reason), outcome


def test_a_fused_optimizer_is_stepped_on_the_recorded_gradients(recording: Recording) -> None:
    outcome = checked(recording, "train.py", "lr=1e-3)", "lr=1e-3, fused=True)")
    assert outcome.status is CheckStatus.PASSED, outcome
    assert outcome.figures["optimizer"] < 1e-6


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        pytest.param("train.py", "zero_grad()", "zero_grad(True)", f"train.py:{ZEROED}: .*alone",
                     id="outside"),
        pytest.param("model.py", "class Unused(nn.Module):\n    def forward(self, x):\n",
                     "class Unused(nn.Module):\n    def forward(self, x):\n        x = x + 1\n",
                     "`Unused` in model.py was not recorded: it did not run", id="unused"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_alone_is_left_to_the_trial(
    recording: Recording, path: str, old: str, new: str, reason: str
) -> None:
    outcome = checked(recording, path, old, new)
    assert outcome.status is CheckStatus.NOT_POSSIBLE
    assert re.search(reason, outcome.reason), outcome


def test_new_code_that_hangs_is_ended(recording: Recording) -> None:
    outcome = checked(
        recording,
        "model.py",
        "B, T, C = x.shape",
        "B, T, C = x.shape\n        while True: pass",
        3.0,
    )
    assert outcome.status is CheckStatus.NOT_POSSIBLE
    assert "did not end in 3 s" in outcome.reason
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if "infrarsi-check-" in str(p.info["cmdline"])
    ]


def test_new_code_that_does_not_parse_fails(recording: Recording) -> None:
    outcome = checked(recording, "model.py", "class MLP(", "class MLP((")
    assert outcome.status is CheckStatus.FAILED
    assert outcome.reason.startswith("model.py:")


@pytest.mark.parametrize(
    ("command", "timeout_s", "reason"),
    [
        pytest.param(
            "echo no such file >&2; exit 3", 60.0, "exit code 3 .no such file", id="fails"
        ),
        pytest.param("echo done", 60.0, "exit code 0", id="no training"),
        pytest.param("sleep 1000", 2.0, "no optimizer step in 2 s", id="hangs"),
    ],
)
def test_a_job_that_makes_no_update_cannot_be_recorded(
    tmp_path: Path, command: str, timeout_s: float, reason: str
) -> None:
    outcome = recorded(tmp_path, command, FILES, timeout_s)
    assert isinstance(outcome, CheckOutcome)
    assert outcome.status is CheckStatus.NOT_POSSIBLE
    assert re.search(reason, outcome.reason), outcome
    assert not (tmp_path / "recording" / "run").exists()
