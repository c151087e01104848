"""How often campaigns promote what is not faster, and find what is, through the real decision code.

    python benchmarks/promotion.py            # a table; a few minutes
    python benchmarks/promotion.py --json     # the cells as a list of objects

A campaign is simulated run by run, in the order in which they would run: four timed runs of the
reference (they give the noise and two A/A pairs), sixteen trials of which the fastest three are
verified, and pairs in ABBA order until `infrarsi.verify` has decided on each, at most three
candidates sharing the rate, until one is promoted. Runs are drawn; every decision is made by
`promotion_rules` and `PairedComparison`.

`noise` is the standard deviation of a pair's log ratio, sigma. `effect` 0: all sixteen are the
reference itself, and any promotion is a false one. Otherwise one of the sixteen is faster by the
floor (`verify.min_gain`) plus `effect` sigma and the others are the reference itself; then
`promoted_share` counts campaigns that promote this one, given that the trials put it among the
three (`selected_share`). Where they do not, it takes the last place: what is judged is the power
within the pairs.

Beside: `fixed_share`, what a fixed rule would promote, "the mean of four pairs is above 2 %", and
`trial_share`, "the best trial is 2 % faster than the reference's first runs".
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import Project
from infrarsi.stats import Decision, noise_of_runs, plan
from infrarsi.verify import Pair, PairedComparison, Promotion, promotion_rules
from infrarsi.verify.promotion import Rules

Floats = NDArray[np.float64]
TRIALS = 16
CANDIDATES = 3
REFERENCE_RUNS = 4
PLANNED_STEPS = 100_000
STEP_S = 0.1
FIXED = math.log(1.02)
NOISES = (0.0005, 0.01, 0.06)
SHAPES = ("normal", "heavy-tailed", "drifting")
EFFECTS = (0.0, 1.0, 2.2, 4.0)
MOST_FALSE, LEAST_FOUND = 0.01, 0.95


@dataclass(frozen=True)
class Cell:
    """What is simulated; `gain_at_floor` gives every trial a gain equal to the floor.

    `later` multiplies the noise after the reference's runs; `reference_runs` give the noise.
    """

    noise: float
    shape: str
    effect: float
    harder: str = ""
    gain_at_floor: bool = False
    later: float = 1.0
    reference_runs: int = REFERENCE_RUNS


@dataclass(frozen=True)
class Figures:
    """One cell's shares of campaigns and its mean number of pairs of a campaign."""

    noise: float
    shape: str
    effect: float
    campaigns: int
    promoted_share: float
    pairs_mean: float
    selected_share: float | None
    fixed_share: float
    trial_share: float
    harder: str

    @property
    def misses(self) -> bool:
        """Whether a bar of the main cells is missed; harder cells have none."""
        if self.harder:
            return False
        if self.effect == 0:
            return self.promoted_share > MOST_FALSE
        return self.effect >= 2.2 and self.promoted_share < LEAST_FOUND


def main_cells() -> Iterator[Cell]:
    """The cells that have a bar."""
    for effect in EFFECTS:
        for shape in SHAPES:
            for noise in NOISES:
                yield Cell(noise, shape, effect)


def harder_cells() -> Iterator[Cell]:
    """Cells that break what the decision assumes, at 1 % noise."""
    for effect in (0.0, 2.2):
        yield Cell(0.01, "drifting by a sigma a run", effect, "strong drift")
        yield Cell(0.01, "bursts", effect, "one run in ten is slower by up to 5 sigma")
        yield Cell(0.01, "autocorrelated", effect, "runs hang together with 0.8")
        yield Cell(0.01, "second slower", effect, "the second run of a pair is slower by a sigma")
        yield Cell(0.01, "normal", effect, "noise doubles after the reference runs", later=2.0)
        yield Cell(0.01, "normal", effect, "two reference runs only", reference_runs=2)
    yield Cell(0.01, "normal", 0.0, "every gain is the floor itself", gain_at_floor=True)
    yield Cell(0.06, "normal", 0.0, "every gain is the floor itself", gain_at_floor=True)
    yield Cell(0.01, "normal", 0.5, "hardly beyond the floor")
    yield Cell(0.01, "normal", 1.5, "between")


# ---- what is drawn: log times of runs in their order, in units of a run's standard deviation


def _normal(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_normal(count)


def _heavy(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_t(3, count) / math.sqrt(3.0)


def _drifting(slope: float) -> Callable[[np.random.Generator, int], Floats]:
    """Each run slower, or faster, than the one before by `slope` sigma, in one direction."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        direction = rng.choice([-1.0, 1.0])
        return rng.standard_normal(count) + direction * slope * math.sqrt(2.0) * np.arange(count)

    return draw


def _bursts(rng: np.random.Generator, count: int) -> Floats:
    hit = rng.random(count) < 0.1
    return rng.standard_normal(count) + hit * rng.uniform(0.0, 5.0 * math.sqrt(2.0), count)


def _correlated(rng: np.random.Generator, count: int) -> Floats:
    fresh = rng.standard_normal(count)
    values = np.empty(count)
    values[0] = fresh[0]
    for index in range(1, count):
        values[index] = 0.8 * values[index - 1] + 0.6 * fresh[index]
    return values


def _second_slower(rng: np.random.Generator, count: int) -> Floats:
    return rng.standard_normal(count) + math.sqrt(2.0) * (np.arange(count) % 2)


DRAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": _normal,
    "heavy-tailed": _heavy,
    "drifting": _drifting(0.25),
    "drifting by a sigma a run": _drifting(1.0),
    "bursts": _bursts,
    "autocorrelated": _correlated,
    "second slower": _second_slower,
}


# ---- one campaign


@dataclass(frozen=True)
class Campaign:
    """How one ended: `promoted` is the trial's number, None without a promotion."""

    promoted: int | None
    pairs: int
    selected: bool
    fixed: bool
    by_trial: bool


def campaign(cell: Cell, project: Project, rng: np.random.Generator) -> Campaign:
    """Simulate one; trial 0 is the faster one where there is one."""
    floor = math.log1p(project.verify.min_gain)
    gains = np.full(TRIALS, floor if cell.gain_at_floor else 0.0)
    if cell.effect:
        gains[0] = floor + cell.effect * cell.noise
    before = cell.reference_runs + TRIALS
    runs = DRAWS[cell.shape](rng, before + 2 * CANDIDATES * 24) * cell.noise / math.sqrt(2.0)
    runs[cell.reference_runs :] *= cell.later
    reference, later = runs[: cell.reference_runs], iter(runs[before:].tolist())
    position = rng.permutation(TRIALS)  # where in the search each trial ran
    trials = runs[cell.reference_runs : before][position] - gains
    ranking = np.argsort(trials)[:CANDIDATES].tolist()
    selected = 0 in ranking
    if cell.effect and not selected:
        ranking[-1] = 0
    noise = noise_of_runs([STEP_S * math.exp(value) for value in reference])
    rules = promotion_rules(project, noise, candidates=len(ranking))
    promoted, pairs, fixed = None, 0, False
    for number in ranking:
        decision, ratios = _verify(rules, later, gains[number])
        pairs += len(ratios)
        fixed = fixed or sum(ratios[:4]) / 4 > FIXED
        if decision is Decision.PROMOTE:
            promoted = number
            break
    best = float(np.median(reference) - trials.min())
    return Campaign(promoted, pairs, selected, fixed, best > FIXED)


def _verify(rules: Rules, runs: Iterator[float], gain: float) -> tuple[Decision, list[float]]:
    """Run pairs until they decide; between looks the decision code only says `continue`."""
    looks = plan(rules.max_pairs, candidates=rules.candidates, rate=rules.rate).looks
    state = PairedComparison(rules)
    found: Promotion = state.promotion
    while found.decision is Decision.CONTINUE:
        for index in range(len(state.pairs), next(n for n in looks if n > len(state.pairs))):
            first, second = next(runs), next(runs)
            a, b = (first, second) if index % 2 == 0 else (second, first)
            state = state.with_pair(Pair(STEP_S * math.exp(a), STEP_S * math.exp(b - gain)))
        found = state.promotion
    return found.decision, [pair.log_ratio for pair in state.pairs]


def figures(cell: Cell, campaigns: int, seed: int = 0) -> Figures:
    """Simulate one cell; the same cell and seed give the same figures."""
    key = [seed, int(1e6 * cell.noise), sorted(DRAWS).index(cell.shape), int(100 * cell.effect)]
    rng = np.random.default_rng([*key, len(cell.harder)])
    project = Project.model_validate(
        {
            "name": "simulated",
            "launch": {"command": "true"},
            "workload": {"planned_steps": PLANNED_STEPS},
        }
    )
    found = [campaign(cell, project, rng) for _ in range(campaigns)]
    good = [c.promoted == 0 if cell.effect else c.promoted is not None for c in found]
    return Figures(
        cell.noise,
        cell.shape,
        cell.effect,
        campaigns,
        sum(good) / campaigns,
        round(sum(c.pairs for c in found) / campaigns, 2),
        sum(c.selected for c in found) / campaigns if cell.effect else None,
        sum(c.fixed for c in found) / campaigns,
        sum(c.by_trial for c in found) / campaigns,
        cell.harder,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 if a bar of the main cells is missed."""
    parser = argparse.ArgumentParser(description="False promotions and power of campaigns.")
    parser.add_argument("--campaigns", type=int, default=2000, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    found = []
    if not chosen.json:
        print(_HEAD)
    for cell in (*main_cells(), *harder_cells()):
        found.append(figures(cell, chosen.campaigns, chosen.seed))
        if not chosen.json:
            print(_line(found[-1]), flush=True)
    missed = sum(f.misses for f in found)
    if chosen.json:
        json.dump([asdict(f) for f in found], sys.stdout, indent=1)
        print()
    else:
        print(f"{missed} bars missed; {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


_HEAD = (
    f"{'noise':>6s}  {'shape':26s} effect  promoted   pairs  selected  fixed 2 %  best trial 2 %"
)


def _line(f: Figures) -> str:
    selected = "-" if f.selected_share is None else f"{f.selected_share:.1%}"
    return (
        f"{f.noise:6.2%}  {f.shape:26s} {f.effect:6.1f} "
        f"{f.promoted_share:9.2%} {f.pairs_mean:7.1f} {selected:>9s} "
        f"{f.fixed_share:10.1%} {f.trial_share:15.1%}  "
        f"{'MISSED' if f.misses else f.harder}"
    )


if __name__ == "__main__":
    sys.exit(main())
