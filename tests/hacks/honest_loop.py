"""Honest changes of the hand-written loop."""

from harness import Case, Edit

LOOP = "loop"

CASES = (
    Case("nothing", LOOP),
    Case(
        "bigger-micro-batch",
        LOOP,
        settings=(("micro_batch", 16), ("accumulation", 2)),
    ),
    Case(
        "fused-adamw",
        LOOP,
        edits=(Edit("train.py", "betas=(0.9, 0.95),", "betas=(0.9, 0.95),\n        fused=True,"),),
    ),
)
