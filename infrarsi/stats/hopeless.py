"""When a trial under way is so much slower than the best one that it is not worth finishing."""

import math

from infrarsi.stats.noise import Noise
from infrarsi.stats.paired import t_quantile

RATE = 0.01
"""The most that a trial which is no slower than any before it may be stopped."""
MIN_STEPS = 8
"""Finished steps before a look; the first two are left out of the live step time."""
LEAST = math.log(1.1)
"""However quiet the machine is: a job's first steps may take longer than its later ones."""


def hopeless_margin(noise: Noise | None, *, rivals: int, steps: int) -> float:
    """The log ratio to the best trial's step time from which a trial is hopeless.

    `rivals` same-job trials gave the best one, which by chance looks faster than it is: a trial is
    stopped where it is slower than all of them beyond what launches vary, each at its share of
    `RATE`. The noise of one launch enters twice, that of the median of `steps` steps once.
    Infinite without a measured noise. Source: Bonferroni's inequality over Student's t.
    """
    if noise is None:
        return math.inf
    median = math.pi / 2 * noise.within_log_sd**2 / max(steps, 1)
    deviation = math.sqrt(2 * noise.run_log_sd**2 + median)
    quantile = t_quantile(1 - RATE / max(rivals, 1), noise.degrees)
    return max(LEAST, quantile * deviation)
