"""What the launcher adds to the command itself: `python benchmarks/launcher_overhead.py`.

Runs a small real training job 12 times through the search loop and 6 times on a held bench, and
prints for each the median of the time from asking for an execution to having its result, less the
command's own duration.
"""

import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

from infrarsi.contract import ExecutionRequest, ExecutionResult, Overlay, RunKind, SnapshotRef
from launchers import HeldBench, NodePool, RaySession, TuneLoop
from searchers.hypothesis import HypothesisSearcher

_TRAIN = """\
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(32, 64)).pow(2).mean().backward()
    optimizer.step()
"""
_TRIALS, _HELD = 12, 6


def request(folder: Path, number: int) -> ExecutionRequest:
    """One execution of the job, 20 optimizer steps long."""
    return ExecutionRequest(
        execution_id=f"e{number}",
        kind=RunKind.TIMED,
        snapshot=SnapshotRef("digest", str(folder / "snapshot"), "job"),
        overlay=Overlay(f"{shlex.quote(sys.executable)} train.py"),
        receipt_dir=str(folder / "receipts" / f"e{number}"),
        cache_dir=str(folder / "cache"),
        optimizer_steps=20,
        ends_by="witness",
        witness_key="ab" * 16,
    )


def searched(folder: Path, pool: NodePool, session: RaySession) -> list[float]:
    """Seconds added to each trial of the search loop."""
    asked: dict[str, float] = {}
    added: list[float] = []

    def suggest() -> ExecutionRequest | None:
        if len(asked) == _TRIALS:
            return None
        made = request(folder, len(asked))
        asked[made.execution_id] = time.monotonic()
        return made

    def on_result(result: ExecutionResult) -> None:
        assert result.outcome == "ok", result.reason
        added.append(time.monotonic() - asked[result.execution_id] - result.command_s)

    TuneLoop(HypothesisSearcher, pool, settings=session.settings()).run(
        suggest=suggest,
        is_over=lambda: len(added) == _TRIALS,
        on_result=on_result,
        on_progress=lambda *_: True,
    )
    return added


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name, RaySession() as session:
        folder = Path(name)
        (folder / "snapshot" / "tree").mkdir(parents=True)
        (folder / "snapshot" / "tree" / "train.py").write_text(_TRAIN)
        print(f"Ray started in {session.start_s:.1f} s")
        pool = NodePool()
        began = time.monotonic()
        with HeldBench(pool, pool.lease(), settings=session.settings()) as bench:
            print(f"bench held after {time.monotonic() - began:.2f} s")
            added = []
            for number in range(100, 100 + _HELD):
                asked = time.monotonic()
                result = bench.start(request(folder, number)).wait()
                assert result is not None
                assert result.outcome == "ok", result.reason
                added.append(time.monotonic() - asked - result.command_s)
            print(f"held bench: median {statistics.median(added):.3f} s, max {max(added):.3f} s")
        added = searched(folder, pool, session)
        print(
            f"search loop: first {added[0]:.2f} s, then median "
            f"{statistics.median(added[1:]):.3f} s, max {max(added[1:]):.3f} s"
        )
        began = time.monotonic()
    print(f"shut down in {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
