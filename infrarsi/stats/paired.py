"""The mean log ratio of pairs, with its interval.

A pair is one run of the reference and one of the candidate, back to back on the same nodes; its
log ratio is log(reference step time / candidate step time), positive where the candidate is
faster. Runs in ABBA order (reference, candidate, candidate, reference) cancel a linear drift over
every two pairs: a 2 % drift over 12 runs biases AAAAAABBBBBB by 1.09 % and ABBA by 0.00 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean log ratio and its two-sided interval; `low` and `high` are infinite for one pair."""

    estimate: float
    low: float
    high: float
    pairs: int

    @property
    def speedup(self) -> float:
        """The estimate as a factor."""
        return math.exp(self.estimate)

    @property
    def speedup_low(self) -> float:
        """The lower end as a factor; 0 where there is none."""
        return math.exp(self.low)

    @property
    def speedup_high(self) -> float:
        """The upper end as a factor."""
        return math.exp(self.high) if self.high < 700 else math.inf


def log_ratio(reference_s: float, candidate_s: float) -> float:
    """The log ratio of one pair; both step times must be positive."""
    return math.log(reference_s / candidate_s)


def paired_interval(log_ratios: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's t interval of the mean; exact at any number of pairs for normal log ratios.

    Raises ValueError without a pair. Source: Student 1908.
    """
    count = len(log_ratios)
    if count == 0:
        raise ValueError("`log_ratios` must hold at least one pair, but got none")
    mean = math.fsum(log_ratios) / count
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    variance = math.fsum((x - mean) ** 2 for x in log_ratios) / (count - 1)
    half = t_quantile(1.0 - (1.0 - confidence) / 2.0, count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
