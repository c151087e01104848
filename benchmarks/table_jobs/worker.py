"""One rank of a process group that measures configurations one after another."""

import gc
import importlib.metadata
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from table_jobs.job import Job, Run, Scalar, Settings, Sizes

GIB = 2**30
LEAVE = 75  # exit status: a row was written, the rest needs a new process
NO_DEVICE = 76  # exit status: CUDA does not start
LEFT_BEHIND_GIB = 0.5  # more than this held after a configuration needs a new process
ASKED = re.compile(r"Tried to allocate ([\d.]+) (KiB|MiB|GiB)")
UNITS = {"KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0}


@dataclass(frozen=True)
class Task:
    """What all ranks of a process group are told."""

    table: str
    job: Job
    sizes: Sizes
    device: str
    capacity_gib: float
    todo: tuple[tuple[dict[str, Scalar], int], ...]
    deadline: float  # of time.monotonic(), by which no new configuration starts
    out: Path
    port: int


def main(task: Task, rank: int) -> None:
    """Measure until the list or the time is at its end; ends the process."""
    os.setsid()
    gc.freeze()  # what is imported is not looked through after every configuration
    os.environ.update(task.job.environment(task.todo[0][0]))
    store = _start(task, rank)
    facts_written = False
    for number, (settings, repeat) in enumerate(task.todo):
        if not _go_on(store, number, rank, task.deadline):
            break
        run = Run(task.sizes, task.device, rank, task.job.ranks)
        row = _of_all_ranks(measure(task, settings, run), task)
        if rank == 0 or row["status"] != "ok":
            if row["status"] == "ok" and not facts_written:
                _write(task.out, {"facts": _facts(task, run)})
                facts_written = True
            _write(task.out, {"settings": settings, "repeat": repeat, **row})
        if row["status"] != "ok" and task.job.ranks > 1:
            os._exit(LEAVE)
        _clear(task.device)
        if _is_left_behind(task.device):
            os._exit(LEAVE)
    os._exit(0)  # no rank waits for another one's communicators


def _start(task: Task, rank: int) -> Any:
    """Device, memory limit and process group; the store of the ranks, None for one."""
    import torch

    if task.job.ranks == 1:  # the Trainer would spread over all that it sees
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    if task.device == "cuda":
        try:
            torch.cuda.set_device(rank)
            torch.cuda.init()
        except RuntimeError:
            os._exit(NO_DEVICE)
        total = torch.cuda.get_device_properties(rank).total_memory
        torch.cuda.set_per_process_memory_fraction(task.capacity_gib * GIB / total)
    else:
        torch.set_num_threads(1)
    if task.job.ranks == 1:
        return None
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", task.port, task.job.ranks, is_master=rank == 0)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(task.job.ranks))
    dist.init_process_group(
        "nccl" if task.device == "cuda" else "gloo",
        store=dist.PrefixStore("group", store),
        rank=rank,
        world_size=task.job.ranks,
        timeout=timedelta(seconds=120),
    )
    return store


def _go_on(store: Any, number: int, rank: int, deadline: float) -> bool:
    """Rank 0's word on whether there is time for one more."""
    in_time = time.monotonic() < deadline
    if store is None:
        return in_time
    if rank == 0:
        store.set(f"go/{number}", str(int(in_time)))
    return bool(int(store.get(f"go/{number}")))


def measure(task: Task, settings: Settings, run: Run) -> dict[str, Any]:
    """One configuration; the row without its settings. Never raises."""
    import torch

    torch.manual_seed(0)
    start = time.perf_counter()
    try:
        with _collector(settings):
            task.job.train(settings, run)
        row = {"status": "ok", "step_s": round(run.step_s(), 6), "peak_gib": _peak(task.device)}
    except (torch.OutOfMemoryError, RuntimeError) as error:
        row = _failed(error, task)
    except Exception as error:
        row = {"status": "error", "message": f"{type(error).__name__}: {error}"[:600]}
    return {**row, "wall_s": round(time.perf_counter() - start, 2)}


def _failed(error: RuntimeError, task: Task) -> dict[str, Any]:
    """The row of an exception; the allocator still holds what it held when it was raised."""
    import torch

    text = str(error)
    if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in text:
        return {"status": "error", "message": f"{type(error).__name__}: {text}"[:600]}
    held = torch.cuda.memory_allocated() / GIB if task.device == "cuda" else 0.0
    asked = ASKED.search(text)
    wanted = held + (float(asked[1]) * UNITS[asked[2]] if asked else 0.0)
    at_least = round(max(wanted, task.capacity_gib), 3)
    return {"status": "oom", "message": text[:400], "peak_gib_at_least": at_least}


@contextmanager
def _collector(settings: Settings) -> Iterator[None]:
    """Python's garbage collector as the job's `python_gc` has it."""
    if settings.get("python_gc") == "off":
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _clear(device: str) -> None:
    """Forget the configuration: its model, compiled code and memory."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _is_left_behind(device: str) -> bool:
    import torch

    return device == "cuda" and torch.cuda.memory_allocated() / GIB > LEFT_BEHIND_GIB


def _peak(device: str) -> float:
    """GiB; on a CPU the process's largest resident memory so far."""
    if device == "cuda":
        import torch

        return round(torch.cuda.max_memory_reserved() / GIB, 3)
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 3)


def _of_all_ranks(row: dict[str, Any], task: Task) -> dict[str, Any]:
    """The same with the slowest rank's time and the largest peak; a failed rank asks no other."""
    if task.job.ranks == 1 or row["status"] != "ok":
        return row
    import torch
    import torch.distributed as dist

    most = torch.tensor([row["step_s"], row["peak_gib"]], device=task.device, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return {**row, "step_s": round(float(most[0]), 6), "peak_gib": round(float(most[1]), 3)}


def _write(out: Path, line: dict[str, Any]) -> None:
    """One write for the whole line, so that lines of several ranks never mix."""
    with out.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def _facts(task: Task, run: Run) -> dict[str, Any]:
    import torch

    versions = {p: importlib.metadata.version(p) for p in task.job.packages}
    if task.device == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        if task.job.ranks > 1:
            versions["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
    return {
        "table": task.table,
        "gpu": torch.cuda.get_device_name() if task.device == "cuda" else "cpu",
        "gpus": task.job.ranks,
        "capacity_gib": task.capacity_gib,
        "static_gib": round(run.static_bytes / GIB, 3),
        "params": run.params,
        "workload": task.sizes.workload(),
        "versions": versions,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
