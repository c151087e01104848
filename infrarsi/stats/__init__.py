"""Pure numerics: steady state, noise, paired speed-up, sequential decisions, break-even."""

from infrarsi.stats.breakeven import Cost, break_even_step, net_speedup
from infrarsi.stats.hopeless import MIN_STEPS, hopeless_margin
from infrarsi.stats.noise import Noise, aa_log_ratios, noise_of_runs
from infrarsi.stats.paired import Interval, log_ratio, paired_interval
from infrarsi.stats.sequential import (
    FALSE_PROMOTION_RATE,
    Decision,
    Look,
    Plan,
    decide,
    max_pairs,
    plan,
    resolvable_gain,
)
from infrarsi.stats.steady import SteadyState, steady

__all__ = [
    "FALSE_PROMOTION_RATE",
    "MIN_STEPS",
    "Cost",
    "Decision",
    "Interval",
    "Look",
    "Noise",
    "Plan",
    "SteadyState",
    "aa_log_ratios",
    "break_even_step",
    "decide",
    "hopeless_margin",
    "log_ratio",
    "max_pairs",
    "net_speedup",
    "noise_of_runs",
    "paired_interval",
    "plan",
    "resolvable_gain",
    "steady",
]
