"""Made-up training jobs with a known truth, for tests of the models and of whole searches."""

import math
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from infrarsi.contract import (
    Dimension,
    DimensionKind,
    Effect,
    Outcome,
    Point,
    Proposal,
    Scalar,
    Space,
    Trial,
)
from infrarsi.families import effects
from searchers import HypothesisProposer
from searchers.features import TIME, Coding, Terms

GIB = 2**30
ZERO = Effect(0.0, 0.0, 0.0, 0.0)


def cpu_space() -> Space:
    """A space like that of a small CPU job: launch settings and code patches, 4608 points."""
    knobs: list[tuple[str, str, tuple[Scalar, ...], Scalar]] = [
        ("micro_batch", "micro_batch", (1, 2, 4), 1),
        ("threads", "cpu_threads", (1, 2), 1),
        ("workers", "dataloader_workers", (0, 1, 2), 0),
    ]
    recipes = [
        ("sdpa", "attention_backend", "sdpa", "eager"),
        ("fused_optimizer", "optimizer_impl", "fused", "foreach"),
        ("compile", "compile", "on", "off"),
        ("matmul", "matmul_precision", "high", "highest"),
        ("zero_grad", "zero_grad_mode", "none", "zero"),
        ("host_sync", "host_sync", "throttled", "every_step"),
        ("norm", "norm_impl", "fused", "eager"),
        ("pin_memory", "dataloader_pin_memory", True, False),
    ]
    dimensions = [
        Dimension(
            name, family, DimensionKind.KNOB, values, ref, effects(family, values, ref, "cpu")
        )
        for name, family, values, ref in knobs
    ]
    for name, family, value, ref in recipes:
        after = effects(family, [value], ref, "cpu")[0]
        dimensions.append(
            Dimension(name, family, DimensionKind.RECIPE, (False, True), False, (ZERO, after))
        )
    return Space(tuple(dimensions), planned_steps=100_000)


def simple_space(effects_of_values: list[list[Effect]]) -> Space:
    """Knobs `k0`, `k1`, ... with string values `v0` (the reference), `v1`, ..."""
    return Space(
        tuple(
            Dimension(
                f"k{i}",
                f"f{i}",
                DimensionKind.KNOB,
                tuple(f"v{j}" for j in range(len(row) + 1)),
                "v0",
                (ZERO, *row),
            )
            for i, row in enumerate(effects_of_values)
        )
    )


@dataclass(frozen=True)
class SimulatedJob:
    """A truth: log-linear effects and pair terms of step time, settings that fail, noise."""

    space: Space
    effects: dict[tuple[str, Scalar], float]
    pairs: dict[frozenset[tuple[str, Scalar]], float]
    failing: frozenset[tuple[str, Scalar]] = frozenset()
    noise: float = 0.01
    outlier_rate: float = 0.0

    @classmethod
    def draw(
        cls,
        space: Space,
        rng: np.random.Generator,
        *,
        inert: float = 0.3,
        failing: float = 0.02,
        noise: float = 0.015,
        outlier_rate: float = 0.0,
    ) -> "SimulatedJob":
        """A truth around the priors, wider than they say: some effects are none at all."""
        truth: dict[tuple[str, Scalar], float] = {}
        for d in space.dimensions:
            unit = float(rng.standard_t(5))
            idle = rng.random() < inert
            for value in d.values:
                if value != d.reference:
                    e = d.effect(value)
                    truth[d.name, value] = 0.0 if idle else e.log_time + unit * e.log_time_sd
        pairs = {
            frozenset((a, b)): float(rng.normal(0, 0.15)) * min(abs(truth[a]), abs(truth[b]))
            for a, b in combinations(truth, 2)
            if a[0] != b[0]
        }
        bad = frozenset(s for s in truth if rng.random() < failing)
        return cls(space, truth, pairs, bad, noise, outlier_rate)

    def log_time(self, point: Point) -> float:
        """The true log step time over the reference."""
        inside = [s for s in point.items() if s in self.effects]
        return sum(self.effects[s] for s in inside) + sum(
            self.pairs.get(frozenset(pair), 0.0) for pair in combinations(inside, 2)
        )

    def runs(self, point: Point) -> bool:
        """Whether no setting of the point fails."""
        return not any(s in self.failing for s in point.items())

    def best(self) -> float:
        """The least true log step time of any point that runs."""
        names = [d.name for d in self.space.dimensions]
        points = (
            dict(zip(names, v, strict=True))
            for v in product(*(d.values for d in self.space.dimensions))
        )
        return min(self.log_time(p) for p in points if self.runs(p) and self.space.is_valid(p))

    def trial(self, number: int, point: Point, rng: np.random.Generator) -> Trial:
        """One run of the point."""
        if not self.runs(point):
            return Trial(number, point, Outcome.CONFLICT, wall_s=5.0, device_s=5.0)
        noise = float(rng.normal(0.0, self.noise))
        if rng.random() < self.outlier_rate:
            noise += float(rng.uniform(0.1, 0.3))
        extra = sum(d.effect(point[d.name]).one_off_s for d in self.space.dimensions)
        step = 0.25 * math.exp(self.log_time(point) + noise)
        start = 6.0 + extra
        return Trial(number, point, Outcome.OK, same_job=True, step_time_s=step, one_off_s=start,
                     peak_bytes=GIB, node_ids=("n0",), wall_s=start + 36 * step,
                     device_s=start + 36 * step)  # fmt: skip


def gpt_space(planned_steps: int = 100_000) -> Space:
    """A small GPT under DDP on CPU cores: 11 dimensions, 4608 points."""
    space = cpu_space()
    kept = {"micro_batch", "workers", "sdpa", "fused_optimizer", "compile", "zero_grad",
            "host_sync", "pin_memory"}  # fmt: skip
    dimensions = [d for d in space.dimensions if d.name in kept]
    for name in ("ddp_no_sync", "ddp_static_graph", "ddp_gradient_as_bucket_view"):
        after = effects(name, [True], False, "cpu")[0]
        dimensions.append(
            Dimension(name, name, DimensionKind.RECIPE, (False, True), False, (ZERO, after))
        )
    return Space(tuple(dimensions), planned_steps=planned_steps)


def gpt_job(rng: np.random.Generator, noise: float) -> SimulatedJob:
    """What such a job is like: a few settings help, one only while it accumulates, most hardly."""
    space = gpt_space()
    truth: dict[tuple[str, Scalar], float] = {
        (d.name, v): float(rng.normal(0.0, 0.01))
        for d in space.dimensions
        for v in d.values
        if v != d.reference
    }
    for setting, gain in {("micro_batch", 2): 0.10, ("micro_batch", 4): 0.18, ("sdpa", True): 0.15,
                          ("fused_optimizer", True): 0.03, ("compile", True): 0.15,
                          ("ddp_no_sync", True): 0.08}.items():  # fmt: skip
        truth[setting] = math.log(1.0 - gain)
    whole = frozenset((("micro_batch", 4), ("ddp_no_sync", True)))  # nothing left to accumulate
    return SimulatedJob(
        space, truth, {whole: -truth["ddp_no_sync", True]}, frozenset(), noise=noise
    )


def search(job: SimulatedJob, seed: int, num_trials: int) -> tuple[HypothesisProposer, list[Trial]]:
    """A whole search; the history begins with three runs of the reference."""
    rng = np.random.default_rng([seed, 1])
    proposer = HypothesisProposer(job.space, seed, noise_log_sd=job.noise, max_trials=num_trials)
    history = [job.trial(0, job.space.reference, rng) for _ in range(3)]
    for number in range(1, num_trials + 1):
        answer = proposer.propose(history, ())
        if not isinstance(answer, Proposal):
            break
        history.append(job.trial(number, answer.point, rng))
    return proposer, history


def share_of_best(job: SimulatedJob, point: Point) -> float:
    """The part of the best true log speed-up that a point reaches; 1 where there is none to get."""
    best = job.best()
    if best > -0.02:
        return 1.0
    return job.log_time(point) / best if job.runs(point) else 0.0


def interval_truth(space: Space, rng: np.random.Generator) -> tuple[Coding, Terms, np.ndarray]:
    """A draw of all coefficients of the step-time model from its own prior."""
    coding = Coding(space)
    terms = Terms(coding, TIME)
    return coding, terms, rng.normal(terms.prior_mean, np.sqrt(terms.prior_variance))
