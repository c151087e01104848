"""Replays measured tables through the proposers that real campaigns use.

    python benchmarks/replay.py benchmarks/tables/*.jsonl --searcher hypothesis random --seeds 20

A table is a JSON-lines file: a header with the space, then one measured configuration a line
(`settings`, `status` ok or oom, `step_s`, `peak_gib` or `peak_gib_at_least`, `wall_s`). A knob that
the rows leave out has no effect. A replayed trial takes `step_s` times exp(noise).

The share of a searcher after k trials is log(reference / incumbent) over log(reference / best) in
noise-free times; the incumbent is its own choice (`ranking`), for the peers the fastest measured.
With `--parallel K` trials run in rounds of K that start and end together.

All figures are of searches that go on to the end of the budget; those of `stopping` are of the same
searches ended where the searcher would have ended them.

`--pack FILE` and `--pack-from TABLE` give the searcher experience. A pack is made of a table as of
a campaign that ran every one of its rows once, by the same code: the searcher's own posterior over
the rows, with the best row as the verified change.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from infrarsi.contract import (
    ActiveTrial,
    Dimension,
    DimensionKind,
    Effect,
    Experience,
    Outcome,
    Point,
    Proposal,
    Scalar,
    Space,
    Trial,
)
from infrarsi.errors import UserError
from infrarsi.experience import Change, Context, Pack, Words, context, load, matched, pack_from
from infrarsi.families import effects
from infrarsi.ports import Proposer
from searchers import SEARCHERS, HypothesisProposer, make

GIB = 2**30
NOTHING = Effect()


class Table:
    """One measured space, whose rows may leave out knobs that do nothing."""

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

    @property
    def context(self) -> Context:
        """What it was measured on."""
        workload = self.header.get("workload", {})
        length, samples = workload.get("sequence_length"), workload.get("samples_per_update")
        return context(
            stack=self.header["stack"],
            gpu=self.header["gpu"],
            nodes=self.header.get("nodes", 1),
            gpus_per_node=self.header.get("gpus_per_node", 1),
            samples=samples,
            elements={"tokens:int64": length * samples} if length and samples else {},
            num_parameters=self.header.get("params"),
            versions=self.header.get("versions", {}),
        )

    def campaign(self) -> list[Trial]:
        """Every row as a trial without noise, the reference first."""
        points = [self.reference, *map(self._point, self._rows)]
        rng = np.random.default_rng(0)
        found = [
            self.run(number, point, rng, noise_log_sd=0.0) for number, point in enumerate(points)
        ]
        return [t for t in found if t.number == 0 or t.point != self.reference]

    def _point(self, key: tuple[Scalar, ...]) -> Point:
        return {**self.reference, **dict(zip(self._knobs, key, strict=True))}

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

    def run(
        self,
        number: int,
        point: Point,
        rng: np.random.Generator,
        *,
        noise_log_sd: float | None = None,
    ) -> Trial:
        """The trial of that point, with the table's noise or another."""
        row = self.row(point)
        scale = self.header["noise_log_sd"] if noise_log_sd is None else noise_log_sd
        noise = float(rng.normal(0.0, scale))
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


def pack_of_table(table: Table, space: Space) -> Pack:
    """The pack of a campaign that ran all of a table."""
    trials = table.campaign()
    noise = float(table.header["noise_log_sd"])
    proposer = HypothesisProposer(space, 0, noise_log_sd=noise, max_trials=len(trials))
    words = Words(space.dimensions)
    speedup = table.reference_s / table.best_s
    best = min(
        (t for t in trials if t.step_time_s and t.number), key=lambda t: t.step_time_s or math.inf
    )
    return pack_from(
        f"table-{table.name}".replace("_", "-"),
        f"all rows of {table.name}",
        table.context,
        words,
        proposer.learned(trials),
        trials[1:],
        change=Change(
            values=words.changes(best.point),
            speedup=speedup,
            speedup_low=speedup,
            speedup_high=speedup,
            pairs=0,
        ),
        reference_step_s=table.reference_s,
        step_log_sd=noise,
    )


def reversed_pack(pack: Pack) -> Pack:
    """The same pack with the sign of every effect, of time and of memory, turned."""

    def turned(normal: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if normal is None else (-normal[0], normal[1])

    effects = [
        each.model_copy(
            update={"log_time": turned(each.log_time), "log_memory": turned(each.log_memory)}
        )
        for each in pack.effects
    ]
    return pack.model_copy(update={"id": f"{pack.id}-reversed", "effects": effects})


@dataclass(frozen=True)
class Replay:
    """One searcher on one table with one seed; lists have an entry a trial, to the budget's end."""

    shares: list[float]
    seconds: list[float]
    ooms: list[bool]
    stopped_after: int  # trials after which the searcher would have ended by itself
    suggest_s: list[float]


@dataclass(frozen=True)
class Setup:
    """What a replay is done with."""

    searcher: str
    space: Space
    budget: int
    parallel: int
    experience: Experience


def replay(table: Table, setup: Setup, seed: int) -> Replay:
    """Run one search to the end of its budget."""
    rng = np.random.default_rng([seed, 7])
    going_on = _proposer(table, setup, seed, stops=False)
    stopping: Proposer | None = _proposer(table, setup, seed, stops=True)
    history = [table.run(0, table.reference, rng) for _ in range(3)]
    found = Replay([], [], [], setup.budget, [])
    stopped_after = setup.budget
    while len(found.shares) < setup.budget:
        active: list[ActiveTrial] = []
        while len(active) < min(setup.parallel, setup.budget - len(found.shares)):
            start = time.perf_counter()
            answer = (stopping or going_on).propose(history, active)
            found.suggest_s.append(time.perf_counter() - start)
            if stopping is not None and not isinstance(answer, Proposal) and not active:
                stopped_after, stopping = len(found.shares), None
                continue
            if not isinstance(answer, Proposal):
                break
            active.append(ActiveTrial(len(history) + len(active), answer.point))
        if not active:
            break
        for running in active:
            trial = table.run(running.number, running.point, rng)
            history.append(trial)
            found.seconds.append(trial.device_s)
            found.ooms.append(trial.outcome is not Outcome.OK)
            found.shares.append(table.share(_incumbent(going_on, history)))
    left = setup.budget - len(found.shares)
    found.shares.extend([found.shares[-1] if found.shares else 0.0] * left)
    found.seconds.extend([0.0] * left)
    found.ooms.extend([False] * left)
    return replace(found, stopped_after=min(stopped_after, setup.budget - left))


def _proposer(table: Table, setup: Setup, seed: int, *, stops: bool) -> Proposer:
    return make(
        setup.searcher,
        setup.space,
        seed,
        noise_log_sd=float(table.header["noise_log_sd"]),
        max_trials=setup.budget,
        experience=setup.experience,
        stops=stops,
    )


def _incumbent(proposer: object, history: Sequence[Trial]) -> Point | None:
    if isinstance(proposer, HypothesisProposer):
        ranked = proposer.ranking(history)
        return ranked[0] if ranked else None
    timed = [t for t in history if t.step_time_s is not None]
    return min(timed, key=lambda t: t.step_time_s or 0.0).point if timed else None


def stopped(run: Replay) -> Replay:
    """The same search, ended where the searcher would have ended it."""
    k, budget = run.stopped_after, len(run.shares)
    last = run.shares[k - 1] if k else 0.0
    return replace(
        run,
        shares=run.shares[:k] + [last] * (budget - k),
        seconds=run.seconds[:k] + [0.0] * (budget - k),
        ooms=run.ooms[:k] + [False] * (budget - k),
    )


def figures(runs: Sequence[Replay], parallel: int) -> dict[str, Any]:
    """Medians and means over seeds; where 90 % is not reached t90 counts budget + 1."""
    budget = len(runs[0].shares)
    t90 = [next((i + 1 for i, s in enumerate(r.shares) if s >= 0.9), budget + 1) for r in runs]
    spent = [sum(r.seconds[:k]) for r, k in zip(runs, t90, strict=True)]
    found: dict[str, Any] = {
        "t90_median": float(median(t90)),
        "t90_mean": round(mean(t90), 2),
        "t90_p95": float(np.percentile(t90, 95, method="inverted_cdf")),
        "reached": round(mean(k <= budget for k in t90), 3),
        "share_at": {
            str(k): round(mean(r.shares[k - 1] for r in runs), 3) for k in (4, 8, 16) if k <= budget
        },
        "gpu_s_to_90": round(float(median(spent)), 1),
        "oom_in_16": round(mean(sum(r.ooms[:16]) for r in runs), 2),
    }
    if parallel > 1:
        found["rounds_to_90"] = float(median(math.ceil(k / parallel) for k in t90))
    return found


def report(table: Table, setup: Setup, seeds: int) -> dict[str, Any]:
    """One searcher on one table over all seeds."""
    runs = [replay(table, setup, seed) for seed in range(seeds)]
    waits = [s for r in runs for s in r.suggest_s[1:]] or [0.0]
    trials = round(mean(r.stopped_after for r in runs), 1)
    return {
        "table": table.name,
        "searcher": setup.searcher,
        **figures(runs, setup.parallel),
        "suggest_ms_p99": round(1000 * float(np.percentile(waits, 99)), 1),
        "stopping": {"trials": trials, **figures([stopped(r) for r in runs], setup.parallel)},
    }


def experience_for(table: Table, space: Space, chosen: argparse.Namespace) -> Experience:
    """What the packs that were asked for say of a table."""
    packs = [pack for path in chosen.pack for pack in load(path)]
    for path in chosen.pack_from:
        source = Table(path)
        packs.append(pack_of_table(source, source.space(priors_named("catalogue", source.header))))
    if chosen.reverse:
        packs = [reversed_pack(pack) for pack in packs]
    return matched(space, table.context, packs).experience


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Replay measured tables through the searchers.")
    add = parser.add_argument
    add("tables", nargs="+", type=Path)
    add("--searcher", "--searchers", nargs="+", default=list(SEARCHERS), choices=SEARCHERS)
    add("--seeds", type=int, default=30)
    add("--budget", type=int, default=16)
    add("--parallel", type=int, default=1, help="trials a round")
    add("--priors", choices=PRIORS, default=PRIORS[0])
    add("--pack", type=Path, nargs="+", default=[], metavar="FILE")
    add("--pack-from", type=Path, nargs="+", default=[], metavar="TABLE")
    add("--reverse", action="store_true", help="turn the signs of the packs' effects")
    add("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    if min(chosen.seeds, chosen.budget, chosen.parallel) < 1:
        parser.error("--seeds, --budget and --parallel must be at least 1")
    found = []
    try:
        for path in chosen.tables:
            table = Table(path)
            space = table.space(priors_named(chosen.priors, table.header))
            experience = experience_for(table, space, chosen)
            for searcher in chosen.searcher:
                setup = Setup(searcher, space, chosen.budget, chosen.parallel, experience)
                found.append(report(table, setup, chosen.seeds))
                if not chosen.json:
                    print(_line(found[-1]), flush=True)
    except UserError as error:
        parser.error(f"{error.where}: {error.what}")
    if chosen.json:
        json.dump(found, sys.stdout, indent=1)
        print()


def _line(f: Mapping[str, Any]) -> str:
    rounds = f"rounds {f['rounds_to_90']:.1f}  " if "rounds_to_90" in f else ""
    shares, stopping = _shares(f), f["stopping"]
    return (
        f"{f['table']:24s} {f['searcher']:10s} t90 {f['t90_median']:4.1f} (mean "
        f"{f['t90_mean']:5.2f}, p95 {f['t90_p95']:.0f}, reached {f['reached']:.2f})  {rounds}"
        f"{shares}  {f['gpu_s_to_90']:.0f} s  oom {f['oom_in_16']:.2f}  suggest p99 "
        f"{f['suggest_ms_p99']:.0f} ms; stops after {stopping['trials']:.1f}: reached "
        f"{stopping['reached']:.2f}  {_shares(stopping)}  oom {stopping['oom_in_16']:.2f}"
    )


def _shares(f: Mapping[str, Any]) -> str:
    return "  ".join(f"@{k} {v:.3f}" for k, v in f["share_at"].items())


if __name__ == "__main__":
    main()
