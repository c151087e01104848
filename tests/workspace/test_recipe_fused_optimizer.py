"""Optimizers in many hands: torch's own run fused and train the same, others stay untouched."""

import re

import pytest
import torch
from recipe_runs import applied, changed_lines, declined, job, run

from infrarsi.workspace.recipes.fused_optimizer import FusedOptimizer

RECIPE = FusedOptimizer()
HEAD = job(
    """
    import torch
    import torch.nn as nn
    from torch import optim
    """
)
TAIL = job(
    """
    losses = []
    x = torch.randn(16, 4)
    for step in range(6):
        optimizer.zero_grad()
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    """
)
MODEL = "model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))\n"

FITS = {
    "plain": "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)",
    "positional": "optimizer = torch.optim.Adam(model.parameters(), 1e-2, (0.9, 0.95))",
    "alias": """
        import torch.optim as O
        optimizer = O.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        """,
    "class import": """
        from torch.optim import Adagrad as Optimizer
        optimizer = Optimizer(model.parameters(), lr=0.05)
        """,
    "from torch import optim": "optimizer = optim.Adam(params=model.parameters(), lr=1e-2,)",
    "groups": """
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
                {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
            ],
            lr=1e-2,  # found by hand
        )
        """,
    "no trailing comma": """
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=1e-2  # found by hand
        )
        """,
    "bare generator": "optimizer = optim.SGD(p for p in model.parameters() if p.requires_grad)",
    "keyword dict": """
        settings = dict(lr=1e-2, betas=(0.9, 0.95))
        optimizer = torch.optim.AdamW(model.parameters(), **settings)
        """,
    "literal dict": """
        optimizer = torch.optim.Adam(model.parameters(), **{"lr": 1e-2, "eps": 1e-6})
        """,
    "branches": """
        kind = "sgd"
        if kind == "adam":
            optimizer = optim.Adam(model.parameters(), lr=1e-2)
        elif kind == "sgd":
            optimizer = optim.SGD(model.parameters(), lr=1e-2)
        else:
            raise ValueError(kind)
        """,
    "class by expression": """
        cls = optim.AdamW if len(losses_wanted) else optim.SGD
        optimizer = cls(model.parameters(), lr=1e-2)
        """,
    "table of classes": """
        OPTIMIZERS = {"adam": optim.Adam, "sgd": optim.SGD}
        optimizer = OPTIMIZERS["adam"](model.parameters(), lr=1e-2)
        """,
    "in a method": """
        class Trainer:
            def configure_optimizers(self, lr):
                return torch.optim.AdamW(model.parameters(), lr=lr)

        optimizer = Trainer().configure_optimizers(1e-2)
        """,
}


@pytest.mark.parametrize("name", FITS)
def test_an_own_optimizer_runs_fused_and_trains_the_same(name: str) -> None:
    code = HEAD + MODEL + "losses_wanted = [1]\n" + job(FITS[name]) + TAIL
    after = applied(RECIPE, {"train.py": code})["train.py"]
    added = [line for line in changed_lines(code, after) if line.startswith("+")]
    assert 1 <= len(added) <= 2
    before, now = run(code), run(after)
    assert now["optimizer"].defaults["fused"] is True
    assert now["losses"] == pytest.approx(before["losses"], rel=1e-5)
    for old, new in zip(before["model"].parameters(), now["model"].parameters(), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-6)


LOOK_ALIKES = {
    "already fused": ("o = optim.AdamW(ps, fused=True)", "already chooses .* `fused`"),
    "foreach chosen": ("o = optim.Adam(ps, foreach=False)", "`foreach`"),
    "capturable": ("o = optim.Adam(ps, capturable=True)", "`capturable`"),
    "differentiable": ("o = optim.SGD(ps, lr=1, differentiable=True)", "`differentiable`"),
    "not fused in torch": ("o = optim.RMSprop(ps)", "RMSprop"),
    "own subclass": (
        """
        class AdamW(torch.optim.AdamW):
            def step(self, closure=None):
                return super().step(closure)

        o = AdamW(ps)
        """,
        "no torch.optim",
    ),
    "another library": ("from lion_pytorch import Lion\no = Lion(ps)", "no torch.optim"),
    "8 bit": ("import bitsandbytes as bnb\no = bnb.optim.AdamW8bit(ps)", "no torch.optim"),
    "apex": ("from apex.optimizers import FusedAdam as Adam\no = Adam(ps)", "train.py:4: apex"),
    "one of two by import": (
        """
        try:
            from fancy import AdamW
        except ImportError:
            from torch.optim import AdamW
        o = AdamW(ps)
        """,
        "no torch.optim",
    ),
    "unknown keywords": (
        "def make(ps, **kw):\n    return optim.AdamW(ps, **kw)",
        "train.py:5: what `\\*\\*kw` holds",
    ),
    "keywords changed later": (
        "kw = dict(lr=1)\nkw['foreach'] = True\no = optim.Adam(ps, **kw)",
        "what `\\*\\*kw` holds",
    ),
    "keywords that choose": (
        "kw = {'lr': 1, 'foreach': True}\no = optim.Adam(ps, **kw)",
        "`foreach`",
    ),
    "nanoGPT's switch": (
        """
        import inspect
        fused_available = 'fused' in inspect.signature(torch.optim.AdamW).parameters
        extra_args = dict(fused=True) if fused_available else dict()
        o = torch.optim.AdamW(ps, lr=1, **extra_args)
        """,
        "switch `fused",
    ),
    "a flag of the job": (
        """
        import argparse
        p = argparse.ArgumentParser()
        p.add_argument("--fused-adam", action="store_true")
        o = torch.optim.AdamW(ps)
        """,
        "switch `--fused-adam`",
    ),
    "ZeRO": (
        """
        from torch.distributed.optim import ZeroRedundancyOptimizer
        o = ZeroRedundancyOptimizer(ps, optimizer_class=torch.optim.AdamW, lr=1)
        """,
        "ZeroRedundancyOptimizer",
    ),
    "sparse gradients": (
        "e = nn.Embedding(9, 4, sparse=True)\no = optim.SGD(e.parameters(), lr=1)",
        "train.py:4: sparse",
    ),
    "class by name": ("o = getattr(torch.optim, 'AdamW')(ps)", "by name"),
    "compiled step": ("o = optim.Adam(ps)\nstep = torch.compile(o.step)", "compiled"),
    "tensor learning rate": ("o = optim.Adam(ps, lr=torch.tensor(1e-3))", "a tensor"),
    "deepspeed": ("import deepspeed\no = optim.Adam(ps)", "DeepSpeed"),
    "complex parameters": (
        "w = nn.Parameter(torch.zeros(3, dtype=torch.complex64))\no = optim.Adam([w])",
        "complex",
    ),
    "unpacked arguments": ("o = optim.Adam(*arguments)", "come from"),
    "table that grows": (
        "T = {'a': optim.Adam}\nT['b'] = Other\no = T[kind](ps)",
        "no torch.optim",
    ),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_is_left_with_a_reason(name: str) -> None:
    code, reason = LOOK_ALIKES[name]
    assert re.search(reason, declined(RECIPE, {"train.py": HEAD + job(code)}))


def test_one_that_fits_is_changed_beside_one_that_does_not() -> None:
    code = HEAD + "a = optim.Adam(ps)\nb = optim.Adam(qs, foreach=True)\n"
    after = applied(RECIPE, {"train.py": code})["train.py"]
    assert changed_lines(code, after) == ["-a = optim.Adam(ps)", "+a = optim.Adam(ps, fused=True)"]


def test_other_files_stay_and_a_file_that_does_not_parse_declines() -> None:
    code = HEAD + "o = optim.Adam(ps)\n"
    after = applied(RECIPE, {"train.py": code, "notes.py": "x = 1\n", "run.sh": "exit ("})
    assert after["notes.py"] == "x = 1\n"
    assert declined(RECIPE, {"train.py": code, "old.py": "print 1"}).startswith("old.py:1: ")
