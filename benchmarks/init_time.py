"""What `infrarsi init` costs on a large repository: `python benchmarks/init_time.py`.

Makes a repository of 20,000 files from a seed (Python files that the entry imports directly and
through others, Python files that it does not import, texts, data, big binary files, links in a
circle), runs `infrarsi init` on its launch script in a fresh process and prints seconds, CPU
seconds and MiB at the peak. `--keep FOLDER` leaves the repository there.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FILES, IMPORTED, IDLE = 20_000, 400, 1_600
_BIG_BYTES = 200 << 20  # each of three; sparse, so that they take no room
_WORDS = (
    *("state", "batch", "hidden", "weight", "index", "value", "group", "layer", "query", "shard"),
    *("scale", "bias", "offset", "cache", "token", "buffer", "config", "rank", "stage", "module"),
)
_LAUNCH = """\
#!/bin/bash
export OMP_NUM_THREADS=4
torchrun --standalone --nproc_per_node=8 train.py \\
    --batch-size 8 --grad-accum 4 --max-steps 5000 --seq-len 2048 --out-dir out "$@"
"""
_ENTRY = '''\
"""Trains a model."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

{imports}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--out-dir", default="out")
    parser.add_argument("--resume", default="")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    model = DistributedDataParallel(torch.nn.Linear(8, 8).cuda(rank))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    for step in range(args.max_steps):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(torch.randn(args.batch_size, 8, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), os.path.join(args.out_dir, "model.pt"))


if __name__ == "__main__":
    main()
'''
_HEAD = '''\
"""Module {number} of the library."""

import math
from dataclasses import dataclass

import torch
from torch import nn

{imports}

'''
_LAYER = '''
class {name}(nn.Module):
    """Maps {a} to {b}; from outside it is what `import {a}` of another layer would be."""

    def __init__(self, {a}_size: int, {b}_size: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.{a} = nn.Linear({a}_size, {b}_size, bias=False)
        self.{b} = nn.LayerNorm({b}_size, eps=1e-{digit})
        self.dropout = nn.Dropout(dropout)

    def forward(self, {a}: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        {b} = self.{a}({a}) * {digit}.{digit}
        if mask is not None:
            {b} = {b}.masked_fill(~mask[:, None, :], float("-inf"))
        scores = [{b}[:, i : i + {digit}].softmax(dim=-1) for i in range(0, {b}.shape[1], {digit})]
        {b} = torch.cat(scores, dim=1) + math.sqrt(float({b}.shape[-1])) / ({digit} + 1)
        return self.dropout(self.{b}({b})).view(-1, {b}.shape[-1])
'''
_FUNCTION = """
def {name}({a}, {b}=None, *, {c}=({digit}, "x", {{"k": [{digit}, 2.5]}})):
    # The {a} of a {b}: one pass over all of them, the {c} last.
    total = {{}}
    for position, one in enumerate({a}):
        if {b} is not None and position % {digit} == 0:
            total[f"{{position}}-{c}"] = [x + {digit} for x in one if x is not {b}]
        elif isinstance(one, dict):
            total.update({{k: v * {digit} for k, v in one.items() if k != "{c}"}})
        else:
            raise ValueError("no {a} in a {b}: " + repr(one))
    return sorted(total.items(), key=lambda item: (len(item[1]), item[0]))
"""
_RARE = (
    'def save_{a}(args, {a}):\n    torch.save({a}, os.path.join(args.out_dir, "{a}.pt"))\n',
    'DEBUG_{A} = os.environ.get("DEBUG_{A}", "0")\n',
    "class {A}Dataset(torch.utils.data.Dataset):\n    def __len__(self):\n        return {digit}\n",
    "@dataclass\nclass {A}Config:\n    {a}_size: int = {digit}\n    {b}: float = 0.{digit}\n",
    'def dump_{a}(out_dir):\n    with open(f"{{out_dir}}/{a}.txt", "w") as file:\n'
    '        file.write("{b}")\n',
)


def make(root: Path, *, seed: int = 0) -> Path:
    """Write the repository, a file for each of FILES; gives the launch script."""
    draw = random.Random(seed)
    names = [f"lib/part{i % 20:02d}/mod{i:04d}" for i in range(IMPORTED)]
    for number, name in enumerate(names):
        below = [names[i] for i in (2 * number + 41, 2 * number + 42) if i < IMPORTED]
        _write(root / f"{name}.py", _module(draw, number, below, lines=_lines(draw)))
    _write(root / "lib/__init__.py", "")
    for part in range(20):
        _write(root / f"lib/part{part:02d}/__init__.py", "")
    first = "\n".join(_import(name) for name in names[:41])
    _write(root / "train.py", _ENTRY.format(imports=first))
    _write(root / "train.sh", _LAUNCH)
    for number in range(IDLE):
        _write(
            root / f"extra/pkg{number % 40}/idle{number}.py", _module(draw, number, [], lines=80)
        )
    for number in range(3):
        with _folder(root / f"weights/big{number}.safetensors").open("wb") as file:
            file.write(draw.randbytes(4096))
            file.truncate(_BIG_BYTES)
    for number in range(8):
        place = _folder(root / f"links/loop{number}/inside/again")
        place.symlink_to(root / "links", target_is_directory=True)
    (root / "links/itself.py").symlink_to("itself.py")
    written = 2 + IMPORTED + 21 + IDLE + 3 + 9
    for number, data in zip(range(FILES - written), _data(draw), strict=False):
        kind = ("txt", "json", "bin", "md", "npy")[number % 5]
        _folder(root / f"data/d{number % 97}/s{number % 7}/item{number}.{kind}").write_bytes(data)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "train.py", "train.sh", "lib"], cwd=root, check=True)
    return root / "train.sh"


def _lines(draw: random.Random) -> int:
    """Most files are short, a few are very long."""
    return min(4000, int(draw.lognormvariate(5.2, 0.9)))


def _module(draw: random.Random, number: int, imported: list[str], *, lines: int) -> str:
    parts = [_HEAD.format(number=number, imports="\n".join(map(_import, imported)))]
    if draw.random() < 0.35:
        a, b = draw.sample(_WORDS, 2)
        rare = draw.choice(_RARE).format(a=a, b=b, A=a.upper(), digit=number % 8 + 1)
        parts.append("import os\n\n" + rare)
    while sum(part.count("\n") for part in parts) < lines:
        a, b, c = draw.sample(_WORDS, 3)
        shape = draw.choice((_LAYER, _FUNCTION))
        base = (
            f"{a}_{b}{len(parts)}" if shape is _FUNCTION else f"{a.title()}{b.title()}{len(parts)}"
        )
        parts.append(shape.format(name=base, a=a, b=b, c=c, digit=draw.randint(1, 9)) + "\n")
    return "".join(parts)


def _import(name: str) -> str:
    package, _, module = name.replace("/", ".").rpartition(".")
    return f"from {package} import {module}"


def _data(draw: random.Random) -> Iterator[bytes]:
    while True:
        yield draw.randbytes(min(200_000, int(draw.lognormvariate(6.5, 1.5))))


def _folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write(path: Path, text: str) -> None:
    _folder(path).write_text(text, encoding="utf-8")


def measure(script: Path) -> tuple[float, float, float]:
    """(seconds, CPU seconds, MiB at the peak) of `infrarsi init` in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "infrarsi", "init", str(script), "--force"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"init ended with {child.returncode}")
    return time.monotonic() - began, used.ru_utime + used.ru_stime, _mib(used)


def _mib(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1024


def main() -> None:
    """Make the repository, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = options.keep or Path(name) / "repository"
        script = root / "train.sh" if root.exists() else make(root, seed=options.seed)
        imported = [path.stat().st_size for path in (root / "lib").rglob("*.py")]
        print(f"imported {len(imported)} files, {sum(imported) / 1e6:.1f} MB")
        for _ in range(options.runs):
            seconds, cpu, mib = measure(script)
            print(f"{seconds:.2f} s, {cpu:.2f} CPU s, {mib:.0f} MiB")


if __name__ == "__main__":
    main()
