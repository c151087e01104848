"""Cheats on the data-parallel job."""

from harness import Case, Edit

DDP = "ddp"

CASES = (
    Case(
        "half-accumulation",
        DDP,
        ("T2",),
        edits=(
            Edit(
                "train.py",
                "for micro_step in range(args.grad_accum):",
                "for micro_step in range(1):",
            ),
        ),
        expected={"same_workload", "same_data"},
    ),
)
