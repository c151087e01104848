"""How often a search stops its best trial early, and which slow ones it stops, by the real rule.

    python benchmarks/early_stop.py            # a table; two minutes
    python benchmarks/early_stop.py --json     # the cells as a list of objects

A campaign is simulated run by run: four runs of the reference, which give the noise, then sixteen
trials. Every trial draws one deviation of its launch and one of each step (twice as large), and is
looked at after 8, 12, 20 and 40 steps; `hopeless_margin` decides. In half of the campaigns all
trials are as fast as each other, in the others all but one are slower by up to 60 %.

`killed_share`: campaigns whose best trial (where all are equal: a marked one) was stopped; the bar
is `RATE`. `stopped_share`: of the trials that are at least 25 % slower than the best before them.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from promotion import DRAWS, NOISES, REFERENCE_RUNS, SHAPES, TRIALS

from infrarsi.stats import noise_of_runs
from infrarsi.stats.hopeless import MIN_STEPS, RATE, hopeless_margin

LOOKS = (MIN_STEPS, 12, 20, 40)
SLOW = math.log(1.25)
SLOWEST = math.log(1.6)
HARDER = ("drifting by a sigma a run", "bursts", "autocorrelated")


@dataclass(frozen=True)
class Figures:
    """One cell: `noise` is the standard deviation of a launch, in logs."""

    noise: float
    shape: str
    campaigns: int
    killed_share: float
    stopped_share: float

    @property
    def misses(self) -> bool:
        """Whether the bar is missed; harder cells have none."""
        return self.shape in SHAPES and self.killed_share > RATE


def campaign(
    noise: float, shape: str, equal: bool, rng: np.random.Generator
) -> tuple[bool, int, int]:
    """Whether the best trial was stopped; how many slow trials were, of how many."""
    runs = DRAWS[shape](rng, REFERENCE_RUNS + TRIALS) * noise
    within = 2 * noise * rng.standard_normal((REFERENCE_RUNS + TRIALS, LOOKS[-1]))
    losses = np.zeros(TRIALS) if equal else rng.uniform(0.0, SLOWEST, TRIALS)
    marked = int(rng.integers(TRIALS))
    losses[marked] = 0.0
    measured = noise_of_runs(
        np.exp(runs[:REFERENCE_RUNS] + np.median(within[:REFERENCE_RUNS], axis=1)).tolist(),
        [2 * noise] * REFERENCE_RUNS,
    )
    best = float(np.median(runs[:REFERENCE_RUNS])) + SLOWEST
    best_true, rivals = SLOWEST, 1
    killed, stopped, slow = False, 0, 0
    for trial in range(TRIALS):
        logs = losses[trial] + runs[REFERENCE_RUNS + trial] + within[REFERENCE_RUNS + trial]
        is_slow = losses[trial] - best_true >= SLOW
        slow += is_slow
        if any(
            float(np.median(logs[2:steps])) - best
            > hopeless_margin(measured, rivals=rivals, steps=steps)
            for steps in LOOKS
        ):
            stopped += is_slow
            killed = killed or trial == marked
            continue
        rivals += 1
        best = min(best, float(np.median(logs)))
        best_true = min(best_true, losses[trial])
    return killed, stopped, slow


def figures(noise: float, shape: str, campaigns: int, seed: int = 0) -> Figures:
    """Simulate one cell; the same cell and seed give the same figures."""
    rng = np.random.default_rng([seed, int(1e6 * noise), sorted(DRAWS).index(shape)])
    found = [campaign(noise, shape, index % 2 == 0, rng) for index in range(campaigns)]
    slow = sum(each[2] for each in found)
    return Figures(
        noise,
        shape,
        campaigns,
        sum(each[0] for each in found) / campaigns,
        sum(each[1] for each in found) / slow if slow else 0.0,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description="Early stops of the best trial and of slow ones.")
    parser.add_argument("--campaigns", type=int, default=4000, help="of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = []
    for shape in (*SHAPES, *HARDER):
        for noise in NOISES:
            found.append(figures(noise, shape, chosen.campaigns, chosen.seed))
            if not chosen.json:
                f = found[-1]
                note = "MISSED" if f.misses else ("" if shape in SHAPES else "no bar")
                print(
                    f"{noise:6.2%}  {shape:26s} best stopped {f.killed_share:6.2%}   "
                    f"slow ones stopped {f.stopped_share:6.1%}  {note}",
                    flush=True,
                )
    if chosen.json:
        json.dump([asdict(f) for f in found], sys.stdout, indent=1)
        print()
    return int(any(f.misses for f in found))


if __name__ == "__main__":
    sys.exit(main())
