"""Losses are read where they are logged: the same lines are printed, the same weights trained."""

import contextlib
import io
import re
import textwrap

import pytest

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.host_sync import HostSync

SETUP = """
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = [(torch.randn(3, 4), torch.randn(3, 1)) for _ in range(12)]


"""

RUNNING = """
def main(log_every=4):
    running_loss = 0.0
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if step % log_every == log_every - 1:
            print(f"[{step + 1:5d}] loss: {running_loss / log_every:.6f}")
            running_loss = 0.0
"""

VALUE = """
def main(log_interval=5):
    for i, (x, y) in enumerate(loader):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_value = loss.item()
        if i % log_interval == 0:
            print('step', i, 'loss', loss_value)
"""

ACCUMULATED = """
def main(accum=3, log_every=2):
    batches = iter(loader)
    for step in range(len(loader) // accum):
        step_loss = 0.0
        for micro in range(accum):
            x, y = next(batches)
            loss = F.mse_loss(model(x), y) / accum
            step_loss += loss.item()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % log_every == 0 or step == 3:
            print(f"step {step}: {step_loss}")
"""

EPOCH = """
def train_epoch(epoch):
    model.train()
    total_loss, seen = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * x.size(0)
        seen += x.size(0)
    return total_loss / seen


def main():
    best = float("inf")
    for epoch in range(3):
        epoch_loss = train_epoch(epoch)
        best = min(best, epoch_loss)
        print("epoch", epoch, epoch_loss, best)
"""

FLOAT = """
def main():
    history = []
    for epoch in range(2):
        total = 0
        for step, (x, y) in enumerate(loader, start=1):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total = total + float(loss.detach())
            if not step % 4:
                print(step, "%.7f" % (total / step))
        history.append(total / len(loader))
    print(history)
"""

PARTS = """
def main():
    sum_fit = 0.0
    sum_all = 0.0
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for n, (x, y) in enumerate(loader):
        pred = model(x)
        fit = F.mse_loss(pred, y)
        reg = pred.abs().mean()
        loss = fit + 0.1 * reg
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        sum_fit += fit.detach().cpu().item()
        sum_all += loss.data.item()
        should_log = n % 6 == 5
        if should_log:
            print("fit {:.8f} all {:.8f}".format(sum_fit / 6, sum_all / 6))
            sum_fit, sum_all = 0.0, 0.0
"""

CHAINED = """
def main():
    losses = 0.0
    for step, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        loss_val = loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += loss_val
        if step % 3 == 0:
            print(f"loss {loss_val:.5f} mean {losses / (step + 1):.5f}")
"""

SMOOTHED = """
def main():
    smooth = 0.0
    step = 0
    while step < 12:
        x, y = loader[step]
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        smooth = 0.9 * smooth + 0.1 * loss.item()
        if step % 4 == 0 and step > 0:
            print(round(smooth / (1 - 0.9 ** step), 6))
        step += 1
    return smooth
"""

SYNCHRONIZE = """
def main():
    use_cuda = torch.cuda.is_available()
    for step, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if use_cuda:
            torch.cuda.synchronize()
        if step % 5 == 0:
            print(loss.item())
"""

SPELLINGS = {
    "running": RUNNING,
    "value": VALUE,
    "accumulated": ACCUMULATED,
    "epoch": EPOCH,
    "float": FLOAT,
    "parts": PARTS,
    "chained": CHAINED,
    "smoothed": SMOOTHED,
    "synchronize": SYNCHRONIZE,
}


def apply(code: str, setup: str = SETUP) -> Applied | Declined:
    return HostSync().apply({"train.py": setup + textwrap.dedent(code).lstrip("\n")})


def run(text: str) -> tuple[str, list[float]]:
    """What the job prints, and the weights it ends with."""
    space: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "train.py", "exec"), space)
        eval("main()", space)
    return printed.getvalue(), eval("[p.flatten().tolist() for p in model.parameters()]", space)


@pytest.mark.parametrize("name", SPELLINGS)
def test_same_lines_are_printed_and_same_weights_trained(name: str) -> None:
    result = apply(SPELLINGS[name])
    assert isinstance(result, Applied), result
    old = run(SETUP + SPELLINGS[name].lstrip("\n"))
    assert old[0]
    assert run(result.files["train.py"]) == old


@pytest.mark.parametrize("name", SPELLINGS)
def test_loop_reads_nothing_at_every_step_any_more(name: str) -> None:
    result = apply(SPELLINGS[name])
    assert isinstance(result, Applied), result
    again = HostSync().apply(result.files)
    assert isinstance(again, Declined)
    assert "already" in again.reason


def test_diff_is_the_read_and_the_log_line() -> None:
    result = apply(RUNNING)
    assert isinstance(result, Applied)
    old, new = (SETUP + RUNNING.lstrip("\n")).splitlines(), result.files["train.py"].splitlines()
    assert [(a, b) for a, b in zip(old, new, strict=True) if a != b] == [
        (
            "        running_loss += loss.item()",
            "        running_loss += loss.detach().double()",
        ),
        (
            '            print(f"[{step + 1:5d}] loss: {running_loss / log_every:.6f}")',
            '            print(f"[{step + 1:5d}] loss: {float(running_loss) / log_every:.6f}")',
        ),
    ]


LOOK_ALIKES = [
    (
        "early-stopping",
        "        if step %",
        "        if running_loss > 100:\n            break\n        if step %",
        "at every step",
    ),
    (
        "nan-guard",
        "        optimizer.step()\n",
        "        optimizer.step()\n        if not "
        "math.isfinite(loss.item()):\n            raise SystemExit\n",
        "needs the loss at every step",
    ),
    (
        "tensor-guard",
        "        optimizer.step()\n",
        "        if torch.isnan(loss):\n            continue\n        optimizer.step()\n",
        "a branch needs the loss",
    ),
    (
        "plateau",
        "        if step %",
        "        scheduler.step(running_loss)\n        if step %",
        "at every step",
    ),
    (
        "printed",
        "        if step %",
        "        print(running_loss)\n        if step %",
        "at every step",
    ),
    (
        "printed-by-rank",
        "        if step % log_every == log_every - 1:",
        "        if rank == 0:",
        "at every step",
    ),
    (
        "file",
        "        running_loss += loss.item()\n",
        "        running_loss += loss.item()\n        log.write(f'{step} {loss.item()}')\n",
        "needs the loss at every step",
    ),
    (
        "tracker",
        "        if step %",
        "        wandb.log({'loss': loss.item()})\n        if step %",
        "needs the loss at every step",
    ),
    (
        "progress-bar",
        "        if step %",
        "        bar.set_postfix(loss=running_loss)\n        if step %",
        "at every step",
    ),
    (
        "list",
        "        running_loss += loss.item()\n",
        "        running_loss += loss.item()\n        losses.append(loss.item())\n",
        "needs the loss at every step",
    ),
    (
        "meter",
        "        running_loss += loss.item()\n",
        "        meter.update(loss.item())\n",
        "needs the loss at every step",
    ),
    (
        "checkpoint",
        "        if step %",
        "        state['loss'] = running_loss\n        if step %",
        "at every step",
    ),
    (
        "attribute",
        "        running_loss += loss.item()\n",
        "        self.total += loss.item()\n",
        "needs the loss at every step",
    ),
    ("throttled", "        running_loss += loss.item()\n        if", "        if", "already"),
    ("every-step", "% log_every == log_every - 1", "% 1 == 0", "at every step"),
    ("negated", "step % log_every == log_every - 1", "not step % log_every == 0", "at every step"),
    (
        "or-rank",
        "if step % log_every == log_every - 1",
        "if step % log_every == 0 or rank == 0 and 1",
        "at every step",
    ),
    (
        "int-metric",
        "running_loss += loss.item()",
        "running_loss += (model(x) > 0).sum().item()",
        "waits for the device at every step",
    ),
    (
        "lambda",
        "    running_loss = 0.0\n",
        "    running_loss = 0.0\n    peek = lambda: running_loss\n",
        "nested function",
    ),
    ("global", "    running_loss = 0.0\n    for", "    global running_loss\n    for", "is global"),
    (
        "tensor-total",
        "    running_loss = 0.0\n",
        "    running_loss = torch.zeros(())\n",
        "assigned elsewhere",
    ),
    ("own-text", "{running_loss / log_every:.6f}", "{running_loss=}", "own source text"),
    (
        "changed-in-place",
        "        running_loss += loss.item()\n",
        "        running_loss += loss.item()\n        loss *= 0\n",
        "changed in place",
    ),
    ("mps", "    running_loss = 0.0\n", "    running_loss = 0.0\n    model.to('mps')\n", "mps"),
    (
        "rounded",
        "running_loss += loss.item()",
        "running_loss += round(loss.item(), 3)",
        "needs the loss at every step",
    ),
    (
        "metric-waits-anyway",
        "        running_loss += loss.item()\n",
        "        running_loss += loss.item()\n        right += (model(x) > 0).sum().item()\n",
        "waits for the device at every step",
    ),
    (
        "deleted",
        "            running_loss = 0.0\n",
        "            del running_loss\n",
        "deleted elsewhere",
    ),
    (
        "unpacked",
        "            running_loss = 0.0\n",
        "            (running_loss, other), *rest = fresh()\n",
        "assigned elsewhere",
    ),
    (
        "parameter",
        "def main(log_every=4):\n    running_loss = 0.0\n",
        "def main(running_loss, log_every=4):\n",
        "is a parameter",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "reason"), [c[1:] for c in LOOK_ALIKES], ids=[c[0] for c in LOOK_ALIKES]
)
def test_look_alike_declines_with_a_place(old: str, new: str, reason: str) -> None:
    assert old in RUNNING, old
    code = RUNNING.replace(old, new)
    compile(code, "train.py", "exec")
    result = apply(code)
    assert isinstance(result, Declined), result.files["train.py"]
    assert re.match(r"train\.py:\d+: ", result.reason), result.reason
    assert reason in result.reason


SYNC = "        if use_cuda:\n            torch.cuda.synchronize()\n"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (SYNC, SYNC + "        seconds = time.perf_counter() - begin\n", "timed around"),
        ("    for step", "    side = torch.cuda.Stream()\n    for step", "other streams"),
        (SYNC, "        x.to('cpu', non_blocking=True)\n" + SYNC, "asynchronous copies"),
        (SYNC, "        done = torch.cuda.synchronize()\n", "not a plain statement"),
        (SYNC, "        if step % 10 == 0:\n            torch.cuda.synchronize()\n", "already"),
    ],
    ids=["timed", "streams", "copies", "value", "throttled"],
)
def test_synchronize_that_is_of_use_stays(old: str, new: str, reason: str) -> None:
    assert old in SYNCHRONIZE
    result = apply(SYNCHRONIZE.replace(old, new))
    assert isinstance(result, Declined)
    assert reason in result.reason


@pytest.mark.parametrize("text", ["def f(:\n", "", "import torch\n"])
def test_file_without_a_training_loop_declines(text: str) -> None:
    assert isinstance(HostSync().apply({"train.py": text}), Declined)


def test_evaluation_loop_is_not_touched() -> None:
    evaluation = """
        def evaluate():
            total = 0.0
            with torch.no_grad():
                for x, y in loader:
                    total += F.mse_loss(model(x), y).item()
            return total
    """
    result = apply(evaluation)
    assert isinstance(result, Declined)
    assert "no training loop" in result.reason
