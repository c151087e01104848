"""The most memory reserved on any rank stays within the cap, optimizer state included.

Why: a setting that fits a trial by a hair does not fit the real run, where a longer sequence, a
fragmented allocator or an evaluation comes along; and memory that is full makes the allocator slow.

Reserved memory counts, not allocated: it is what others cannot have. The peak is the largest since
the process began, resets by the job included, so it holds evaluation and checkpoint, and, since
states exist from the first optimizer step on, the optimizer's states.

The cap is `invariants.memory_cap_gib`, of each rank. Without it: on a GPU, its capacity less what
is not torch's (the context, NCCL: `OUTSIDE_GIB`) and 5 % headroom; on a CPU, where ranks share
the memory, their resident memory together against the machine's less 5 %. Where the kind of GPU is
not known its capacity is not either, and the check is not covered. A reference that needs more than
this default sets it instead: what the user runs today fits, and a candidate may not need more.
"""

from collections.abc import Sequence

from infrarsi.contract import CheckResult, ExecutionResult, RankRecord
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.hardware import capacity_bytes

CHECK = "memory_cap"
HEADROOM = 0.05
OUTSIDE_GIB = 1.5
"""Context and libraries 0.5 GiB, NCCL buffers up to 1 GiB on eight ranks of a node."""
_GIB = 2**30


def judge(comparison: Comparison) -> CheckResult:
    """Whether every rank stayed within the cap."""
    result = comparison.result
    peaks = {rank.rank: rank.peak_bytes for rank in result.ranks}
    silent = [rank for rank, peak in peaks.items() if not peak]
    if silent or not peaks:
        who = f"rank {silent[0]}" if silent else "no rank"
        return uncovered(CHECK, f"{who} recorded {'no' if silent else 'its'} peak memory")
    on_gpu = any(node.gpus for node in result.nodes)
    cap_gib = comparison.project.invariants.memory_cap_gib
    if cap_gib is not None:
        return _each(result, cap_gib, "`invariants.memory_cap_gib`")
    if not on_gpu:
        return _shared(result, comparison.evidence.timed)
    capacity = capacity_bytes(result)
    if capacity is None:
        return uncovered(
            CHECK, "the capacity of this GPU is not known: set `invariants.memory_cap_gib`"
        )
    cap = (1 - HEADROOM) * capacity / _GIB - OUTSIDE_GIB
    own = max((run.peak_bytes or 0 for run in comparison.evidence.timed), default=0) / _GIB
    if own > cap:
        return _each(result, own, "what the reference needs as it is")
    return _each(result, cap, f"the GPU's {capacity / _GIB:.1f} GiB less {OUTSIDE_GIB:g} and 5 %")


def _each(result: ExecutionResult, cap_gib: float, what: str) -> CheckResult:
    worst = max(result.ranks, key=lambda rank: rank.peak_bytes or 0)
    peak = (worst.peak_bytes or 0) / _GIB
    where = f"rank {worst.rank} reserved {peak:.2f} GiB at most{_states(worst)}"
    if peak > cap_gib:
        return failed(CHECK, f"{where}; {cap_gib:.2f} GiB are allowed ({what})")
    return passed(CHECK, f"{where}, of {cap_gib:.2f} GiB allowed ({what})")


def _shared(result: ExecutionResult, reference: Sequence[ExecutionResult]) -> CheckResult:
    machine = sum(node.memory_bytes or 0 for node in result.nodes)
    if not machine:
        return uncovered(CHECK, "the memory of the machine is not known")
    peak, own = _together(result), max(map(_together, reference), default=0.0)
    cap = max((1 - HEADROOM) * machine / _GIB, own)
    where = f"the ranks had {peak:.2f} GiB resident at most"
    if peak > cap:
        return failed(CHECK, f"{where}; {cap:.2f} GiB of the machine are allowed")
    return passed(CHECK, f"{where}, of {cap:.2f} GiB of the machine allowed")


def _together(result: ExecutionResult) -> float:
    return sum(rank.peak_bytes or 0 for rank in result.ranks) / _GIB


def _states(rank: RankRecord) -> str:
    states = (rank.end.get("static_bytes") or {}).get("optimizer_states")
    return f" (optimizer states {states / _GIB:.2f})" if states else ""
