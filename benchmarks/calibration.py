"""How well the searcher's models predict configurations that they were not shown.

    python benchmarks/calibration.py benchmarks/tables/*.jsonl
    python benchmarks/calibration.py benchmarks/tables/*.jsonl --priors none --json

From a table, three runs of the reference and `n` trials are shown to the models, with noise:
chosen at random (`random`) or by the proposer itself (`search`). Then up to 400 other
configurations are predicted. `in_80`, `in_95`: the share whose log step time, or peak,
lies in the central interval of that probability; `rms`: root mean square error of log step time,
and of the peak in GiB; `brier`: mean squared error of P(fits) over configurations that fit and that
do not, beside that of the table's own share (`brier_base`).
"""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from replay import GIB, PRIORS, Table, priors_named

from infrarsi.contract import Point, Proposal, Space, Trial
from searchers import HypothesisProposer
from searchers.beliefs import Models
from searchers.features import Coding

Floats = NDArray[np.float64]
SIZES = (4, 8, 16, 32)
HELD_OUT = 400


@dataclass(frozen=True)
class Figures:
    """One table, way of choosing and number of trials, over all seeds."""

    table: str
    chosen: str
    n: int
    time_in_80: float
    time_in_95: float
    time_rms: float
    peak_in_80: float
    peak_in_95: float
    peak_rms_gib: float
    brier: float
    brier_base: float


@dataclass(frozen=True)
class _Errors:
    """Errors of held-out points: time in deviations and in logs, peak likewise, fits squared."""

    time_z: Floats
    time: Floats
    peak_z: Floats
    peak_gib: Floats
    fits: Floats
    did_fit: Floats


def predicted(
    table: Table, space: Space, history: Sequence[Trial], points: Sequence[Point]
) -> _Errors:
    """The errors of the beliefs after `history` at these points."""
    coding = Coding(space)
    noise = float(table.header["noise_log_sd"])
    beliefs = Models(coding, noise_log_sd=noise).learn(history, ())
    codes = np.array([coding.encode(point) for point in points])
    rows = [table.row(point) for point in points]
    ok = np.array([row["status"] == "ok" for row in rows])
    mean, sd = (each[ok] for each in beliefs.log_time(codes))
    sd = np.hypot(sd, noise)  # rows are single measurements
    truth = np.array(
        [math.log(r["step_s"] / table.reference_s) for r in rows if r["status"] == "ok"]
    )
    peak = beliefs.peak(codes)
    assert peak is not None, "a table has its reference's peak"
    peak_mean, peak_sd = (each[ok] / GIB for each in peak)
    peaks = np.array([r["peak_gib"] for r in rows if r["status"] == "ok"])
    return _Errors(
        (truth - mean) / sd,
        truth - mean,
        (peaks - peak_mean) / np.maximum(peak_sd, 1e-9),
        peaks - peak_mean,
        (beliefs.fits(codes) - ok) ** 2,
        ok.astype(np.float64),
    )


def figures(path: Path, chosen: str, n: int, seeds: int, priors: str = PRIORS[0]) -> Figures:
    """All seeds of one cell together."""
    table = Table(path)
    space = table.space(priors_named(priors, table.header))
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, n])
        history = [table.run(0, table.reference, rng) for _ in range(3)]
        history += (
            _searched(table, space, history, n, seed, rng)
            if chosen == "search"
            else [
                table.run(number, point, rng)
                for number, point in enumerate(_random_points(space, n, rng), start=1)
            ]
        )
        shown = {tuple(trial.point.items()) for trial in history}
        points = [p for p in _random_points(space, HELD_OUT, rng) if tuple(p.items()) not in shown]
        found.append(predicted(table, space, history, points))
    return _figures(table.name, chosen, n, found)


def _random_points(space: Space, count: int, rng: np.random.Generator) -> list[Point]:
    values = [dimension.values for dimension in space.dimensions]
    names = [dimension.name for dimension in space.dimensions]
    every = list(itertools.product(*values))
    chosen = rng.choice(len(every), size=min(count, len(every)), replace=False)
    points: list[Point] = [dict(zip(names, every[i], strict=True)) for i in chosen]
    return [point for point in points if space.is_valid(point)]


def _searched(
    table: Table,
    space: Space,
    history: Sequence[Trial],
    n: int,
    seed: int,
    rng: np.random.Generator,
) -> list[Trial]:
    noise = float(table.header["noise_log_sd"])
    proposer = HypothesisProposer(space, seed, noise_log_sd=noise, max_trials=n)
    trials: list[Trial] = []
    while len(trials) < n:
        answer = proposer.propose([*history, *trials], ())
        if not isinstance(answer, Proposal):
            break
        trials.append(table.run(len(trials) + 1, answer.point, rng))
    return trials


def _figures(name: str, chosen: str, n: int, found: Sequence[_Errors]) -> Figures:
    time_z, time, peak_z, peak, fits, did_fit = (
        np.concatenate([getattr(each, field) for each in found])
        for field in ("time_z", "time", "peak_z", "peak_gib", "fits", "did_fit")
    )
    share = did_fit.mean()
    return Figures(
        name,
        chosen,
        n,
        *(_inside(time_z, c) for c in (0.8, 0.95)),
        round(float(np.sqrt(np.mean(time**2))), 4),
        *(_inside(peak_z, c) for c in (0.8, 0.95)),
        round(float(np.sqrt(np.mean(peak**2))), 3),
        round(float(fits.mean()), 4),
        round(float(share * (1 - share)), 4),
    )


def _inside(z: Floats, confidence: float) -> float:
    limit = NormalDist().inv_cdf(0.5 + confidence / 2)
    return round(float(np.mean(np.abs(z) <= limit)), 3)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Calibration of the searcher's models.")
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--priors", choices=PRIORS, default=PRIORS[0])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = []
    for path in given.tables:
        for chosen in ("random", "search"):
            for n in SIZES:
                f = figures(path, chosen, n, given.seeds, given.priors)
                found.append(f)
                if not given.json:
                    print(_line(f), flush=True)
    if given.json:
        json.dump([asdict(f) for f in found], sys.stdout, indent=1)
        print()


def _line(f: Figures) -> str:
    return (
        f"{f.table:24s} {f.chosen:6s} {f.n:3d}   time: in 80 % {f.time_in_80:.2f}, in 95 % "
        f"{f.time_in_95:.2f}, rms {f.time_rms:.3f}   peak: {f.peak_in_80:.2f}, {f.peak_in_95:.2f}, "
        f"rms {f.peak_rms_gib:.2f} GiB   Brier {f.brier:.3f} (share alone {f.brier_base:.3f})"
    )


if __name__ == "__main__":
    main()
