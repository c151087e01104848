"""From pairs to a promotion: the one place that says whether a candidate is faster.

A pair is a run of the reference and one of the candidate, back to back in fresh processes on the
same nodes, in ABBA order. Nothing measured during the search enters: the best of sixteen noisy
trials looks 1.8 standard deviations better than it is.

State is the sequence of pairs, in and out, so a resumed campaign decides as an uninterrupted one.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infrarsi.contract import CheckResult, Project, Status
from infrarsi.stats import (
    FALSE_PROMOTION_RATE,
    Cost,
    Decision,
    Interval,
    Noise,
    break_even_step,
    decide,
    log_ratio,
    max_pairs,
    net_speedup,
    paired_interval,
    plan,
    resolvable_gain,
)
from infrarsi.verify.measurement import Measurement

CHECK = "speed_reproduces"
_STOPPING = 0.6
"""Stopping when the pairs look good lets a 95 % t interval miss 5 to 8 % of the time in simulation;
with 0.6 times the miss rate it misses 3 to 5 %, and 6.6 % in the worst cell (stats/README.md)."""


@dataclass(frozen=True)
class Pair:
    """Times of one pair, in seconds.

    `*_step_s` are median steady steps, which the test is on. `*_mean_s` are means of the same
    steps, recurring slow ones included, which the net speed-up is on; None takes the median.
    """

    reference_step_s: float
    candidate_step_s: float
    reference_one_off_s: float = 0.0
    candidate_one_off_s: float = 0.0
    reference_mean_s: float | None = None
    candidate_mean_s: float | None = None

    @classmethod
    def of(cls, reference: Measurement, candidate: Measurement) -> "Pair":
        """The pair of two measured runs."""
        return cls(
            reference.step_time_s,
            candidate.step_time_s,
            reference.one_off_s,
            candidate.one_off_s,
            reference.mean_step_s,
            candidate.mean_step_s,
        )

    @property
    def log_ratio(self) -> float:
        """log(reference / candidate); positive where the candidate is faster."""
        return log_ratio(self.reference_step_s, self.candidate_step_s)


@dataclass(frozen=True)
class Promotion:
    """Where a paired comparison stands.

    `decision` is promote only if the candidate also breaks even within the planned run.
    `interval` is the speed-up with its interval at `verify.confidence`, corrected for stopping
    early; None without pairs.
    `net_speedup` is that of the planned run with one-off costs charged; `break_even_step` the step
    after which the candidate is ahead for good, None where there is none. `check` is the result of
    `speed_reproduces`: not covered until the pairs have decided.
    """

    decision: Decision
    reason: str
    check: CheckResult
    interval: Interval | None = None
    net_speedup: float | None = None
    break_even_step: int | None = None


@dataclass(frozen=True)
class Rules:
    """What a campaign fixes before it spends a pair.

    `floor` is a log ratio: log(1 + min_gain) plus the A/A bias bound. `aa` are A/A log ratios.
    `candidates` share the false-promotion rate. `resolvable_gain` is the smallest gain beyond the
    floor that `max_pairs` pairs find with 95 % probability.
    """

    floor: float
    aa: tuple[float, ...]
    candidates: int
    max_pairs: int
    confidence: float
    planned_steps: int
    resolvable_gain: float
    rate: float = FALSE_PROMOTION_RATE


def promotion_rules(project: Project, noise: Noise | None, *, candidates: int = 1) -> Rules:
    """The rules that the contract and the calibrated noise give.

    Without noise (one reference run) the most pairs are allowed and nothing is pooled.
    """
    verify = project.verify
    known = noise or Noise(0.0, 0.0, 0.0, 1, 0)
    if isinstance(verify.max_pairs, int):
        most = max(4, verify.max_pairs - verify.max_pairs % 2)
    elif noise is None:
        most = 24
    else:
        most = max_pairs(noise, candidates=candidates)
    resolvable = math.inf if noise is None else resolvable_gain(noise, most, candidates=candidates)
    return Rules(
        floor=math.log1p(verify.min_gain) + known.bias_bound,
        aa=known.aa,
        candidates=candidates,
        max_pairs=most,
        confidence=verify.confidence,
        planned_steps=project.workload.planned_steps,
        resolvable_gain=resolvable,
    )


@dataclass(frozen=True)
class PairedComparison:
    """One candidate against the reference, pair by pair.

    `cold_one_off_s` is the candidate's one-off cost with cold caches, where it was measured (in
    its search trial): pairs run with warm caches, and the user's first run does not.
    """

    rules: Rules
    pairs: tuple[Pair, ...] = ()
    cold_one_off_s: float | None = None

    def with_pair(self, pair: Pair) -> "PairedComparison":
        """The comparison after one more pair."""
        return replace(self, pairs=(*self.pairs, pair))

    def with_pairs(self, pairs: Sequence[Pair]) -> "PairedComparison":
        """The comparison with these pairs and no other."""
        return replace(self, pairs=tuple(pairs))

    @property
    def promotion(self) -> Promotion:
        """What the pairs so far say; a pure function of the state."""
        if not self.pairs:
            reason = "no pair has been run"
            return Promotion(Decision.CONTINUE, reason, _check(Decision.CONTINUE, reason))
        ratios = [pair.log_ratio for pair in self.pairs]
        rules = self.rules
        looks = plan(rules.max_pairs, candidates=rules.candidates, rate=rules.rate)
        look = decide(ratios, looks, floor=rules.floor, aa=rules.aa)
        reference, candidate = self.costs()
        net = net_speedup(reference, candidate, rules.planned_steps)
        even = break_even_step(reference, candidate)
        decision, reason = look.decision, look.reason
        if decision is Decision.PROMOTE and (even is None or even > rules.planned_steps):
            decision = Decision.DROP
            at = "never" if even is None else f"after {even} steps"
            reason += f"; but it breaks even {at}, and {rules.planned_steps} steps are planned"
        return Promotion(
            decision=decision,
            reason=reason,
            check=_check(decision, reason),
            interval=paired_interval(ratios, 1.0 - _STOPPING * (1.0 - rules.confidence)),
            net_speedup=net,
            break_even_step=even,
        )

    def costs(self) -> tuple[Cost, Cost]:
        """What a run of the reference and of the candidate costs; medians over the pairs."""

        def middle(values: list[float]) -> float:
            return statistics.median(values)

        one_off = middle([pair.candidate_one_off_s for pair in self.pairs])
        return (
            Cost(
                middle([p.reference_mean_s or p.reference_step_s for p in self.pairs]),
                middle([p.reference_one_off_s for p in self.pairs]),
            ),
            Cost(
                middle([p.candidate_mean_s or p.candidate_step_s for p in self.pairs]),
                max(one_off, self.cold_one_off_s or 0.0),
            ),
        )


def _check(decision: Decision, reason: str) -> CheckResult:
    status = {
        Decision.PROMOTE: Status.PASSED,
        Decision.DROP: Status.FAILED,
        Decision.CONTINUE: Status.NOT_COVERED,
    }[decision]
    return CheckResult(CHECK, status, reason)
