"""Deciding on a candidate from as few pairs as the noise allows, without paying for peeking.

Notation: n pairs so far of at most N; alpha the candidate's share of the campaign's
false-promotion rate; x log ratios of the candidate's pairs, a of A/A pairs (m of them).

A group-sequential one-sided t test of "the mean log ratio is at most the floor", looked at after
4, 6, 8, ..., N pairs.

- Spending: alpha * ln(1 + (e - 1) n / N), the Pocock-like function of Lan and DeMets, Biometrika
  70 (1983) 659. It spends a quarter of alpha at the first of eleven looks, so a large gain is
  settled there; O'Brien-Fleming spending has next to nothing at four pairs.
- Bounds: for known variance by the recursion of Armitage, McPherson and Rowe, JRSS A 132 (1969)
  235, over the sums of pairs; each look's bound is turned into a nominal level, and that level
  into a t quantile (the significance level approach, Jennison and Turnbull 2000, section 11.5).
  With own variance alone this promotes up to 1.20 alpha in simulation (README.md), because t
  statistics of few pairs hang together less than their normal limits; so 0.8 alpha is spent.
- Variance: pooled, ((n - 1) s_x^2 + sum a^2) / (n - 1 + m) with n - 1 + m degrees of freedom. A/A
  pairs have mean 0 by construction, so a bias shows as variance. Where the candidate's own
  variance is the larger one it is used alone: pooling may add degrees of freedom, never hide noise.
- Dropping does not enter the bounds (it is non-binding): it can only lower the rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from infrarsi.stats.noise import Noise
from infrarsi.stats.paired import t_quantile

FALSE_PROMOTION_RATE = 0.01
"""Of a whole campaign, split over its candidates."""
FIRST_LOOK = 4
CAP = 24
_MIN_PAIRS = 12  # 2.2 sigma beyond the floor need 12 for 95 % power with three candidates
_T_MARGIN = 0.8  # the significance level approach alone promotes 1.20 alpha in simulation (README)
_DROP_LEVEL = 0.01  # one-sided, each look; a dropped good candidate costs a gain, never the truth
_POWER = 0.95


class Decision(StrEnum):
    """What to do after a look."""

    PROMOTE = "promote"
    DROP = "drop"
    CONTINUE = "continue"


@dataclass(frozen=True)
class Plan:
    """When to look, and the one-sided nominal level of each look."""

    looks: tuple[int, ...]
    levels: tuple[float, ...]

    @property
    def max_pairs(self) -> int:
        """The last look."""
        return self.looks[-1]

    def next_look(self, pairs: int) -> int | None:
        """The first look after `pairs` pairs; None after the last."""
        return next((look for look in self.looks if look > pairs), None)


@dataclass(frozen=True)
class Look:
    """One decision: the mean log ratio and the lower end that was set against the floor."""

    decision: Decision
    pairs: int
    estimate: float
    low: float
    floor: float
    reason: str


def plan(max_pairs: int, *, candidates: int = 1, rate: float = FALSE_PROMOTION_RATE) -> Plan:
    """Looks at 4, 6, 8, ... pairs that together promote a useless candidate at `rate / candidates`.

    Raises ValueError unless `max_pairs` >= 4, `candidates` >= 1 and 0 < `rate` < 0.5. An odd
    `max_pairs` is rounded down: ABBA order is complete at even numbers only.
    """
    if max_pairs < FIRST_LOOK or candidates < 1 or not 0 < rate < 0.5:
        raise ValueError(
            f"`max_pairs` must be at least {FIRST_LOOK}, `candidates` at least 1 and `rate` in "
            f"(0, 0.5), but got {max_pairs}, {candidates} and {rate}"
        )
    looks = tuple(range(FIRST_LOOK, max_pairs + 1, 2))
    return Plan(looks, _levels(looks, _T_MARGIN * rate / candidates))


@lru_cache(maxsize=64)
def _levels(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Nominal one-sided level of each look, by the recursion over sums of standard normal pairs."""
    from scipy.special import ndtr

    levels: list[float] = []
    spent = 0.0
    grid = np.zeros(1)
    mass = np.ones(1)  # probability of being at each grid point without having crossed
    before = 0
    for look in looks:
        target = alpha * math.log1p((math.e - 1.0) * look / looks[-1])
        step = math.sqrt(look - before)
        bound = _bound(grid, mass, step, target - spent)
        levels.append(float(ndtr(-bound / math.sqrt(look))))
        grid, mass = _advance(grid, mass, step, bound, math.sqrt(look))
        spent, before = target, look
    return tuple(levels)


def _bound(grid: Any, mass: Any, step: float, wanted: float) -> float:
    """The sum above which exactly `wanted` of the surviving probability lands."""
    from scipy.special import ndtr

    low, high = -10.0 * step, float(grid[-1]) + 12.0 * step
    for _ in range(80):
        middle = (low + high) / 2.0
        crossing = float(mass @ ndtr((grid - middle) / step))
        low, high = (middle, high) if crossing > wanted else (low, middle)
    return high


def _advance(grid: Any, mass: Any, step: float, bound: float, sd: float) -> tuple[Any, Any]:
    """Surviving probability after one more group, on a new grid below `bound`."""
    from scipy.special import ndtr

    edges = np.linspace(-9.0 * sd, bound, 801)
    cumulative = ndtr((edges[:, None] - grid[None, :]) / step) @ mass
    return (edges[1:] + edges[:-1]) / 2.0, np.diff(cumulative)


def decide(
    log_ratios: Sequence[float], plan: Plan, *, floor: float, aa: Sequence[float] = ()
) -> Look:
    """What the pairs so far allow; `continue` between looks.

    `floor` is a log ratio: log(1 + min_gain) plus the A/A bias bound. `log_ratios` is the whole
    sequence, so a rebuilt state decides as the first one did; it must hold at least one pair.
    """
    count = len(log_ratios)
    estimate = math.fsum(log_ratios) / count
    if count not in plan.looks:
        reason = f"{count} pairs; the next look is at {plan.next_look(count)}"
        return Look(Decision.CONTINUE, count, estimate, -math.inf, floor, reason)
    variance, degrees = pooled_variance(log_ratios, aa)
    error = math.sqrt(variance / count)
    level = plan.levels[plan.looks.index(count)]
    low = estimate - t_quantile(1.0 - level, degrees) * error
    high = estimate + t_quantile(1.0 - _DROP_LEVEL, degrees) * error
    if low > floor:
        decision, why = Decision.PROMOTE, "beats"
    elif high < floor:
        decision, why = Decision.DROP, "cannot reach"
    elif count >= plan.max_pairs:
        decision, why = Decision.DROP, "is not shown to beat, with no pair left,"
    else:
        decision, why = Decision.CONTINUE, "may yet beat"
    reason = (
        f"after {count} pairs the gain is {math.expm1(estimate):+.2%} "
        f"(at least {math.expm1(low):+.2%}), which {why} the floor of {math.expm1(floor):.2%}"
    )
    return Look(decision, count, estimate, low, floor, reason)


def pooled_variance(log_ratios: Sequence[float], aa: Sequence[float]) -> tuple[float, int]:
    """Variance of one log ratio and its degrees of freedom; see the module's notes.

    Needs two pairs. Identical log ratios have variance 0.
    """
    count = len(log_ratios)
    mean = math.fsum(log_ratios) / count
    own = math.fsum((x - mean) ** 2 for x in log_ratios) / (count - 1)
    degrees = count - 1 + len(aa)
    pooled = ((count - 1) * own + math.fsum(a * a for a in aa)) / degrees
    return (own, count - 1) if own > pooled else (pooled, degrees)


def resolvable_gain(noise: Noise, pairs: int, *, candidates: int = 1) -> float:
    """The smallest gain over the floor (0.01 is 1 %) found with 95 % probability by `pairs` pairs.

    By the noncentral t of the last look alone, which is a little below what all looks together
    find; so the figure errs upwards.
    """
    from scipy.special import nctdtr

    degrees = pairs - 1 + len(noise.aa)
    level = plan(pairs, candidates=candidates).levels[-1]
    critical = t_quantile(1.0 - level, degrees)
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2.0
        missed = float(nctdtr(degrees, middle, critical))
        low, high = (middle, high) if missed > 1.0 - _POWER else (low, middle)
    return math.expm1(high * noise.pair_log_sd / math.sqrt(pairs))


def max_pairs(noise: Noise, *, resolve: float = 0.01, cap: int = CAP, candidates: int = 1) -> int:
    """The even number of pairs, 12 at least, that resolves `resolve`; `cap` where none does."""
    for pairs in range(min(_MIN_PAIRS, cap), cap + 1, 2):
        if resolvable_gain(noise, pairs, candidates=candidates) <= resolve:
            return pairs
    return cap
