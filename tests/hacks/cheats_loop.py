"""Cheats on the hand-written loop."""

from harness import Case, Edit

LOOP = "loop"

CASES = (
    Case(
        "half-accumulation",
        LOOP,
        ("T2",),
        edits=(Edit("train.py", "for micro in range(args.grad_accum):", "for micro in range(2):"),),
        expected={"same_workload", "same_data"},
    ),
)
