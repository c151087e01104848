"""Measured lines, and the replay table that they make.

A measured line is a JSON object: `facts` of the machine and the job, or one configuration with
its `settings` of every knob, `repeat`, `status` (ok, oom, or error) and what a table's row has.
"""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from table_jobs.job import TIMED, WARM_UP, Job, Knob, Scalar, Settings

REPEATS = 6  # of the reference, spread over the run
APART = 3  # repeats of each value that is measured apart
CREDIBLE = 3.0  # standard errors
LEAST_EFFECT = 0.005  # below it a knob is said to have no effect
Key = tuple[tuple[tuple[str, Scalar], ...], int]


def key_of(settings: Settings, repeat: int) -> Key:
    """What tells one measurement from another."""
    return tuple(sorted(settings.items())), repeat


class Measured:
    """The lines of one or several files; of two of one measurement the later counts.

    An error counts only alone: where one rank is out of memory, others fail for want of it.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.facts: dict[str, Any] = {}
        self.rows: dict[Key, dict[str, Any]] = {}
        for path in paths:
            for line in path.read_text().splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        try:
            read = json.loads(line)
        except json.JSONDecodeError:  # a process that was killed while it wrote
            return
        if "facts" in read:
            self.facts |= read["facts"]
        else:
            key = key_of(read["settings"], read["repeat"])
            known = self.rows.get(key)
            if known is None or known["status"] == "error" or read["status"] != "error":
                self.rows[key] = read

    def times(self, settings: Settings) -> list[float]:
        """The step times of all repeats."""
        wanted = key_of(settings, 0)[0]
        return [r["step_s"] for k, r in self.rows.items() if k[0] == wanted and r["status"] == "ok"]


def plan(job: Job, order: Sequence[dict[str, Scalar]]) -> list[tuple[dict[str, Scalar], int]]:
    """All measurements: the product in that order, reference repeats between, values apart last."""
    wanted = [(settings, 0) for settings in order]
    gap = max(len(wanted) // REPEATS, 1)
    for repeat in range(1, REPEATS + 1):
        wanted.insert(min((repeat - 1) * (gap + 1), len(wanted)), (job.reference, repeat))
    for settings in (s for k in job.knobs for s in _apart(job, k)):
        wanted += [(settings, repeat) for repeat in range(APART)]
    return wanted


def _apart(job: Job, knob: Knob) -> list[dict[str, Scalar]]:
    if not knob.apart:
        return []
    return [job.reference | {knob.name: v} for v in knob.values if v != knob.reference]


def noise(measured: Measured, job: Job) -> float:
    """The standard deviation of the reference's log step times; needs two of them."""
    logs = [math.log(t) for t in measured.times(job.reference)]
    return statistics.stdev(logs)


def effects_apart(measured: Measured, job: Job) -> dict[str, dict[Scalar, float]]:
    """By knob measured apart: the log time of its values against the reference.

    A knob is left out where no value has an effect of more than `CREDIBLE` standard errors and of
    `LEAST_EFFECT`.
    """
    reference = measured.times(job.reference)
    found: dict[str, dict[Scalar, float]] = {}
    for knob in job.knobs:
        effects: dict[Scalar, float] = {knob.reference: 0.0}
        credible = False
        for settings in _apart(job, knob):
            times = measured.times(settings)
            if not times:
                continue
            effect = math.log(statistics.median(times) / statistics.median(reference))
            spread = noise(measured, job) * math.sqrt(1 / len(times) + 1 / len(reference))
            credible = credible or abs(effect) > max(CREDIBLE * spread, LEAST_EFFECT)
            effects[settings[knob.name]] = effect
        if credible:
            found[knob.name] = {value: round(e, 4) for value, e in effects.items()}
    return found


def table_lines(measured: Measured, job: Job) -> list[dict[str, Any]]:
    """The table: header, then rows of all combinations of product and effective values apart.

    Raises ValueError while fewer than two repeats of the reference are measured.
    """
    if len(measured.times(job.reference)) < 2:
        raise ValueError("the reference's repeats are not measured yet")
    effects = effects_apart(measured, job)
    inside = [k.name for k in job.knobs if not k.apart]
    rows = []
    for settings in job.product():
        row = measured.rows.get(key_of(settings, 0))
        if row is None or row["status"] == "error":
            continue
        for values in product(*effects.values()):
            apart = dict(zip(effects, values, strict=True))
            factor = math.exp(sum(effects[name][value] for name, value in apart.items()))
            rows.append(_row(row, {n: settings[n] for n in inside} | apart, factor))
    return [_header(measured, job, effects), *rows]


def _row(row: dict[str, Any], settings: Settings, factor: float) -> dict[str, Any]:
    made = {k: v for k, v in row.items() if k not in ("settings", "repeat")}
    if "step_s" in made:
        made["step_s"] = round(made["step_s"] * factor, 6)
    return {"settings": dict(settings), **made}


def _header(
    measured: Measured, job: Job, effects: dict[str, dict[Scalar, float]]
) -> dict[str, Any]:
    facts = measured.facts
    apart = [k for k in job.knobs if k.apart]
    inert = [k.name for k in apart if k.name not in effects and _apart_times(measured, job, k)]
    done = [k for k in job.knobs if not k.apart or k.name in effects or k.name in inert]
    method = (
        f"{WARM_UP} warm-up and {TIMED} timed updates each, the median; every combination of "
        f"{', '.join(k.name for k in job.knobs if not k.apart)} measured once, in random order; "
        "peak_gib is the most that any rank's allocator reserved; compile caches are shared by all "
        f"configurations; noise from {len(measured.times(job.reference))} runs of the reference"
    )
    if effects:
        method += f"; log times measured apart at the reference and multiplied in: {effects}"
    if inert:
        method += f"; measured apart without a credible effect: {', '.join(inert)}"
    return {
        "table": facts["table"],
        "gpu": facts["gpu"],
        "gpus": facts["gpus"],
        "stack": job.stack,
        "capacity_gib": facts["capacity_gib"],
        "static_gib": facts["static_gib"],
        "params": facts["params"],
        "noise_log_sd": round(noise(measured, job), 5),
        "workload": facts["workload"],
        "versions": facts["versions"],
        "date": facts["date"],
        "method": method,
        "space": [
            {"name": k.name, "family": k.family, "values": list(k.values), "reference": k.reference}
            for k in done
        ],
    }


def _apart_times(measured: Measured, job: Job, knob: Knob) -> bool:
    return all(measured.times(settings) for settings in _apart(job, knob))


def missing(measured: Measured, job: Job) -> int:
    """How many configurations of the product have neither a time nor an out-of-memory row."""
    rows = (measured.rows.get(key_of(s, 0)) for s in job.product())
    return sum(row is None or row["status"] == "error" for row in rows)
