"""Measures the space of a job once and writes a replay table (see `replay.py`).

    python benchmarks/measure_table.py moe --out moe.measured.jsonl --seconds 540
    python benchmarks/measure_table.py moe --out moe.measured.jsonl --seconds 0 --table moe.jsonl
    python benchmarks/measure_table.py ddp --device cpu --tiny --values compile=off micro_batch=1,2

Jobs are in `table_jobs/`. Each measurement is appended to `--out` as it ends, and the table is
written from all of them at the end of every call, also when `--seconds` are over or it is killed
and called again. What `--out` holds already is not measured again, nor what `--resume` files hold.
`--part i/n` measures every n-th configuration from the i-th (from 1); the parts' files are put
together by `--resume` and `--seconds 0`.

Configurations share a process: the model is built anew for each. A new process (one a rank) is
forked for other environment variables, after a failure where several ranks take part, and where
memory stayed behind. This needs torch alone, and for `hf-trainer` transformers and accelerate.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from table_jobs import MODULES, job_named
from table_jobs.job import Job, Scalar, Settings
from table_jobs.table import Measured, key_of, missing, plan, table_lines
from table_jobs.worker import LEAVE, NO_DEVICE, Task
from table_jobs.worker import main as work

Todo = list[tuple[dict[str, Scalar], int]]
LEFT = f"exit {LEAVE}"
STALL_S = 100.0  # without a new line: the configuration hangs
GRACE_S = 2.0  # for the other ranks to write why they failed


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    chosen = _parser().parse_args(arguments)
    job = with_values(job_named(chosen.job), chosen.values)
    if chosen.capacity_gib is not None:
        job = replace(job, capacity_gib=chosen.capacity_gib)
    if chosen.ranks is not None:
        job = replace(job, ranks=chosen.ranks)
    out = chosen.out or Path(f"{chosen.job}.measured.jsonl")
    table = chosen.table or out.with_name(f"{out.name.split('.')[0]}.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.touch()
    _take_over(chosen.resume, out)
    deadline = time.monotonic() + chosen.seconds
    task = Task(
        table.stem,
        job,
        job.tiny if chosen.tiny else job.sizes,
        chosen.device,
        job.capacity_gib,
        (),
        deadline - chosen.reserve,
        out,
        0,
    )
    Campaign(task, chosen.start).run(part_of(shuffled(job), chosen.part))
    _report(job, out, table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure a space once and write a replay table.")
    parser.add_argument("job", choices=MODULES)
    parser.add_argument("--out", type=Path, help="measured lines (JOB.measured.jsonl)")
    parser.add_argument("--table", type=Path, help="the table (the name of --out to its first dot)")
    parser.add_argument("--resume", type=Path, nargs="*", default=[], help="measured lines to take")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th configuration")
    parser.add_argument("--seconds", type=float, default=540.0, help="wall time of this call")
    parser.add_argument(
        "--reserve", type=float, default=15.0, help="seconds of it in which nothing new starts"
    )
    parser.add_argument("--capacity-gib", type=float, help="memory limit of a GPU")
    parser.add_argument("--ranks", type=int, help="GPUs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the way")
    parser.add_argument(
        "--values", nargs="*", default=[], metavar="KNOB=A,B", help="only these values"
    )
    parser.add_argument("--start", choices=("fork", "spawn"), default="fork")
    return parser


def with_values(job: Job, wanted: Sequence[str]) -> Job:
    """The job with fewer values; a knob without its reference gets the first value as reference."""
    knobs = {k.name: k for k in job.knobs}
    for item in wanted:
        name, _, words = item.partition("=")
        if name not in knobs:
            raise SystemExit(f"`{name}` is no knob of {job.name}: {', '.join(knobs)}")
        values = tuple(v for v in knobs[name].values if str(v).lower() in words.lower().split(","))
        if not values:
            raise SystemExit(f"`{name}` has the values {knobs[name].values}, not {words!r}")
        reference = knobs[name].reference
        reference = reference if reference in values else values[0]
        knobs[name] = replace(knobs[name], values=values, reference=reference)
    return replace(job, knobs=tuple(knobs.values()))


def shuffled(job: Job) -> Todo:
    """All measurements of a job, the product in an order that no drift follows."""
    order = list(job.product())
    random.Random(0).shuffle(order)
    return plan(job, order)


def part_of(todo: Todo, part: str) -> Todo:
    """Part i of n, from "i/n"."""
    number, _, parts = part.partition("/")
    return todo[int(number) - 1 :: int(parts)]


def _take_over(paths: Sequence[Path], out: Path) -> None:
    """Append other files' lines to `out`, which counts as what is measured."""
    with out.open("a") as file:
        for path in paths:
            if path.resolve() != out.resolve():
                file.write(path.read_text().rstrip("\n") + "\n")


class Campaign:
    """Processes for a list of measurements, one group of ranks after another."""

    def __init__(self, task: Task, start: str) -> None:
        self.task, self.start = task, start

    def run(self, todo: Todo) -> None:
        """Measure what is missing of the list, by environment, until time is up."""
        if not self._left(todo) or time.monotonic() >= self.task.deadline:
            return
        names = [k.name for k in self.task.job.knobs if k.env is not None]
        environments = list(dict.fromkeys(tuple(s[n] for n in names) for s, _ in todo))
        if self.start == "fork":
            self._preload()
        for environment in environments:
            group = [t for t in todo if tuple(t[0][n] for n in names) == environment]
            while (left := self._left(group)) and time.monotonic() < self.task.deadline:
                self._processes(left)

    def _preload(self) -> None:
        """Import what every fork needs, and start no CUDA: a fork could not use it."""
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        for name in (*self.task.job.packages, "torch._inductor.compile_fx"):
            import_module(name)
        if "transformers" in self.task.job.packages:
            import_module("transformers").Trainer  # noqa: B018 - a lazy import

    def _left(self, group: Todo) -> Todo:
        rows = Measured([self.task.out]).rows
        return [(s, r) for s, r in group if key_of(s, r) not in rows]

    def _processes(self, left: Todo) -> None:
        """One process a rank, until all ended or one failed; a call measures or gives up one."""
        task = replace(self.task, todo=tuple(left), port=_free_port())
        context = multiprocessing.get_context(self.start)
        ranks = [context.Process(target=work, args=(task, r)) for r in range(task.job.ranks)]
        for process in ranks:
            process.start()
        try:
            reason = self._wait(ranks)
        finally:
            for process in ranks:
                _kill(process)
        if any(p.exitcode == NO_DEVICE for p in ranks):
            if self.start == "spawn":
                raise SystemExit(f"CUDA does not start, or has fewer than {len(ranks)} GPUs")
            print("CUDA does not start in a fork: processes are spawned", flush=True)
            self.start = "spawn"
            return
        still = self._left(left)
        if reason and still and (len(still) == len(left) or not self._is_told(reason)):
            self._give_up(still[0], reason)

    def _wait(self, ranks: Sequence[Any]) -> str:
        """Why the ranks ended: nothing, an exit status, or that no line came for `STALL_S`."""
        size, since = -1, time.monotonic()
        while any(p.is_alive() for p in ranks):
            failed = [p.exitcode for p in ranks if p.exitcode not in (None, 0)]
            if failed:
                ended = time.monotonic() + GRACE_S
                while any(p.is_alive() for p in ranks) and time.monotonic() < ended:
                    time.sleep(0.05)
                return LEFT if LEAVE in failed else f"exit {failed[0]}"
            now = self.task.out.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
                print(f"{time.strftime('%H:%M:%S')} {_tail(self.task.out)}", flush=True)
            elif time.monotonic() - since > STALL_S:
                return f"no result for {STALL_S:.0f} s"
            elif time.monotonic() > self.task.deadline + 60:
                return ""
            time.sleep(0.05)
        codes = [p.exitcode for p in ranks if p.exitcode]
        if not codes:
            return ""
        return LEFT if LEAVE in codes else f"exit {codes[0]}"

    def _is_told(self, reason: str) -> bool:
        """Whether a rank wrote a row of what ended the processes."""
        *_, last = Measured([self.task.out]).rows.values()
        return reason == LEFT or last["status"] != "ok"

    def _give_up(self, item: tuple[Settings, int], reason: str) -> None:
        settings, repeat = item
        line = {"settings": settings, "repeat": repeat, "status": "error", "message": reason,
                "wall_s": 0.0}  # fmt: skip
        with self.task.out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _kill(process: Any) -> None:
    """End a rank with what it started; a rank leads a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.join()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _tail(path: Path) -> str:
    lines = path.read_text().splitlines()
    return f"{len(lines)} lines, the last: ..{lines[-1][-150:]}" if lines else "nothing yet"


def _report(job: Job, out: Path, table: Path) -> None:
    measured = Measured([out])
    failed = [r for r in measured.rows.values() if r["status"] == "error"]
    for row in failed:
        print(f"failed: {row['settings']}: {row['message'][:300]}")
    print(f"{len(measured.rows)} measured, {len(failed)} failed, {missing(measured, job)} of the "
          "product missing")  # fmt: skip
    try:
        lines = table_lines(measured, job)
    except ValueError as error:
        print(f"no table: {error}")
        return
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ooms = sum(line["status"] == "oom" for line in lines[1:])
    print(f"{table}: {len(lines) - 1} rows, {ooms} out of memory")


if __name__ == "__main__":
    main()
