"""Where a run's warm-up ends, and what its steady steps take.

Notation: y log durations; m, s median and robust standard deviation of y over the last third;
z = |y - m| / s; t the number of leading steps dropped.

The number of leading steps dropped is the t that maximises the sum over i < t of
min(z_i, CAP) - COST: a change-point between "unlike the end of the run" and "like it", with a
bounded loss. A step that looks like the end of the run argues for keeping what came before it, so
that a slow step every k steps (k >= 3) is not taken for warm-up, however slow it is; a first step
of 35 s counts no more than CAP, so that it is dropped alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_STEPS = 5
"""Fewer durations than this say nothing about warm-up."""
_CAP = 6.0  # 35 s among 0.1 s counts as any outlier; one slow step in three is no warm-up yet
_COST = 3.0  # a step within three robust standard deviations of the end argues for being kept
_MIN_LOG_SD = 0.005  # clocks and schedulers below half a per cent are no evidence of warm-up
_DRIFT = 0.02  # a drift over the steady steps below two per cent is not worth a word

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SteadyState:
    """The steady part of one run.

    `first` is the index of the first steady duration, `count` how many follow. `median_s` is their
    median, `tail_share` the share of their total time that lies beyond `count` medians (negative
    where most steps are slower than the mean), `spread_log_sd` the robust standard deviation of
    log durations. `settled` is False where it cannot be told; `reason` then says why.
    """

    first: int
    median_s: float
    tail_share: float
    spread_log_sd: float
    count: int
    settled: bool = True
    reason: str = ""

    @property
    def mean_s(self) -> float:
        """Mean steady step, recurring slow steps included."""
        return self.median_s / (1.0 - self.tail_share)


def steady(durations: Sequence[float]) -> SteadyState:
    """Trim the warm-up of a run's step durations (seconds, positive, in order).

    Raises ValueError for no duration at all or one that is not positive and finite.
    """
    values: Floats = np.asarray(durations, dtype=np.float64)
    if values.size == 0:
        raise ValueError("`durations` must hold at least one duration, but got none")
    if not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError(f"`durations` must be positive and finite, but got {durations!r}")
    if values.size < MIN_STEPS:
        reason = f"{values.size} steps are fewer than the {MIN_STEPS} that show a warm-up"
        return _state(values, 0, reason)
    first = _change_point(np.log(values))
    return _state(values, first, _doubt(values, first))


def _change_point(logs: Floats) -> int:
    end = logs[-max(3, math.ceil(len(logs) / 3)) :]
    middle, spread = float(np.median(end)), robust_sd(end)
    first = 0
    for _ in range(3):  # the spread of the end alone is rough; two refinements settle it
        deviation = np.abs(logs - middle) / max(spread, _MIN_LOG_SD)
        score = np.concatenate([[0.0], np.cumsum(np.minimum(deviation, _CAP) - _COST)])
        latest = len(logs) - 3
        again = int(np.argmax(score[: latest + 1]))
        if again == first:
            break
        first = again
        middle, spread = float(np.median(logs[first:])), robust_sd(logs[first:])
    return first


def _doubt(values: Floats, first: int) -> str:
    rest = np.log(values[first:])
    if len(rest) < MIN_STEPS or first > 2 * len(values) / 3:
        return f"the run was still settling: only {len(rest)} of {len(values)} steps look alike"
    half = len(rest) // 2
    change = float(np.median(rest[-half:]) - np.median(rest[:half]))
    # A median of n normal values has standard error 1.25 sd / sqrt(n); two of them differ.
    error = 1.2533 * robust_sd(rest) * math.sqrt(2.0 / half)
    if abs(change) > max(_DRIFT, 3.0 * error):
        return f"step times drift by {math.expm1(change):+.1%} over the steady steps"
    return ""


def _state(values: Floats, first: int, reason: str) -> SteadyState:
    rest = values[first:]
    median = float(np.median(rest))
    return SteadyState(
        first=first,
        median_s=median,
        tail_share=1.0 - median / float(rest.mean()),
        spread_log_sd=robust_sd(np.log(rest)),
        count=len(rest),
        settled=not reason,
        reason=reason,
    )


def robust_sd(values: Floats) -> float:
    """1.4826 times the median absolute deviation: the standard deviation of a normal sample.

    Source: Rousseeuw and Croux 1993; holds with up to half of the values being outliers.
    """
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
