"""What a faster step is worth once its one-off cost (start, compile, autotune) is charged."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What `n` steps take: `one_off_s + n * step_s`; `step_s` includes recurring slow steps."""

    step_s: float
    one_off_s: float = 0.0

    def total_s(self, steps: int) -> float:
        """Time of a run of that many steps."""
        return self.one_off_s + steps * self.step_s


def net_speedup(reference: Cost, candidate: Cost, planned_steps: int) -> float:
    """Time of the planned run with the reference over that with the candidate."""
    return reference.total_s(planned_steps) / candidate.total_s(planned_steps)


def break_even_step(reference: Cost, candidate: Cost) -> int | None:
    """The first step count at which the candidate has taken no longer than the reference.

    0 where it starts no slower and steps no slower; None where it never catches up.
    """
    extra = candidate.one_off_s - reference.one_off_s
    saved = reference.step_s - candidate.step_s
    if extra <= 0:
        return 0 if saved >= 0 else None
    if saved <= 0:
        return None
    return math.ceil(extra / saved)
