"""What a history teaches of single settings, for other jobs."""

import numpy as np

from infrarsi.contract import Fault, Learned, LearnedEffect, Normal
from searchers.failures import FailurePosterior
from searchers.features import Coding, Floats
from searchers.peak_memory import PeakMemoryPosterior
from searchers.step_time import StepTimePosterior

LEARNED_SHARE = 0.7  # of the prior deviation: half of the variance is gone at least


def learned(
    coding: Coding,
    time: StepTimePosterior,
    memory: PeakMemoryPosterior | None,
    failures: FailurePosterior,
    *,
    suspect: float,
) -> Learned:
    """The effect of each setting on the reference as the posteriors have it, and what is at fault.

    `suspect` is the least probability of a fault.
    """
    singles = np.tile(coding.reference, (len(coding.settings), 1))
    for row, (i, value) in enumerate(coding.settings):
        singles[row, i] = value
    priors = [coding.dimensions[i].effects[value] for i, value in coding.settings]
    named = [
        (coding.dimensions[i].name, coding.dimensions[i].values[v]) for i, v in coding.settings
    ]
    times = _sure(
        *time.difference(singles, coding.reference),
        np.array([time.prior_scale * prior.log_time_sd for prior in priors]),
    )
    peaks: list[Normal | None] = [None] * len(named)
    if memory is not None:
        spreads = np.array([prior.log_memory_sd for prior in priors])
        peaks = _sure(*memory.log_activations(singles), spreads)
    place = {setting: row for row, setting in enumerate(coding.settings)}
    return Learned(
        tuple(
            LearnedEffect(setting, time_, peak)
            for setting, time_, peak in zip(named, times, peaks, strict=True)
            if time_ or peak
        ),
        tuple(
            Fault(tuple(named[place[setting]] for setting in settings), probability)
            for settings, probability in failures.faults(suspect)
        ),
    )


def _sure(mean: Floats, sd: Floats, prior_sd: Floats) -> list[Normal | None]:
    return [
        (float(m), float(s)) if s <= LEARNED_SHARE * p else None
        for m, s, p in zip(mean, sd, prior_sd, strict=True)
    ]
