"""An honest model of a job, as the harness would have recorded it; any field can be tampered with.

`run` makes an ExecutionResult of `ranks` ranks whose batches, losses and weights depend on the
update alone, never on how ranks and micro-batches share it.
"""

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
RankTamper = Callable[[RankRecord], RankRecord]


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
    facts: bool = True  # models, optimizers, precision and so on, as newer records have them


PARAMETERS = {"embed.weight": 2048, "layer.weight": 1024, "layer.bias": 32, "key.bias": 32}
"""Names and elements of the model's parameters; the gradient of the last is rounding alone."""
WARM_UP = 5


def run(
    job: Job = Job(), tamper: Tamper | None = None, of_rank: RankTamper | None = None
) -> ExecutionResult:
    """The result of that job; `tamper` changes each step of each rank, `of_rank` each rank."""
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
    if of_rank:
        ranks = tuple(of_rank(rank) for rank in ranks)
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
    facts = _facts(job) if job.facts else {"model": {"dtypes": ["float32"]}}
    return RankRecord(
        rank=rank,
        world_size=job.ranks,
        pid=100 + rank,
        sealed=True,
        head={"at": job.start_s},
        steps=steps,
        end={"how": "witness", "peak_bytes": 2**30},
        **facts,
    )


def _facts(job: Job) -> dict[str, Any]:
    """What a rank says of its models and optimizers."""
    model = {
        "cls": "Model",
        "digest": "ab" * 8,
        "tensors": len(PARAMETERS),
        "numel": sum(PARAMETERS.values()),
        "trainable": sum(PARAMETERS.values()),
        "dtypes": ["float32"],
        "names": list(PARAMETERS),
        "dropout": {"0.1": 2} if job.dropout else {},
        "sharded": [],
        "ties": [],
    }
    groups = [
        {"tensors": 2, "numel": 3072, "settings": {**ADAMW, "lr": rate(0), "weight_decay": 0.1}},
        {"tensors": 2, "numel": 64, "settings": {**ADAMW, "lr": rate(0), "weight_decay": 0.0}},
    ]
    settings = tuple(
        {"i": step, "optimizer": "0:AdamW", "group": group, "settings": {"lr": rate(step)}}
        for step in range(1, WARM_UP)
        for group in range(2)
    )
    precision = {
        "i": 1,
        "autocast": {"cpu": None},
        "eval_autocast": {"cpu": None},
        "eval_parameters": ["float32"],
        "flags": {"float32_matmul_precision": "highest", "allow_tf32_matmul": False},
        "parameters": ["float32"],
        "gradients": ["float32"],
        "buffers": ["float32"],
    }
    audit = job.kind is not RunKind.TIMED
    states = tuple(
        {"optimizer": "0:AdamW", "key": key, "dtypes": ["float32"], "tensors": 4}
        | ({"norm": norm * (1.0 + job.wobble), "projection": 0.3 * norm} if audit else {})
        for key, norm in (("exp_avg", 0.2), ("exp_avg_sq", 0.01), ("step", 60.0))
    )
    return {
        "model": model,
        "models": (model,),
        "optimizers": ({"name": "0:AdamW", "cls": "torch.optim.adamw.AdamW", "groups": groups},),
        "settings": settings,
        "precision": (precision,),
        "states": states,
        "weights": tuple(_weights(job, when) for when in ("start", "end")) if audit else (),
        "companions": tuple(_average(job, when) for when in ("start", "end")) if audit else (),
    }


ADAMW = {
    "betas": [0.9, 0.95],
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
    "decoupled_weight_decay": True,
    "foreach": None,
    "fused": None,
    "capturable": False,
    "differentiable": False,
}


def rate(step: int) -> float:
    """The learning rate of an update: a short warm-up."""
    return 1e-3 * min(1.0, (step + 1) / WARM_UP)


def _weights(job: Job, when: str) -> dict[str, Any]:
    way = 0.0 if when == "start" else 0.03 * (1.0 + job.wobble)
    found = {
        name: [1.0 + number + way, 0.5 * number + 0.7 * way]
        for number, name in enumerate(PARAMETERS)
    }
    return {"when": when, "model": 0, "tensors": {**found, "mask": [5.0, 1.0]}}


def _average(job: Job, when: str) -> dict[str, Any]:
    way = 0.0 if when == "start" else 0.02 * (1.0 + job.wobble)
    return {
        "when": when,
        "kind": "dict",
        "cls": "dict",
        "tensors": 4,
        "numel": 3136,
        "norm": 6.0 + way,
        "projection": 1.0 - way,
    }


def gradients(index: int, wobble: float = 0.0) -> dict[str, list[float] | None]:
    """The gradients that the optimizer is given in an update."""
    norms = (0.4, 1.0 + 0.1 * math.sin(index), 0.05, 1e-7)
    return {
        name: [
            norm * (1.0 + wobble * math.cos(index)),
            norm * (math.cos(index + number) + wobble),
        ]
        for number, (name, norm) in enumerate(zip(PARAMETERS, norms, strict=True))
    }


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
        learning_rates=(rate(index),) if look else (),
        data_wait_s=0.001,
        **(_evaluation(job, rank, index) if evaluates(job, index) else {}),
        **(_close(job, index) if look and job.facts else {}),
    )


def evaluates(job: Job, index: int) -> bool:
    """Whether the job evaluates after this update."""
    return bool(job.eval_every) and index % job.eval_every == job.eval_every - 1


def _evaluation(job: Job, rank: int, index: int) -> dict[str, Any]:
    if rank:
        return {}
    look = job.kind is not RunKind.TIMED or index in CLOSE
    loss = (3.5 + 2.0 * math.exp(-0.05 * index)) * (1.0 + job.wobble)
    whole = {"x": _sums([_row(-1, sample) for sample in range(8)], "x")}
    found: dict[str, Any] = {"eval_calls": 2, "eval_samples": 8, "eval_losses": (loss, loss)}
    if look and job.facts:
        found["eval_digests"] = whole
    if job.kind is not RunKind.TIMED and job.facts:
        found["eval_outputs"] = (loss, 12.0 * (1.0 + job.wobble))
    return found


def _close(job: Job, index: int) -> dict[str, Any]:
    audit = job.kind is not RunKind.TIMED
    found: dict[str, Any] = {"random": {"cpu": float(job.dropout and not audit)}}
    if audit:
        found["gradients"] = gradients(index, job.wobble)
        found["matmul_dtypes"] = ("float32",)
    return found


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
