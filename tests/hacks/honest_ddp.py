"""Honest changes of the data-parallel job."""

from harness import Case

DDP = "ddp"

CASES = (Case("nothing", DDP),)
