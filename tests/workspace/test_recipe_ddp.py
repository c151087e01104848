"""DDP in many hands: what is changed trains the same on two processes, the rest is left alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recipe_runs import applied, changed_lines, declined, job

from infrarsi.workspace.recipes.base import Recipe
from infrarsi.workspace.recipes.ddp import GradientAsBucketView, NoSync, StaticGraph

VIEW, STATIC, NO_SYNC = GradientAsBucketView(), StaticGraph(), NoSync()
HEAD = job(
    """
    import json
    import os
    import sys
    from contextlib import nullcontext

    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 8)
            self.down = nn.Linear(8, 1)

        def forward(self, x, targets=None):
            y = self.down(torch.tanh(self.up(x)))
            return y if targets is None else ((y - targets) ** 2).mean()


    """
)
START = job(
    """
    torch.manual_seed(0)
    model = Net()
    {wrap}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())
    losses = []
    accum = 3
    """
)
LOOP = job(
    """
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(accum):
            x = torch.randn(4, 4)
            loss = model(x, x.sum(1, keepdim=True)) / accum
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    """
)
MODULO = job(
    """
    for i in range(8):
        x = torch.randn(4, 4)
        loss = model(x, x.sum(1, keepdim=True)) / accum
        loss.backward()
        if (i + 1) % accum == 0:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    """
)
END = job(
    """
    norms = [p.norm().item() for p in model.parameters()]
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w") as f:
            json.dump([losses, norms], f)
    dist.destroy_process_group()
    """
)


def program(loop: str = LOOP, wrap: str = "model = DDP(model)", *, inside: bool = False) -> str:
    """The job, at module level or in a function."""
    start = "dist.init_process_group('gloo')\n" + START.replace("{wrap}", wrap)
    body = start + loop + END
    if not inside:
        return HEAD + body
    body = "".join("    " + line if line.strip() else line for line in body.splitlines(True))
    return HEAD + "def main():\n" + body + "\n\nif __name__ == '__main__':\n    main()\n"


def trained(code: str, folder: Path) -> list[list[float]]:
    """Losses of rank 0 and norms of all parameters after training on two processes."""
    (folder / "train.py").write_text(code, encoding="utf-8")
    result = folder / "result.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node=2", str(folder / "train.py"), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    values: list[list[float]] = json.loads(result.read_text(encoding="utf-8"))
    return values


WRAPS = {
    "plain": "model = DDP(model)",
    "one a line": "model = DDP(\n    model,\n    broadcast_buffers=False,\n)",
    "full name": "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=50)",
    "by module": "ddp_model = nn.parallel.DistributedDataParallel(model)",
    "in a condition": "if dist.get_world_size() > 1:\n    model = DDP(model)",
}


@pytest.mark.parametrize("recipe", [VIEW, STATIC], ids=lambda r: r.name)
@pytest.mark.parametrize("name", WRAPS)
def test_a_flag_is_set_however_ddp_is_spelled(name: str, recipe: Recipe) -> None:
    code = program(wrap=WRAPS[name])
    after = applied(recipe, {"train.py": code})["train.py"]
    assert f"{recipe.name.removeprefix('ddp_')}=True" in after
    assert len(changed_lines(code, after)) <= 3


LOOPS = {
    "range": program(),
    "in a function": program(inside=True),
    "literal count": program(LOOP.replace("range(accum)", "range(3)").replace("/ accum", "/ 3")),
    "modulo": program(MODULO),
    "logits first": program(
        LOOP.replace(
            "        loss = model(x, x.sum(1, keepdim=True)) / accum\n",
            "        logits = model(x)\n"
            "        loss = ((logits - x.sum(1, keepdim=True)) ** 2).mean()  # plain\n\n"
            "        loss = loss / accum\n",
        )
    ),
    "backward in one line": program(
        LOOP.replace("        loss.backward()\n", "").replace(
            "loss = model(x, x.sum(1, keepdim=True)) / accum",
            "loss = model(x, x.sum(1, keepdim=True)); (loss / accum).backward()",
        )
    ),
    "contextlib there": program().replace(
        "from contextlib import nullcontext", "import contextlib"
    ),
    "no import": program().replace("from contextlib import nullcontext\n", ""),
}


@pytest.mark.parametrize("name", LOOPS)
def test_micro_steps_before_the_last_do_not_reduce(name: str) -> None:
    code = LOOPS[name]
    after = applied(NO_SYNC, {"train.py": code})["train.py"]
    assert after.count("with model.no_sync() if ") == 1
    assert "else nullcontext():" in after or "else contextlib.nullcontext():" in after


@pytest.mark.parametrize(
    ("recipe", "code"),
    [
        pytest.param(VIEW, program(), id="view"),
        pytest.param(STATIC, program(), id="static"),
        pytest.param(NO_SYNC, program(), id="no_sync"),
        pytest.param(NO_SYNC, program(MODULO, inside=True), id="no_sync modulo"),
        pytest.param(NO_SYNC, LOOPS["logits first"], id="no_sync logits"),
    ],
)
@pytest.mark.slow
def test_two_processes_train_the_same(recipe: Recipe, code: str, tmp_path: Path) -> None:
    after = applied(recipe, {"train.py": code})["train.py"]
    before_values, after_values = trained(code, tmp_path), trained(after, tmp_path)
    for old, new in zip(before_values, after_values, strict=True):
        assert new == pytest.approx(old, rel=1e-5)


def test_view_and_no_sync_go_together_but_a_static_graph_does_not_with_no_sync() -> None:
    files = applied(VIEW, applied(NO_SYNC, {"train.py": program()}))
    assert "no_sync" in declined(STATIC, files)
    assert "static graph" in declined(NO_SYNC, applied(STATIC, {"train.py": program()}))


FLAG_LOOK_ALIKES = {
    "unused parameters": program(wrap="model = DDP(model, find_unused_parameters=True)"),
    "unused by a flag": program(wrap="model = DDP(model, find_unused_parameters=flag)"),
    "two models": program(wrap="model = DDP(model)\nother = DDP(model)"),
    "keywords": program(wrap="model = DDP(model, **options)"),
    "chosen": program(wrap="model = DDP(model, gradient_as_bucket_view=v, static_graph=v)"),
    "explicitly off": program(
        wrap="model = DDP(model, gradient_as_bucket_view=False, static_graph=False)"
    ),
    "set": program(wrap="model = DDP(model, gradient_as_bucket_view=True, static_graph=True)"),
    "communication hook": program(wrap="model = DDP(model)\nmodel.register_comm_hook(None, hook)"),
    "FSDP": program().replace(
        "from torch.nn.parallel import DistributedDataParallel as DDP",
        "from torch.distributed.fsdp import FullyShardedDataParallel as DDP",
    ),
    "apex": program().replace("torch.nn.parallel import Distr", "apex.parallel import Distr"),
    "no DDP": program(wrap="pass"),
}


@pytest.mark.parametrize("recipe", [VIEW, STATIC, NO_SYNC], ids=lambda r: r.name)
@pytest.mark.parametrize("name", FLAG_LOOK_ALIKES)
def test_unclear_wrapping_is_left(name: str, recipe: Recipe) -> None:
    if name in ("chosen", "explicitly off", "set") and recipe is NO_SYNC:
        pytest.skip("says nothing of no_sync")
    assert declined(recipe, {"train.py": FLAG_LOOK_ALIKES[name]})


@pytest.mark.parametrize(
    "line",
    [
        "p.grad.detach_()",
        "p.grad.data.mul_(2)",
        "p.grad = torch.zeros_like(p)",
        "gather(p.grad)",
    ],
)
def test_gradients_that_are_replaced_are_no_views(line: str) -> None:
    code = program(LOOP + f"for p in model.parameters():\n    {line}\n")
    assert "grad" in declined(VIEW, {"train.py": code})


GRAPH_LOOK_ALIKES = {
    "no_sync": (program(LOOP.replace("loss.backward()", "model.no_sync()")), "no_sync"),
    "compiled": (program(wrap="model = torch.compile(DDP(model))"), "compiled"),
    "compiled in place": (program(wrap="model = DDP(model)\nmodel.compile()"), "compiled"),
    "retained": (program(LOOP.replace("backward()", "backward(retain_graph=True)")), "several"),
    "frozen later": (program(LOOP + "model.module.up.requires_grad_(False)\n"), "frozen"),
    "conditional model": (
        program().replace("y = self", "y = x if x.mean() > 0 else self"),
        "decides what the model computes",
    ),
    "layer drop": (program().replace("accum = 3", "accum, layerdrop = 3, 0.1"), "layerdrop"),
    "uneven inputs": (program("with model.join():\n    pass\n" + LOOP), "join"),
    "two backward passes": (
        program("def f(a, b):\n    a.backward()\n    b.backward()\n" + LOOP),
        "more than one backward",
    ),
    "sometimes": (
        program(LOOP.replace("        loss.backward()", "        if x[0, 0]: loss.backward()")),
        "only sometimes",
    ),
}


@pytest.mark.parametrize("name", GRAPH_LOOK_ALIKES)
def test_a_graph_that_may_change_is_not_called_static(name: str) -> None:
    code, reason = GRAPH_LOOK_ALIKES[name]
    assert re.search(reason, declined(STATIC, {"train.py": code}))


def _in_loop(line: str) -> str:
    return program(LOOP.replace("        loss.backward()\n", f"        loss.backward()\n{line}\n"))


NO_SYNC_LOOK_ALIKES = {
    "there already": (
        program(
            LOOP.replace(
                "        loss =", "        model.require_backward_grad_sync = 1\n        loss ="
            )
        ),
        "there already",
    ),
    "no accumulation": (
        program(LOOP.replace("for micro in range(accum):", "if True:")),
        "no loop that accumulates",
    ),
    "clip between": (
        _in_loop("        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
        "between micro-steps",
    ),
    "gradient read": (_in_loop("        print(model.module.up.weight.grad)"), "between micro"),
    "left early": (_in_loop("        if loss > 9: break"), "left before"),
    "skipped": (_in_loop("        if loss > 9: continue"), "left before"),
    "two passes": (
        program(
            LOOP.replace(
                "        loss.backward()", "        loss.backward()\n        loss.backward()"
            )
        ),
        "2 backward passes",
    ),
    "two forwards": (
        program(LOOP.replace("loss = model(x,", "loss = model(x).mean() + model(x,")),
        "called 2 times",
    ),
    "sometimes wrapped": (
        program(wrap="if dist.get_world_size() > 1:\n    model = DDP(model)"),
        "only sometimes",
    ),
    "bound again": (program(wrap="model = DDP(model)\nmodel = wrap(model)"), "bound again"),
    "count changes": (_in_loop("        accum = accum + 1"), "no loop|not known"),
    "counter changes": (_in_loop("        micro = 0"), "no loop|not known"),
    "step not there": (
        program(LOOP.replace("    optimizer.step()\n", "    pass\n")),
        "no loop",
    ),
    "step for the rest": (program(MODULO + "optimizer.step()\n"), "no loop"),
    "other end of update": (
        program(MODULO.replace("(i + 1) % accum == 0", "loss < 1 and i % 2")),
        "not known before",
    ),
    "batch norm": (program().replace("nn.Linear(8, 1)", "nn.BatchNorm1d(8)"), "batch norm"),
    "in another function": (
        program(
            "def train(model):\n"
            + "".join("    " + line for line in LOOP.splitlines(True))
            + "train(model)\n"
        ),
        "does not see",
    ),
    "retained": (program(LOOP.replace("backward()", "backward(retain_graph=True)")), "several"),
}


@pytest.mark.parametrize("name", NO_SYNC_LOOK_ALIKES)
def test_micro_steps_keep_reducing_where_it_is_not_sure(name: str) -> None:
    code, reason = NO_SYNC_LOOK_ALIKES[name]
    found = declined(NO_SYNC, {"train.py": code})
    assert re.match(r"train\.py:\d+: ", found)
    assert re.search(reason, found), found
