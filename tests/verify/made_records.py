"""An honest model of a job, as the harness would have recorded it; any field can be tampered with.

`run` makes an ExecutionResult of `ranks` ranks whose batches, losses and weights depend on the
update alone, never on how ranks and micro-batches share it.
"""

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from infrarsi.contract import (
    ExecutionResult,
    NodeInfo,
    Outcome,
    Project,
    RankRecord,
    RunKind,
    StepRecord,
)

SAMPLES, LENGTH, STEPS = 16, 32, 30
CLOSE = (0, 1, 7, 16, 24)
PROJECT = Project.model_validate(
    {
        "schema": "infrarsi-project-v1",
        "name": "made",
        "launch": {"command": "bash train.sh"},
        "workload": {"optimizer_steps": STEPS},
        "frozen": {"data.py": "sha256:" + "0" * 64},
    }
)

Tamper = Callable[[StepRecord], StepRecord]


@dataclass(frozen=True)
class Job:
    """How one run is laid out and timed; the defaults are the reference."""

    ranks: int = 1
    micro_batch: int = 4
    step_s: float = 0.1
    start_s: float = 4.0
    noise: float = 0.01
    eval_every: int = 10
    eval_s: float = 0.2
    wobble: float = 0.0  # relative rounding of losses and weights
    kind: RunKind = RunKind.TIMED
    seed: int = 0
    with_mask: bool = False
    events: bool = False
    dropout: bool = False


def run(job: Job = Job(), tamper: Tamper | None = None) -> ExecutionResult:
    """The result of that job; `tamper` changes each step of each rank."""
    random_times = random.Random(job.seed)
    ends, now = [], job.start_s
    for index in range(STEPS):
        duration = job.step_s * math.exp(job.noise * random_times.gauss(0, 1))
        if index == 0:
            duration += 1.0
        if job.eval_every and index % job.eval_every == job.eval_every - 1:
            duration += job.eval_s
        now += duration
        ends.append(now)
    ranks = tuple(_rank(job, rank, ends, tamper) for rank in range(job.ranks))
    return ExecutionResult(
        execution_id=f"made-{job.kind}-{job.seed}",
        outcome=Outcome.OK,
        reason="",
        kind=job.kind,
        exit_code=0,
        ranks=ranks,
        nodes=(NodeInfo("node", "node", 2),),
        command_s=now + 0.3,
        wall_s=now + 0.8,
    )


def _rank(job: Job, rank: int, ends: list[float], tamper: Tamper | None) -> RankRecord:
    steps = tuple(_step(job, rank, index, ends) for index in range(STEPS))
    if tamper:
        steps = tuple(tamper(step) for step in steps)
    return RankRecord(
        rank=rank,
        world_size=job.ranks,
        pid=100 + rank,
        sealed=True,
        head={"at": job.start_s},
        model={"dtypes": ["float32"]},
        steps=steps,
        end={"how": "witness", "peak_bytes": 2**30},
    )


def _step(job: Job, rank: int, index: int, ends: list[float]) -> StepRecord:
    share = SAMPLES // job.ranks
    rows = [_row(index, sample) for sample in range(rank * share, (rank + 1) * share)]
    forwards = math.ceil(share / job.micro_batch)
    look = job.kind is not RunKind.TIMED or index in CLOSE
    elements = {"x": share * LENGTH, "y": share * LENGTH}
    shapes = {f"{name}:int64:{job.micro_batch}x{LENGTH}": forwards for name in ("x", "y")}
    digests = {name: _sums(rows, name) for name in ("x", "y")}
    if job.with_mask:
        elements["mask"] = forwards * LENGTH**2
        shapes[f"mask:bool:{LENGTH}x{LENGTH}"] = forwards
        one = _hash("mask")
        digests["mask"] = (forwards * one % 2**64, forwards * (one // 3) % 2**64)
    drop = 0.02 * math.sin(7.0 * index + job.micro_batch) if job.dropout else 0.0
    if job.kind is not RunKind.TIMED:
        drop = 0.0
    elif job.dropout:
        drop += 0.01
    wobble = 1.0 + job.wobble * math.cos(13.0 * index + job.micro_batch)
    began = ends[index - 1] if index else job.start_s
    return StepRecord(
        index=index,
        close_look=look,
        harness_s=ends[index] + 0.0002 * (index % 3),
        witness_s=ends[index] - job.start_s,
        event_s=(ends[index] - began) * 0.999 if job.events else None,
        loss=(3.0 + 2.0 * math.exp(-0.05 * index)) * wobble * (1.0 + drop),
        forwards=forwards,
        backwards=forwards,
        samples=share,
        elements=elements,
        shapes=shapes,
        digests=digests if look else {},
        weights=tuple(weight(index, e, 1.0 + drop) * wobble for e in range(16)) if look else (),
        optimizer_calls={"0:AdamW": 1},
        learning_rates=(1e-3 * min(1.0, (index + 1) / 5), 1e-4) if look else (),
        data_wait_s=0.001,
        eval_calls=int(bool(job.eval_every) and index % job.eval_every == job.eval_every - 1),
    )


def weight(index: int, element: int, rate: float = 1.0) -> float:
    """A sampled weight after a step: a start, and a way travelled at `rate`."""
    return 0.3 * math.sin(element) + rate * 0.001 * (index + 1) * math.cos(element)


def _row(index: int, sample: int) -> str:
    return f"{index}/{sample}"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _sums(rows: list[str], name: str) -> tuple[int, int]:
    return (
        sum(_hash(row + name) for row in rows) % 2**64,
        sum(_hash(row + name + "e") for row in rows) % 2**64,
    )


def rows_digest(index: int, samples: range) -> dict[str, tuple[int, int]]:
    """The digests of these samples of an update."""
    rows = [_row(index, sample) for sample in samples]
    return {name: _sums(rows, name) for name in ("x", "y")}


def reference_runs(job: Job = Job()) -> list[ExecutionResult]:
    """Three timed runs, an audit and a perturbed one."""
    timed = [run(replace(job, seed=seed)) for seed in range(3)]
    audit = run(replace(job, kind=RunKind.AUDIT))
    perturbed = run(replace(job, kind=RunKind.PERTURBED, wobble=1e-7))
    return [*timed, audit, perturbed]
