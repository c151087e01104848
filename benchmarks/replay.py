"""Replays measured tables through the proposers that real campaigns use.

    python benchmarks/replay.py benchmarks/tables/*.jsonl --searchers hypothesis random --seeds 20

A table is a JSON-lines file: a header with the space, then one measured configuration a line
(`settings`, `status` ok or oom, `step_s`, `peak_gib` or `peak_gib_at_least`, `wall_s`). A knob that
the rows leave out has no effect. A replayed trial takes `step_s` times exp(noise).

The share of a searcher after k trials is log(reference / incumbent) over log(reference / best) in
noise-free times; the incumbent is its own choice (`ranking`), for the peers the fastest measured.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

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
from searchers import SEARCHERS, HypothesisProposer, make

GIB = 2**30
NOTHING = Effect()


class Table:
    """One measured space."""

    def __init__(self, path: Path) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        self.header: dict[str, Any] = lines[0]
        self.name: str = self.header["table"]
        self._knobs = tuple(lines[1]["settings"])
        self._rows = {self._key(row["settings"]): row for row in lines[1:]}
        self.reference: Point = {k["name"]: k["reference"] for k in self.header["space"]}
        self.best_s: float = min(r["step_s"] for r in self._rows.values() if r["status"] == "ok")
        self.reference_s: float = self.row(self.reference)["step_s"]

    def _key(self, settings: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        return tuple(settings[k] for k in self._knobs)

    def row(self, point: Mapping[str, Scalar]) -> dict[str, Any]:
        """The measured row of a point."""
        row: dict[str, Any] = self._rows[self._key(point)]
        return row

    def share(self, point: Mapping[str, Scalar] | None) -> float:
        """The part of the best log speed-up that a point reaches, noise left out."""
        if point is None or self.row(point)["status"] != "ok":
            return 0.0
        reached = math.log(self.reference_s / self.row(point)["step_s"])
        return reached / math.log(self.reference_s / self.best_s)

    def space(self, priors: Mapping[str, Mapping[Scalar, Effect]]) -> Space:
        """The table as a space with these priors by family."""
        return Space(
            tuple(_dimension(knob, priors) for knob in self.header["space"]),
            memory_limit_bytes=int(self.header["capacity_gib"] * GIB),
            static_memory_bytes=int(self.header["static_gib"] * GIB),
            planned_steps=100_000,
        )

    def run(self, number: int, point: Point, rng: np.random.Generator) -> Trial:
        """The trial of that point, with noise."""
        row = self.row(point)
        noise = float(rng.normal(0.0, self.header["noise_log_sd"]))
        if row["status"] == "ok":
            return Trial(
                number,
                point,
                Outcome.OK,
                same_job=True,
                step_time_s=row["step_s"] * math.exp(noise),
                peak_bytes=int(row["peak_gib"] * GIB),
                wall_s=row["wall_s"],
                device_s=row["wall_s"],
            )
        return Trial(
            number,
            point,
            Outcome.OOM_GPU,
            peak_at_least_bytes=int(row["peak_gib_at_least"] * GIB),
            wall_s=row["wall_s"],
            device_s=row["wall_s"],
        )


# Against the plain value of each family (the first). Means are the published figures of
# searchers/README.md, deviations the width of what is published; no table was looked at for them.
# log time, its sd, log activation memory, its sd.
PUBLISHED: dict[str, dict[Scalar, tuple[float, float, float, float]]] = {
    "activation_recompute": {"none": (0, 0, 0, 0), "full": (0.26, 0.08, -1.6, 0.5)},
    "attention_backend": {"eager": (0, 0, 0, 0), "sdpa": (-0.25, 0.2, -0.5, 0.4)},
    "loss_impl": {"eager": (0, 0, 0, 0), "chunked": (0.0, 0.03, -0.3, 0.3)},
    "norm_impl": {"eager": (0, 0, 0, 0), "fused": (-0.03, 0.04, -0.1, 0.15)},
    "compile": {"off": (0, 0, 0, 0), "regional": (-0.16, 0.08, -0.1, 0.15)},
    "optimizer_impl": {
        "for_loop": (0, 0, 0, 0),
        "foreach": (-0.03, 0.03, 0.0, 0.05),
        "fused": (-0.05, 0.04, 0.0, 0.05),
    },
    "nccl_channels": {"default": (0, 0, 0, 0), 16: (0, 0.02, 0, 0.02), 32: (0, 0.02, 0, 0.02)},
    "grad_bucket": {25: (0, 0, 0, 0), 100: (0, 0.02, 0, 0.05)},
    "host_gc": {"on": (0, 0, 0, 0), "off": (-0.005, 0.01, 0, 0.02)},
    "allocator_segments": {"default": (0, 0, 0, 0), "expandable": (0, 0.01, -0.02, 0.05)},
    "data_workers": {2: (0, 0, 0, 0), 8: (0, 0.03, 0, 0.02)},
}
MICRO_BATCH = (-0.1, 0.1, math.log(2), 0.1)  # a doubling
PRIORS = ("catalogue", "published", "reversed", "none")
Priors = dict[str, dict[Scalar, Effect]]


def priors_named(name: str, header: Mapping[str, Any]) -> Priors:
    """The catalogue's priors, those of `PUBLISHED`, these with every time effect reversed, none."""
    if name == "none":
        return {}
    if name == "catalogue":
        return {knob["family"]: _catalogue(knob) for knob in header["space"]}
    published = published_priors(header)
    if name == "published":
        return published
    return {
        family: {v: replace(e, log_time=-e.log_time) for v, e in values.items()}
        for family, values in published.items()
    }


def _catalogue(knob: Mapping[str, Any]) -> dict[Scalar, Effect]:
    """The catalogue's effects without start-up costs: no table records a start-up."""
    values = knob["values"]
    found = effects(knob["family"], values, knob["reference"], "gpu")
    return {v: replace(e, one_off_s=0.0) for v, e in zip(values, found, strict=True)}


def published_priors(header: Mapping[str, Any]) -> Priors:
    """The published effects of each family's values against the table's reference values."""
    priors: Priors = {}
    for knob in header["space"]:
        reference, family = knob["reference"], knob["family"]
        known = PUBLISHED.get(family, {})
        priors[family] = {
            value: _doubled(math.log2(value / reference))
            if family == "micro_batch"
            else _between(known.get(reference), known.get(value))
            for value in knob["values"]
        }
    return priors


def _doubled(times: float) -> Effect:
    time_mean, time_sd, memory, memory_sd = MICRO_BATCH
    size = abs(times)
    return Effect(time_mean * times, time_sd * size, memory * times, memory_sd * size)


def _between(reference: tuple[float, ...] | None, value: tuple[float, ...] | None) -> Effect:
    if reference is None or value is None:
        return NOTHING
    return Effect(
        value[0] - reference[0],
        math.hypot(value[1], reference[1]) or 0.03,
        value[2] - reference[2],
        math.hypot(value[3], reference[3]) or 0.15,
    )


def _dimension(knob: Mapping[str, Any], priors: Mapping[str, Mapping[Scalar, Effect]]) -> Dimension:
    values = tuple(knob["values"])
    believed = tuple(
        Effect(0.0, 0.0, 0.0, 0.0)
        if value == knob["reference"]
        else priors.get(knob["family"], {}).get(value, NOTHING)
        for value in values
    )
    return Dimension(
        knob["name"], knob["family"], DimensionKind.KNOB, values, knob["reference"], believed
    )


@dataclass(frozen=True)
class Replay:
    """One searcher on one table with one seed."""

    shares: list[float]  # after each trial, the last one kept to the end of the budget
    trials: int
    ooms: int
    suggest_s: list[float]


def replay(table: Table, searcher: str, seed: int, budget: int, space: Space) -> Replay:
    """Run one search to its end or its budget."""
    rng = np.random.default_rng([seed, 7])
    noise = float(table.header["noise_log_sd"])
    proposer = make(searcher, space, seed, noise_log_sd=noise, max_trials=budget)
    history = [table.run(0, table.reference, rng) for _ in range(3)]
    shares: list[float] = []
    suggest_s: list[float] = []
    ooms = 0
    while len(shares) < budget:
        start = time.perf_counter()
        answer = proposer.propose(history, ())
        suggest_s.append(time.perf_counter() - start)
        if not isinstance(answer, Proposal):
            break
        trial = table.run(len(shares) + 1, answer.point, rng)
        history.append(trial)
        ooms += trial.outcome is not Outcome.OK and len(shares) < 16
        shares.append(table.share(_incumbent(proposer, history)))
    trials = len(shares)
    shares += [shares[-1] if shares else 0.0] * (budget - trials)
    return Replay(shares, trials, ooms, suggest_s)


def _incumbent(proposer: object, history: Sequence[Trial]) -> Point | None:
    if isinstance(proposer, HypothesisProposer):
        ranked = proposer.ranking(history)
        return ranked[0] if ranked else None
    timed = [t for t in history if t.step_time_s is not None]
    return min(timed, key=lambda t: t.step_time_s or 0.0).point if timed else None


@dataclass(frozen=True)
class Figures:
    """What is reported of one searcher on one table; `t90` counts budget + 1 where not reached."""

    table: str
    searcher: str
    t90_median: float
    t90_mean: float
    reached: float
    share_at: dict[str, float]
    oom_in_16: float
    trials: float
    suggest_ms_p99: float


def figures(table: str, searcher: str, runs: Sequence[Replay], budget: int) -> Figures:
    """Medians and means over seeds."""
    t90 = [next((i + 1 for i, s in enumerate(r.shares) if s >= 0.9), budget + 1) for r in runs]
    waits = [s for r in runs for s in r.suggest_s[1:]] or [0.0]
    return Figures(
        table,
        searcher,
        float(median(t90)),
        round(mean(t90), 2),
        round(mean(t <= budget for t in t90), 3),
        {str(k): round(mean(r.shares[k - 1] for r in runs), 3) for k in (4, 8, 16) if k <= budget},
        round(mean(r.ooms for r in runs), 2),
        round(mean(r.trials for r in runs), 1),
        round(1000 * float(np.percentile(waits, 99)), 1),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Replay measured tables through the searchers.")
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--searchers", nargs="+", default=list(SEARCHERS), choices=SEARCHERS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--priors", choices=PRIORS, default=PRIORS[0])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = []
    for path in chosen.tables:
        table = Table(path)
        space = table.space(priors_named(chosen.priors, table.header))
        for searcher in chosen.searchers:
            runs = [
                replay(table, searcher, seed, chosen.budget, space) for seed in range(chosen.seeds)
            ]
            found.append(figures(table.name, searcher, runs, chosen.budget))
            if not chosen.json:
                print(_line(found[-1]), flush=True)
    if chosen.json:
        json.dump([asdict(f) for f in found], sys.stdout, indent=1)
        print()


def _line(f: Figures) -> str:
    shares = "  ".join(f"@{k} {v:.3f}" for k, v in f.share_at.items())
    return (
        f"{f.table:24s} {f.searcher:10s} t90 {f.t90_median:4.1f} (mean {f.t90_mean:5.2f}, reached "
        f"{f.reached:.2f})  {shares}  oom {f.oom_in_16:.2f}  trials {f.trials:.1f}  "
        f"suggest p99 {f.suggest_ms_p99:.0f} ms"
    )


if __name__ == "__main__":
    main()
