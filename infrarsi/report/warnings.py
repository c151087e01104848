"""What a person should know before trusting a run's figures: noise, and what was assumed."""

from collections.abc import Mapping
from typing import Any

NOISY = 0.2  # step times of the same job that differ by more say little of a change
_NOISE = (
    "Warning: runs of the same job differ by {percent:.0f} %, so only very large gains can be told "
    "from noise. Something else probably uses this machine: end it or wait for it, then measure "
    "again with `infrarsi doctor`; a longer trial (`workload.optimizer_steps`) helps too."
)


def noise_warning(step_log_sd: float | None) -> str:
    """A warning where runs of the reference differ hugely, else ""."""
    if step_log_sd is None or step_log_sd <= NOISY:
        return ""
    return _NOISE.format(percent=100 * step_log_sd)


def planned_note(started: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """What the assumed length of the real run decided, "" where the job's own is the planned one.

    `entry` is the verified candidate. One-off costs are paid back step by step, so a change may be
    worth it in a long run only.
    """
    own, planned = started.get("optimizer_steps"), started.get("planned_steps")
    if started.get("ends_by") != "job" or own is None or planned is None or own == planned:
        return ""
    head = f"Assumed: {planned} steps planned; your job says {own}"
    paid = entry.get("break_even_step")
    if not paid:
        return f"{head}."
    if paid > own:
        return (
            f"{head}: at {own} steps the change does not pay for itself (it does from step {paid} "
            "on)."
        )
    return f"{head}: the change has paid for itself by then, at step {paid}."
