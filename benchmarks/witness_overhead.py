"""What the witness costs a job: fresh processes with and without it, interleaved.

    python benchmarks/witness_overhead.py examples/ddp_gpt --pairs 6
    python benchmarks/witness_overhead.py examples/ddp_gpt --within --steps 300
    python benchmarks/witness_overhead.py examples/ddp_gpt --within --set n-layer=12
    python benchmarks/witness_overhead.py --fixed
    python benchmarks/witness_overhead.py --looks

The first form runs a copy of an example (its `train.sh`, with more steps and a log line every few
steps) in ABBA order and prints the ratio of step times, with over without, and a 95 % interval. The
step time must not come from the witness, so it comes from the job's own log: this process stamps
each `step k/n` line as it arrives, in both arms alike, and takes the median time between two lines
(medians, since other work on the machine makes single intervals long). Start-up is not in it. The
ratio of CPU seconds of the whole process tree is printed too: it counts start-up and every thread,
but other processes disturb it far less, so on a busy machine it is the sharper of the two.

Fresh processes differ by several per cent on a busy machine, with or without a witness. `--within`
therefore alternates step by step inside one process (one rank): the witness is told that it is
dead on every second step, so that its hooks only pass calls on. Both the CPU time of the training
thread and wall time are compared between neighbouring steps, close looks left out as in a timed
run's median (their work is done before the beat that ends them goes out). The interval of the
median ratio is by order statistics: a step time is a median, and single steps that the machine
disturbs widen the mean's interval alone. The cost of passing calls on is not in it (under 0.5 us a
module call, see below).

The form `--fixed` measures the cost itself, not a small difference of two large times: a model
so small that a step takes under a millisecond, thousands of steps, CPU time of the training
thread. It gives microseconds a step and a module call, which divided by a real job's step time
bound the witness's share of it. `--looks` tells ordinary steps of such a job from close looks.
"""

import argparse
import itertools
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infrarsi.contract.execution import RunKind
from infrarsi.node.collector import Collector, WitnessConfig

Flags = Sequence[tuple[str, int]]
STEP_LINE = re.compile(r"step (\d+)/\d+ ")
FIXED_JOB = """
import sys, time, torch
torch.manual_seed(0); torch.set_num_threads(1)
class Chain(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.lines = torch.nn.ModuleList(torch.nn.Identity() for _ in range(depth))
        self.out = torch.nn.Linear(4, 1)
    def forward(self, x):
        for line in self.lines: x = line(x)
        return self.out(x).sum()
model = Chain(int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(2, 4)
steps = 3000
for i in range(steps + 1):
    if i == 300: began = time.thread_time()
    model(x).backward(); optimizer.step(); optimizer.zero_grad()
print("%.9f" % ((time.thread_time() - began) / (steps + 1 - 300)))
"""


LOOKS_JOB = """
import gc, statistics, sys, time, torch
torch.manual_seed(0); torch.set_num_threads(1)
depth = int(sys.argv[1])
lines = [torch.nn.Identity() for _ in range(depth)]
model = torch.nn.Sequential(*lines, torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.ones(2, 4)
recorder = next((o for o in gc.get_objects() if type(o).__name__ == "Recorder"), None)
times = {False: [], True: []}
for i in range(2001):
    began = time.thread_time()
    model(x).sum().backward()
    look = bool(recorder and recorder.step.look)
    optimizer.step(); optimizer.zero_grad()
    if i > 200: times[look].append(time.thread_time() - began)
tenth = {look: sorted(spent)[len(spent) // 10] for look, spent in times.items() if spent}
print("%.9f %.9f" % (tenth[False], tenth.get(True, 0.0)))
"""


WITHIN_DRIVER = """
import gc, math, runpy, statistics, sys, time
import torch
recorder = next(o for o in gc.get_objects() if type(o).__name__ == "Recorder")
times, state = {True: [], False: []}, {"count": 0, "last": None, "looked": False}
def after(optimizer, args, kwargs):
    now, last = (time.thread_time(), time.perf_counter()), state["last"]
    look = False
    if recorder.opened and not recorder.dead:  # a close look ends where the next step begins
        look, state["looked"] = recorder.step.look or state["looked"], recorder.step.look
    if last is not None and state["count"] > 6 and not look:
        spent = (now[0] - last[0], now[1] - last[1])
        times[recorder.dead].append((state["count"], spent))
    state["count"] += 1
    recorder.dead = state["count"] > 4 and state["count"] % 2 == 1
    state["last"] = (time.thread_time(), time.perf_counter())
sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)
runpy.run_path("train.py", run_name="__main__")
off = dict(times[True])
pairs = [(spent, off[n - 1]) for n, spent in times[False] if n - 1 in off]
for k, name in enumerate(("CPU time of the thread", "wall time")):
    logs = [math.log(on[k] / without[k]) for on, without in pairs]
    mean, half = statistics.fmean(logs), 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
    ranked, n = sorted(logs), len(logs)
    away = 0.98 * math.sqrt(n)  # 1.96 standard deviations of a binomial count with p = 1/2
    middle = [ranked[max(0, min(n - 1, round(n / 2 + side * away)))] for side in (-1, 0, 1)]
    print("%s: %.2f ms a step without, mean ratio %.4f (%.4f to %.4f), "
          "median ratio %.4f (%.4f to %.4f), %d pairs" % (
        name, 1e3 * statistics.median(w[k] for _, w in pairs), math.exp(mean),
        math.exp(mean - half), math.exp(mean + half), math.exp(middle[1]),
        math.exp(middle[0]), math.exp(middle[2]), n))
"""


@dataclass(frozen=True)
class Run:
    """One run: median seconds a step by the log lines' arrival, CPU seconds of all processes."""

    step_s: float
    cpu_s: float


def prepared(folder: Path, into: Path, steps: int, every: int, flags: Flags = ()) -> Path:
    """A copy of the example that runs longer and prints a line every few steps."""
    copy = into / folder.name
    shutil.copytree(folder, copy)
    script = copy / "train.sh"
    text = script.read_text()
    length = (("max-steps", steps), ("log-every", every), ("eval-every", 10 * steps))
    for flag, value in (*length, *flags):
        text, count = re.subn(rf"--{flag} \d+", f"--{flag} {value}", text)
        if not count:
            raise SystemExit(f"{script}: has no flag `--{flag} N` to change")
    script.write_text(text)
    return copy


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment() -> dict[str, str]:
    """This process's environment, with this Python's own torchrun first on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path}


def timed_run(copy: Path, env: dict[str, str], every: int) -> Run:
    """Run `train.sh` once and stamp its log lines."""
    before = children_cpu_s()
    stamps: list[float] = []
    with subprocess.Popen(
        ["bash", "train.sh"],
        cwd=copy,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if STEP_LINE.match(line):
                stamps.append(time.monotonic())
    if process.returncode or len(stamps) < 4:
        raise SystemExit(f"{copy}: train.sh exited with {process.returncode}, {len(stamps)} lines")
    gaps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
    return Run(statistics.median(gaps) / every, children_cpu_s() - before)


def witnessed_run(copy: Path, steps: int, every: int) -> Run:
    """The same under a timed run's witness."""
    with tempfile.TemporaryDirectory() as receipt:
        config = WitnessConfig("5a" * 16, RunKind.TIMED, steps, "job", (str(copy), "/tmp"))
        with Collector(Path(receipt), config) as collector:
            env = {**environment(), **collector.environment(os.environ)}
            collector.start_clock()
            run = timed_run(copy, env, every)
            ranks = collector.ranks()
        if not ranks or not all(rank.sealed and len(rank.steps) == steps for rank in ranks):
            raise SystemExit("the witness did not record every step, so its cost means nothing")
        return run


def interval(logs: list[float]) -> tuple[float, float, float]:
    """Mean ratio and its 95 % interval (Student's t) from log-ratios of pairs."""
    from scipy.stats import t

    mean = statistics.fmean(logs)
    half = 0.0
    if len(logs) > 1:
        half = t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def compare(folder: Path, pairs: int, steps: int, every: int, flags: Flags) -> None:
    """Print both ratios over interleaved pairs."""
    with tempfile.TemporaryDirectory(prefix="overhead") as temp:
        copy = prepared(folder, Path(temp), steps, every, flags)
        step_logs, cpu_logs = [], []
        for pair in range(pairs):
            arms = {}
            for arm in ("bare", "witness") if pair % 2 == 0 else ("witness", "bare"):
                if arm == "bare":
                    arms[arm] = timed_run(copy, environment(), every)
                else:
                    arms[arm] = witnessed_run(copy, steps, every)
            bare, with_it = arms["bare"], arms["witness"]
            step_logs.append(math.log(with_it.step_s / bare.step_s))
            cpu_logs.append(math.log(with_it.cpu_s / bare.cpu_s))
            print(
                f"pair {pair + 1}: {1000 * bare.step_s:.2f} ms a step, with the witness "
                f"{1000 * with_it.step_s:.2f} ms; CPU {bare.cpu_s:.2f} s, {with_it.cpu_s:.2f} s",
                flush=True,
            )
    for name, logs in (("step time", step_logs), ("CPU time of the run", cpu_logs)):
        ratio, low, high = interval(logs)
        print(f"{name}: ratio {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f}")


def within(folder: Path, steps: int, flags: Flags) -> None:
    """Print what neighbouring steps with and without the witness take in one process."""
    with tempfile.TemporaryDirectory(prefix="overhead") as temp:
        copy = prepared(folder, Path(temp), steps, 10 * steps, flags)
        (copy / "driver.py").write_text(WITHIN_DRIVER)
        (copy / "train.sh").write_text(
            (copy / "train.sh").read_text().replace("train.py", "driver.py")
        )
        config = WitnessConfig("5a" * 16, RunKind.TIMED, steps, "job", (temp, "/tmp"))
        with Collector(Path(temp), config) as collector:
            env = {**environment(), **collector.environment(os.environ), "NPROC": "1"}
            collector.start_clock()
            subprocess.run(["bash", "train.sh"], cwd=copy, env=env, check=True)


def printed_by(job: str, steps: int, depth: int, witness: bool) -> list[float]:
    """The numbers that a tiny job with `depth` empty modules in it prints."""
    with tempfile.TemporaryDirectory() as temp:
        (Path(temp) / "job.py").write_text(job)
        config = WitnessConfig("5a" * 16, RunKind.TIMED, steps, "job", ("/tmp",))
        with Collector(Path(temp), config) as collector:
            extra = collector.environment(os.environ) if witness else {}
            collector.start_clock()
            done = subprocess.run(
                [sys.executable, "job.py", str(depth)],
                cwd=temp,
                env={**os.environ, **extra},
                capture_output=True,
                text=True,
                check=True,
            )
    return [float(number) for number in done.stdout.split()]


def fixed_step_s(depth: int, witness: bool) -> float:
    """Seconds a step of the tiny job."""
    return printed_by(FIXED_JOB, 3001, depth, witness)[0]


def looks() -> None:
    """Print what ordinary steps and close looks take: the tenth percentile of one run each."""
    for depth in (0, 200):
        bare, _ = printed_by(LOOKS_JOB, 2001, depth, False)
        step, look = printed_by(LOOKS_JOB, 2001, depth, True)
        print(
            f"{depth} modules: {1e6 * bare:.0f} us a step, with the witness {1e6 * step:.0f} us, "
            f"on a close look {1e6 * look:.0f} us"
        )


def fixed(repeats: int) -> None:
    """Print the cost of a step and of a module call, as the smallest of a few runs each."""
    cost = {}
    for depth in (0, 200):
        best = {
            witness: min(fixed_step_s(depth, witness) for _ in range(repeats))
            for witness in (False, True)
        }
        cost[depth] = best[True] - best[False]
        print(f"{depth} modules: {1e6 * best[False]:.0f} us a step, +{1e6 * cost[depth]:.0f} us")
    print(
        f"a step: {1e6 * cost[0]:.0f} us; a module call: {1e6 * (cost[200] - cost[0]) / 200:.2f} us"
    )


def main() -> None:
    """Parse the command line and run one of the two forms."""
    parser = argparse.ArgumentParser(description="Measure what the witness costs.")
    parser.add_argument("folder", nargs="?", type=Path, help="an example with a train.sh")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--every", type=int, default=4, help="steps between two log lines")
    parser.add_argument("--within", action="store_true", help="alternate inside one process")
    parser.add_argument("--set", action="append", default=[], metavar="FLAG=N", help="of train.sh")
    parser.add_argument("--fixed", action="store_true", help="the cost of a step and a module call")
    parser.add_argument("--looks", action="store_true", help="ordinary steps and close looks")
    args = parser.parse_args()
    if args.looks:
        looks()
    if args.fixed:
        fixed(args.pairs)
    flags = [(flag, int(value)) for flag, value in (text.split("=") for text in args.set)]
    if args.folder is not None and args.within:
        within(args.folder, args.steps, flags)
    elif args.folder is not None:
        compare(args.folder, args.pairs, args.steps, args.every, flags)


if __name__ == "__main__":
    main()
