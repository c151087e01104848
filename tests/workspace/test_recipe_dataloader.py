"""Batches come from workers or pinned memory where they stay the same, else they are left alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recipe_runs import applied, changed_lines, declined, job

from infrarsi.workspace.recipes.dataloader import DataLoaderWorkers, PinMemory

WORKERS = DataLoaderWorkers()
PIN = PinMemory()
HEAD = job(
    """
    import torch
    from torch.utils.data import DataLoader, Dataset, TensorDataset
    from torch.utils.data.distributed import DistributedSampler


    class Squares(Dataset):
        def __init__(self, n, scale=1.0):
            self.n = n
            self.scale = scale

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            x = torch.full((2,), float(i)) * self.scale
            return x, x**2


    def collate(items):
        return {"x": torch.stack([a for a, _ in items]), "y": torch.stack([b for _, b in items])}


    device = torch.device("cpu")
    torch.manual_seed(0)
    train_set = Squares(12)
    """
)
PAIRS = job(
    """
    seen = []
    for epoch in range(2):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            seen.append([x.tolist(), y.tolist(), torch.rand(()).item()])
    """
)
DICTS = job(
    """
    seen = []
    for epoch in range(2):
        for i, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            seen.append([batch["x"].tolist(), batch["y"].tolist(), torch.rand(()).item()])
    """
)
SAMPLED = "sampler = DistributedSampler(train_set, num_replicas=2, rank=0)\n"

FITS = {
    "shuffled": ("loader = DataLoader(train_set, batch_size=4, shuffle=True)", PAIRS),
    "positional": ("loader = DataLoader(train_set, 4, False)", PAIRS),
    "explicit zero": ("loader = DataLoader(train_set, batch_size=4, num_workers=0)", PAIRS),
    "one a line": (
        "loader = DataLoader(\n    Squares(8),\n    batch_size=3,\n    drop_last=True,\n)",
        PAIRS,
    ),
    "distributed": (SAMPLED + "loader = DataLoader(train_set, 3, sampler=sampler)", PAIRS),
    "sampler or none": (
        "world = 1\n"
        + SAMPLED.replace("\n", " if world > 1 else None\n")
        + "loader = DataLoader(train_set, 4, shuffle=(sampler is None), sampler=sampler)",
        PAIRS,
    ),
    "collate": ("loader = DataLoader(train_set, 4, collate_fn=collate, shuffle=True)", DICTS),
    "tensors": (
        "xs = torch.arange(12.0).view(6, 2)\n"
        "data = TensorDataset(xs, xs * 2)\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True)",
        PAIRS,
    ),
    "in a function": (
        "def get_train_loader(data, size):\n    return DataLoader(data, size)\n"
        "loader = DataLoader(dataset=train_set, batch_size=6, shuffle=True)",
        PAIRS,
    ),
}

RUNNER = """
import json, sys, warnings
warnings.simplefilter("ignore")
seen = []
for code in json.load(open(sys.argv[1])):
    scope = {"__name__": "__main__"}
    exec(compile(code, "train.py", "exec"), scope)
    seen.append(scope["seen"])
print(json.dumps(seen))
"""


def outputs(codes: list[str], folder: Path) -> list[object]:
    """What the programs see, run one after another in a process that workers are forked from."""
    path = folder / "codes.json"
    path.write_text(json.dumps(codes), encoding="utf-8")
    command = [sys.executable, "-c", RUNNER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    seen: list[object] = json.loads(done.stdout)
    return seen


def test_workers_give_the_same_batches_and_random_numbers(tmp_path: Path) -> None:
    codes = [HEAD + loader + "\n" + loop for loader, loop in FITS.values()]
    after = [applied(WORKERS, {"train.py": code})["train.py"] for code in codes]
    for code, changed in zip(codes, after, strict=True):
        assert "num_workers=2" in changed
        assert len(changed_lines(code, changed)) <= 3
    seen = outputs(codes + after, tmp_path)
    assert dict(zip(FITS, seen[len(codes) :], strict=True)) == dict(zip(FITS, seen, strict=False))


@pytest.mark.parametrize("name", FITS)
def test_pinned_batches_are_copied_without_waiting(name: str) -> None:
    loader, loop = FITS[name]
    code = HEAD + loader + "\n" + loop
    after = applied(PIN, {"train.py": code})["train.py"]
    assert "pin_memory=True" in after
    assert after.count("non_blocking=True") == loop.count(".to(device)")


def test_pinned_batches_are_the_same(tmp_path: Path) -> None:
    codes = [HEAD + loader + "\n" + loop for loader, loop in FITS.values()]
    after = [applied(PIN, {"train.py": code})["train.py"] for code in codes]
    seen = outputs(codes + after, tmp_path)
    assert seen[: len(codes)] == seen[len(codes) :]


def test_why_persistent_workers_are_not_set(tmp_path: Path) -> None:
    code = HEAD + FITS["shuffled"][0] + "\n" + PAIRS
    persistent = code.replace(
        "shuffle=True", "shuffle=True, num_workers=2, persistent_workers=True"
    )
    plain, kept = outputs([code, persistent], tmp_path)
    assert plain != kept


LOADER = "loader = DataLoader(train_set, batch_size=4)"
OTHER = HEAD.replace("train_set = Squares(12)\n", "")
RANDOM_SET = OTHER + job(
    """
    class Noisy(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return BODY

    train_set = Noisy()
    """
)
WORKER_LOOK_ALIKES = {
    "a setting": (HEAD + LOADER.replace(")", ", num_workers=args.workers)"), "setting of the job"),
    "workers already": (HEAD + LOADER.replace(")", ", num_workers=4)"), "already has worker"),
    "evaluation": (HEAD + LOADER.replace("loader", "val_loader"), "evaluation only"),
    "evaluation set": (HEAD + "loader = DataLoader(test_set, 4)", "evaluation only"),
    "worker_init_fn": (HEAD + LOADER.replace(")", ", worker_init_fn=f)"), "worker_init_fn"),
    "generator": (HEAD + LOADER.replace(")", ", generator=g)"), "generator"),
    "keywords": (HEAD + "loader = DataLoader(train_set, **options)", "not seen"),
    "own sampler": (HEAD + LOADER.replace(")", ", sampler=Mine(train_set))"), "the order of"),
    "lambda": (HEAD + LOADER.replace(")", ", collate_fn=lambda b: b)"), "lambda"),
    "unseen collate": (HEAD + LOADER.replace(")", ", collate_fn=pad)"), "`pad` is not seen"),
    "unseen dataset": (OTHER + "train_set = load('x')\n" + LOADER, "class of its dataset"),
    "torchvision": (
        OTHER + "from torchvision.datasets import MNIST\ntrain_set = MNIST('d')\n" + LOADER,
        "class of its dataset",
    ),
    "python random": (
        RANDOM_SET.replace("BODY", "__import__('x'), random.random()") + LOADER,
        "random",
    ),
    "torch random": (RANDOM_SET.replace("BODY", "torch.randn(2)") + LOADER, "torch.randn"),
    "numpy random": (
        "import numpy as np\n" + RANDOM_SET.replace("BODY", "np.random.rand(2)") + LOADER,
        "numpy.random.rand",
    ),
    "own generator": (RANDOM_SET.replace("BODY", "self.rng.integers(9)") + LOADER, "rng"),
    "transform": (RANDOM_SET.replace("BODY", "self.transform(i)") + LOADER, "transform"),
    "device tensors": (RANDOM_SET.replace("BODY", "self.data[i].cuda()") + LOADER, "device"),
    "counter": (
        RANDOM_SET.replace("return BODY", "self.calls += 1; return i") + LOADER,
        "changes while it is read",
    ),
    "cache": (
        RANDOM_SET.replace("return BODY", "self.seen.append(i); return i") + LOADER,
        "changes while it is read",
    ),
    "open handle": (
        HEAD.replace("self.n = n\n", "self.n = n\n        self.f = open('x')\n") + LOADER,
        "keeps something open",
    ),
    "iterable": (
        OTHER
        + "from torch.utils.data import IterableDataset\nclass Stream(IterableDataset):\n"
        + "    def __iter__(self):\n        yield 1\ntrain_set = Stream()\n"
        + LOADER,
        "every worker the same data",
    ),
    "unseen base": (HEAD.replace("Squares(Dataset)", "Squares(Base)") + LOADER, "base classes"),
    "curriculum": (HEAD + LOADER + "\ntrain_set.set_level(3)", "may change the dataset"),
    "reached": (HEAD + LOADER + "\nloader.dataset.scale = 2", "reached through"),
    "new iterator a batch": (HEAD + LOADER + "\nx = next(iter(loader))", "new iterator"),
    "order drawn elsewhere": (
        HEAD + LOADER.replace(")", ", shuffle=True)") + "\nit = iter(loader)",
        "draw the order here",
    ),
    "spawn": (HEAD + LOADER + "\ntorch.multiprocessing.set_start_method('spawn')", "start method"),
}


@pytest.mark.parametrize("name", WORKER_LOOK_ALIKES)
def test_workers_that_may_change_the_batches_are_not_added(name: str) -> None:
    code, reason = WORKER_LOOK_ALIKES[name]
    found = declined(WORKERS, {"train.py": code + "\n"})
    assert re.match(r"train\.py:\d+: ", found)
    assert re.search(reason, found), found


PIN_LOOK_ALIKES = {
    "pinned": (LOADER.replace(")", ", pin_memory=True)"), PAIRS, "already pins"),
    "a setting": (LOADER.replace(")", ", pin_memory=args.pin)"), PAIRS, "setting of the job"),
    "keywords": ("loader = DataLoader(train_set, **options)", PAIRS, "not seen"),
    "evaluation": (LOADER.replace("loader", "eval_loader"), PAIRS, "evaluation only"),
    "never moved": (LOADER, "for x, y in loader:\n    print(x)\n", "no training batch"),
    "to a dtype": (LOADER, PAIRS.replace("to(device)", "to(torch.float16)"), "no training batch"),
    "to the host": (LOADER, PAIRS.replace("to(device)", 'to("cpu")'), "no training batch"),
    "in place": (
        LOADER,
        PAIRS.replace("        seen", "        x.add_(1)\n        seen"),
        "in place",
    ),
    "part in place": (
        LOADER,
        PAIRS.replace("        x, y = x", "        x[0] = 1\n        x, y = x"),
        "in place",
    ),
    "augmented": (
        LOADER,
        PAIRS.replace("        x, y = x", "        x *= 2\n        x, y = x"),
        "in place",
    ),
    "moved for evaluation": (
        LOADER,
        "def evaluate(loader):\n    for x, y in loader:\n        x.to(device)\n",
        "no training batch",
    ),
    "another loader": ("loader = Loader(train_set)", PAIRS, "no torch DataLoader"),
}


@pytest.mark.parametrize("name", PIN_LOOK_ALIKES)
def test_batches_are_not_pinned_where_it_is_not_sure(name: str) -> None:
    loader, loop, reason = PIN_LOOK_ALIKES[name]
    assert re.search(reason, declined(PIN, {"train.py": HEAD + loader + "\n" + loop}))


def test_a_copy_that_chooses_already_is_left_while_the_loader_is_pinned() -> None:
    code = HEAD + LOADER + "\n" + PAIRS.replace("to(device)", "to(device, non_blocking=True)")
    after = applied(PIN, {"train.py": code})["train.py"]
    assert changed_lines(code, after) == [f"-{LOADER}", "+" + LOADER[:-1] + ", pin_memory=True)"]


def test_parts_and_cuda_and_a_generator_of_batches_are_seen() -> None:
    code = (
        HEAD
        + LOADER
        + job(
            """
        batches = forever(loader)
        for step in range(3):
            batch = next(batches)
            x = batch[0].cuda()
            y = batch[1].to(device=device)
        """
        ).join(["\n", ""])
    )
    after = applied(PIN, {"train.py": code})["train.py"]
    assert "batch[0].cuda(non_blocking=True)" in after
    assert "batch[1].to(device=device, non_blocking=True)" in after


def test_the_dataset_may_live_in_another_file() -> None:
    data, train = HEAD.split('device = torch.device("cpu")')
    train = (
        "import torch\nfrom torch.utils.data import DataLoader\nfrom data import Squares\n" + train
    )
    after = applied(WORKERS, {"data.py": data, "train.py": train + LOADER + "\n"})
    assert after["data.py"] == data
    assert "num_workers=2" in after["train.py"]


def test_an_evaluation_loader_beside_it_is_left() -> None:
    code = HEAD + LOADER + "\nval_loader = DataLoader(Squares(4), batch_size=4)\n"
    after = applied(WORKERS, {"train.py": code})["train.py"]
    assert after.count("num_workers") == 1
