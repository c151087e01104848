"""Whether a trial's settings took effect: what its record has that the reference's has not.

A flag that is ignored, a default that is written over or a file that nobody reads leaves a run that
is the reference in all that the witness sees. Compared is what a setting may change and what runs
of the untouched job share: processes, environment, parameters, optimizers, precision, micro-batches
and shapes, losses to the last bit, peak memory, what compiled. A fact in which the reference's own
runs differ says nothing and is left out. A setting that only changes when things happen (more data
workers, another priority) leaves no such trace, so the time is looked at as well: a run that is
the reference in every fact and takes its time within the noise gave no sign that anything was set.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infrarsi.contract import ExecutionResult, RankRecord
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.measurement import measure

_SIGMAS = 3.0
_LEAST_LOG = 0.005
_MEMORY_STEP = 0.005  # a share that two runs of the same job may differ by, beyond their own spread
_OWN_EACH_TIME = ("RUN_ID", "ERROR_FILE", "_PORT", "_DIR", "_PATH", "RESTART_COUNT")
"""Parts of names whose values are another execution's own."""
_KEPT = ("NCCL_", "TORCH", "CUDA_", "OMP_", "MKL_", "PYTORCH_")
"""Beginnings of the names whose values the witness's head line keeps."""


@dataclass(frozen=True)
class Activity:
    """What is not as in the reference: facts by name, and the time as a logarithm of the ratio.

    `compared` counts the facts that could be compared; without any nothing is known.
    """

    changed: tuple[str, ...]
    compared: int
    log_ratio: float | None
    noise: float

    @property
    def left_no_trace(self) -> bool:
        """Whether nothing shows that any setting took effect."""
        if self.changed or not self.compared or self.log_ratio is None:
            return False
        return abs(self.log_ratio) <= self.noise

    @property
    def sentence(self) -> str:
        """For a person; "" where something changed or nothing is known."""
        if not self.left_no_trace or self.log_ratio is None:
            return ""
        return (
            f"without effect: {self.compared} facts of its record and its step time "
            f"({100 * math.expm1(self.log_ratio):+.1f} %) are those of the reference"
        )


def activity(evidence: Evidence, result: ExecutionResult) -> Activity:
    """What the record of a timed run has that those of the reference's timed runs have not."""
    own = [_facts(run) for run in evidence.timed]
    theirs = _facts(result)
    shared = {
        name: value
        for name, value in own[0].items()
        if all(facts.get(name) == value for facts in own[1:])
    }
    changed = [name for name, value in shared.items() if theirs.get(name) != value]
    changed += [name for name in theirs if all(name not in facts for facts in own)]
    compared = len(shared)
    peaks = [run.peak_bytes for run in evidence.timed if run.peak_bytes]
    if peaks and result.peak_bytes:
        compared += 1
        room = max(peaks) - min(peaks) + _MEMORY_STEP * max(peaks)
        if not min(peaks) - room <= result.peak_bytes <= max(peaks) + room:
            changed.append("peak memory")
    times, noise = measure(result), evidence.noise()
    ratio = math.log(times.step_time_s / evidence.step_time_s) if times is not None else None
    spread = _SIGMAS * noise.run_log_sd if noise is not None else 0.0
    return Activity(tuple(changed), compared, ratio, max(_LEAST_LOG, spread))


def not_taken(settings: Mapping[str, str], result: ExecutionResult) -> tuple[str, ...]:
    """Environment variables that a rank saw with another value than they were set to, or not.

    `settings`: name to value. Judged are the variables whose values the record keeps, and no value
    that the node fills in (`SINKS_TOKEN`).
    """
    found = []
    for name, wanted in settings.items():
        for rank in result.ranks:
            seen = rank.head.get("env")
            if not isinstance(seen, Mapping) or not name.startswith(_KEPT) or "@" in wanted:
                continue
            if seen.get(name) != wanted[:200]:
                now = repr(seen[name]) if name in seen else "not set"
                found.append(f"`{name}` was set to {wanted!r}, in rank {rank.rank} it is {now}")
                break
    return tuple(found)


def _facts(result: ExecutionResult) -> dict[str, str]:
    """What one run is, as text by name; what is another one's each time is left out."""
    facts = {"number of processes": str(len(result.ranks))}
    for rank in result.ranks:
        for name, value in _of_rank(rank).items():
            facts[f"{name} of rank {rank.rank}"] = _text(value)
    return facts


def _of_rank(rank: RankRecord) -> dict[str, object]:
    steps = rank.steps
    seen = rank.head.get("env")
    environment = seen if isinstance(seen, Mapping) else {}
    facts: dict[str, object] = {
        "threads": rank.head.get("threads"),
        "models": _without_times(rank.models),
        "optimizers": _without_times(rank.optimizers),
        "changed settings": _without_times(rank.settings),
        "precision": _without_times(rank.precision),
        "micro-batches": [step.backwards for step in steps],
        "forward passes": [step.forwards for step in steps],
        "shapes": [step.shapes for step in steps],
        "optimizer calls": [step.optimizer_calls for step in steps],
        "learning rates": [step.learning_rates for step in steps],
        "losses": [step.loss for step in steps],
        "whether torch compiled": any(step.compile_s > 0 for step in steps),
    }
    for name, value in environment.items():
        if not any(part in name for part in _OWN_EACH_TIME):
            facts[f"`{name}`"] = value
    return facts


def _without_times(lines: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    return [{k: v for k, v in line.items() if k not in ("at", "w")} for line in lines]


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
