"""How long one proposal takes, by the number of finished trials.

    python benchmarks/suggest_time.py
    python benchmarks/suggest_time.py --trials 1000 --knobs 40 --pending 16 --proposals 30 --json

A made-up space with a memory limit: two to six values a knob, a third of the knobs numbers. Each
random trial changes a fifth of the knobs; four of five run, most others need too much memory. After
each proposal one more trial ends, so that nothing is asked twice. Wall time of `propose`, and the
CPU time of the process, which other work on the machine disturbs less; the first call, which
imports and reads the whole history, is given apart.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from infrarsi.contract import (
    ActiveTrial,
    Dimension,
    DimensionKind,
    Effect,
    Outcome,
    Point,
    Scalar,
    Space,
    Trial,
)
from searchers import HypothesisProposer

GIB = 2**30
LIMIT_GIB, STATIC_GIB, ACTIVATIONS_GIB = 24.0, 4.0, 8.0
NOISE = 0.01


class MadeUp:
    """A space and its truth, drawn around the priors."""

    def __init__(self, knobs: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self.space = Space(
            tuple(self._dimension(i) for i in range(knobs)),
            planned_steps=100_000,
            memory_limit_bytes=int(LIMIT_GIB * GIB),
            static_memory_bytes=int(STATIC_GIB * GIB),
        )
        self._truth = {
            (d.name, v): (
                rng.normal(e.log_time, e.log_time_sd),
                rng.normal(e.log_memory, e.log_memory_sd),
            )
            for d in self.space.dimensions
            for v, e in zip(d.values, d.effects, strict=True)
        }

    def _dimension(self, number: int) -> Dimension:
        rng = self._rng
        count = int(rng.integers(2, 7))
        values: tuple[Scalar, ...] = tuple(f"v{j}" for j in range(count))
        if number % 3 == 0:
            values = tuple(2**j for j in range(count))
        effects = [
            Effect(
                float(rng.normal(-0.03, 0.05)),
                float(rng.uniform(0.02, 0.1)),
                float(rng.normal(0.0, 0.05)),
                float(rng.uniform(0.02, 0.1)),
            )
            for _ in values[1:]
        ]
        effects.insert(0, Effect(0.0, 0.0, 0.0, 0.0))
        name = f"k{number}"
        return Dimension(name, name, DimensionKind.KNOB, values, values[0], tuple(effects))

    def point(self) -> Point:
        """The reference with a fifth of its knobs changed."""
        rng = self._rng
        return {
            d.name: d.values[int(rng.integers(len(d.values)))]
            if rng.random() < 0.2
            else d.reference
            for d in self.space.dimensions
        }

    def trial(self, number: int, point: Point) -> Trial:
        """What comes of it."""
        rng = self._rng
        effects = [self._truth[name, value] for name, value in point.items()]
        fate = rng.random() if number else 1.0
        if fate < 0.08:
            return Trial(number, point, Outcome.USER_ERROR, reason="exit code 1", wall_s=10.0)
        activations = ACTIVATIONS_GIB * math.exp(math.fsum(m for _, m in effects))
        if fate < 0.2 or STATIC_GIB + activations > LIMIT_GIB:
            bound = int(LIMIT_GIB * GIB) + 1
            return Trial(number, point, Outcome.OOM_GPU, peak_at_least_bytes=bound, wall_s=10.0)
        log_time = math.fsum(t for t, _ in effects) + rng.normal(0.0, NOISE)
        return Trial(
            number,
            point,
            Outcome.OK,
            same_job=True,
            step_time_s=0.1 * math.exp(log_time),
            peak_bytes=int((STATIC_GIB + activations) * GIB),
            wall_s=20.0,
            one_off_s=5.0,
        )


@dataclass(frozen=True)
class Figures:
    """Milliseconds of wall time a proposal, and of CPU time."""

    trials: int
    knobs: int
    pending: int
    first_ms: float
    median_ms: float
    p99_ms: float
    cpu_median_ms: float
    cpu_p99_ms: float


def measure(trials: int, knobs: int, pending: int, proposals: int, seed: int) -> Figures:
    """Time proposals in one made-up search."""
    job = MadeUp(knobs, np.random.default_rng(seed))
    history = [job.trial(0, job.space.reference)]
    history += [job.trial(i, job.point()) for i in range(1, trials)]
    active = [ActiveTrial(trials + i, job.point()) for i in range(pending)]
    proposer = HypothesisProposer(job.space, seed, noise_log_sd=NOISE, max_trials=10 * trials)
    waits, works = [], []
    for number in range(proposals + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        proposer.propose(history, active)
        waits.append(1000 * (time.perf_counter() - began))
        works.append(1000 * (time.process_time() - began_cpu))
        history.append(job.trial(trials + pending + number, job.point()))
    first, *others = waits
    return Figures(
        trials,
        knobs,
        pending,
        round(first, 1),
        round(float(np.median(others)), 1),
        round(float(np.percentile(others, 99)), 1),
        round(float(np.median(works[1:])), 1),
        round(float(np.percentile(works[1:], 99)), 1),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time proposals by the length of the history.")
    parser.add_argument("--trials", type=int, nargs="+", default=[10, 100, 1000, 3000, 10_000])
    parser.add_argument("--knobs", type=int, default=40)
    parser.add_argument("--pending", type=int, default=16)
    parser.add_argument("--proposals", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = []
    for trials in chosen.trials:
        figures = measure(trials, chosen.knobs, chosen.pending, chosen.proposals, chosen.seed)
        found.append(asdict(figures))
        if not chosen.json:
            print(
                f"{figures.trials:6d} trials, {figures.knobs} knobs, {figures.pending} pending: "
                f"median {figures.median_ms:.1f} ms, p99 {figures.p99_ms:.1f} ms, "
                f"first {figures.first_ms:.0f} ms; "
                f"CPU: median {figures.cpu_median_ms:.1f} ms, p99 {figures.cpu_p99_ms:.1f} ms",
                flush=True,
            )
    if chosen.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
