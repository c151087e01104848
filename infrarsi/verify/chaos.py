"""How much a job amplifies rounding, and up to which step its numbers say anything.

Some jobs are calm: a unit in the last place of the weights stays one for the whole run. Others have
a loss spike, and what differed in the sixth digit before it differs in the first one after it. The
perturbed run shows by how much its own rounding is amplified, but not by how much another kernel's
is: of two that start alike one may come out forty times as far from the reference as the other. The
spread of such factors grows with the factor, so a band is widened by the square root of it.

Where the band of gradients reaches `CAP`, a gradient that is half wrong would pass. That step and
all later ones are beyond the horizon: the reference does not say what they should be, nor does it
for a second run of itself. They are judged by counts, data and settings alone, and by the middle of
their losses.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from infrarsi.verify.evidence import Evidence
from infrarsi.verify.gradients import own_spread
from infrarsi.verify.numerics import GRADIENT_FACTOR, Floats, envelope

CAP = 0.5
"""Share of a gradient that no honest change is off by, while the reference still repeats itself."""
MIN_STEPS = 3
"""Steps before the horizon that it takes to judge anything by numbers."""
_FIRST = 3


@dataclass(frozen=True)
class Chaos:
    """`spread`: by step, how far the gradients of the perturbed run are off; empty if unknown."""

    spread: dict[int, float] = field(default_factory=dict)

    def growth(self, steps: Sequence[int]) -> Floats:
        """By what a band of the reference's own spread is widened at each step; at least 1."""
        if not self.spread or not len(steps):
            return np.ones(len(steps))
        ordered = sorted(self.spread)
        first = max(max(self.spread[step] for step in ordered[:_FIRST]), 1e-12)
        return np.sqrt(np.maximum(1.0, envelope(self.spread, steps) / first))

    @cached_property
    def horizon(self) -> int | None:
        """The first step that numbers say nothing of; None where there is none."""
        steps = sorted(self.spread)
        widths = GRADIENT_FACTOR * envelope(self.spread, steps) * self.growth(steps)
        return next((s for s, width in zip(steps, widths, strict=True) if not width < CAP), None)

    def judged(self, steps: Sequence[int]) -> list[int]:
        """Those of the steps that are before the horizon."""
        horizon = self.horizon
        return [step for step in steps if horizon is None or step < horizon]

    @property
    def note(self) -> str:
        """What a reason says of the horizon; "" without one."""
        if self.horizon is None:
            return ""
        return f"; judged up to step {self.horizon - 1}, then the reference departs from itself"


def chaos_of(evidence: Evidence, split: frozenset[str]) -> Chaos:
    """What the audit and the perturbed run show; calm where they have no gradients."""
    return Chaos(own_spread(evidence, split))


def middle(values: Sequence[float]) -> float:
    """The median; 0 without values."""
    return statistics.median(values) if values else 0.0
