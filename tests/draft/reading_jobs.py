"""A small training program, and drafting one without a look at this machine."""

from pathlib import Path

from infrarsi.draft import Draft, Machine, draft

TRAIN = """import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--out", default="out")
args = parser.parse_args()
loss = torch.zeros(1, requires_grad=True)
loss.sum().backward()
"""


def read(target: Path, *, cpus: int = 8, gpus: int = 0, **options: str) -> Draft:
    """A draft for a machine of the test's choice, in an empty environment."""
    return draft(target, machine=Machine(cpus, gpus), environ={}, **options)
