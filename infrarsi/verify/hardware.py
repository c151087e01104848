"""What a GPU can do at most, and how much work an update is at least.

A step that needs more floating-point operations than the hardware has in that time was not done:
a bound that no patch can talk itself out of, since work, time and hardware are all seen from
outside the job's own code.

Peaks are dense (without sparsity), per GPU, from NVIDIA's data sheets: A100 (2021), H100 (2023,
SXM, PCIe and NVL), H200 (2024, SXM and NVL), GH200 (2023), HGX B200 (2024, its sums divided by
eight, halved where they are given with sparsity). They hold at the boost clock of the data sheet;
real training stays below 0.8 of them, so that a limit of 1 has room for a GPU that clocks higher.

The work of an update is at least 2 floating-point operations for each element of a linear weight
and row that passes it, and twice that again where the model is trained (gradients of inputs and of
weights). Rows are samples, or tokens where an integer input of shape [batch, length] is fed.
Attention, embeddings, convolutions and experts are left out: it is a lower bound, not an estimate.
Where several models are trained, which rows passed which is not recorded, so each row counts for
the smallest.
"""

import re
from dataclasses import dataclass

from infrarsi.contract import ExecutionResult, RankRecord
from infrarsi.verify.joined import Joined, Update

_GIB = 2**30
_INTEGERS = ("int64", "int32", "int16", "uint8", "int8")


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU: dense peaks in FLOP/s by dtype, and the memory that its driver shows."""

    name: str
    pattern: str
    float32: float
    tf32: float
    bfloat16: float
    float8: float
    mem_gib: float

    def peak(self, dtype: str) -> float:
        """The peak at `float32`, `tf32`, `bfloat16`, `float16` or `float8`."""
        halves = {"float16": self.bfloat16, "bfloat16": self.bfloat16, "float8": self.float8}
        return halves.get(dtype, self.tf32 if dtype == "tf32" else self.float32)


GPUS = (
    Gpu("A100 80GB", r"A100.*80 ?GB", 19.5e12, 156e12, 312e12, 312e12, 80.0),
    Gpu("A100 40GB", r"A100", 19.5e12, 156e12, 312e12, 312e12, 40.0),
    Gpu("GH200", r"GH200", 67e12, 494.7e12, 989.4e12, 1978.9e12, 94.5),
    Gpu("H100 NVL", r"H100 NVL", 60e12, 417e12, 835e12, 1671e12, 93.6),
    Gpu("H100 PCIe", r"H100 PCIe", 51.2e12, 378e12, 756e12, 1513e12, 79.6),
    Gpu("H100", r"H100", 67e12, 494.7e12, 989.4e12, 1978.9e12, 79.6),
    Gpu("H200 NVL", r"H200 NVL", 60e12, 417e12, 835e12, 1671e12, 140.4),
    Gpu("H200", r"H200", 67e12, 494.7e12, 989.4e12, 1978.9e12, 140.4),
    Gpu("B200", r"B200", 75e12, 1125e12, 2250e12, 4500e12, 179.0),
)
"""The first whose pattern is found in the driver's product name."""


def gpu_of(result: ExecutionResult) -> Gpu | None:
    """The kind of GPU that a run had; None without one, an unknown one, or several kinds."""
    names = {node.gpu_name for node in result.nodes if node.gpus}
    if len(names) != 1:
        return None
    name = names.pop() or ""
    return next((gpu for gpu in GPUS if re.search(gpu.pattern, name, re.I)), None)


def lowest_dtype(result: ExecutionResult) -> str:
    """The lowest precision that matrix products of a run may have had, as the record names it.

    TF32 counts as allowed where nothing is recorded, so that the peak errs upwards.
    """
    lines = [line for rank in result.ranks for line in rank.precision]
    names = {str(v) for rank in result.ranks for v in rank.model.get("dtypes") or ()}
    for line in lines:
        names |= {str(v) for v in (line.get("autocast") or {}).values() if v}
        names |= {str(v) for v in line.get("parameters") or ()}
    names |= {
        str(name) for rank in result.ranks for step in rank.steps for name in step.matmul_dtypes
    }
    if any(name.removeprefix("torch.").startswith("float8") for name in names):
        return "float8"
    if any(name.removeprefix("torch.") in ("bfloat16", "float16") for name in names):
        return "bfloat16"
    flags = [line["flags"] for line in lines if line.get("flags")]
    strict = flags and not any(_allows_tf32(one) for one in flags)
    return "float32" if strict else "tf32"


def _allows_tf32(flags: dict[str, object]) -> bool:
    words = {str(flags.get("float32_matmul_precision")), str(flags.get("fp32_precision_cuda"))}
    return bool(flags.get("allow_tf32_matmul")) or bool(words & {"high", "medium", "tf32", "bf16"})


def rows_per_update(result: ExecutionResult, update: Update) -> int:
    """Rows that passed the model in one update, over all ranks: samples, or tokens."""
    tokens: dict[str, int] = {}
    for rank in result.ranks:
        for name, count in _token_counts(rank, update.index).items():
            tokens[name] = tokens.get(name, 0) + count
    return max(update.samples, min(tokens.values(), default=0))


def _token_counts(rank: RankRecord, index: int) -> dict[str, int]:
    """Tokens by input: integers of shape [batch, length]."""
    found: dict[str, int] = {}
    step = next((step for step in rank.steps if step.index == index), None)
    for key, times in (step.shapes if step else {}).items():
        if key.count(":") < 2:
            continue
        name, dtype, shape = key.rsplit(":", 2)
        sizes = [int(number) for number in re.findall(r"\d+", shape)]
        if dtype in _INTEGERS and len(sizes) == 2 and min(sizes) > 1:
            found[name] = found.get(name, 0) + sizes[0] * sizes[1] * times
    return found


def flops_per_update(result: ExecutionResult, run: Joined) -> float | None:
    """The least floating-point operations of one update, over all ranks; None where not known."""
    first = min(result.ranks, key=lambda rank: rank.rank, default=None)
    if first is None or not run.updates:
        return None
    each = [_flops_per_row(model) for model in first.models or (first.model,)]
    known = [flops for flops in each if flops]
    rows = rows_per_update(result, run.updates[len(run.updates) // 2])
    return min(known) * rows if known and rows else None


def _flops_per_row(model: dict[str, object]) -> float | None:
    linear = model.get("linear_numel")
    if not isinstance(linear, int | float) or linear <= 0:
        return None
    whole = model.get("trainable", model.get("numel")) == model.get("numel")
    return (6.0 if whole else 2.0) * float(linear)


def mfu(result: ExecutionResult, run: Joined, step_time_s: float) -> float | None:
    """Model FLOPs utilization: the work's lower bound over what the GPUs could have done.

    Against the peak of the lowest precision of the run; None where the GPU is not known, on a CPU,
    or where the record does not say how large the linear layers are.
    """
    gpu, work = gpu_of(result), flops_per_update(result, run)
    count = sum(len(node.gpus) for node in result.nodes)
    if gpu is None or work is None or not count or step_time_s <= 0:
        return None
    return work / (step_time_s * gpu.peak(lowest_dtype(result)) * count)


def capacity_bytes(result: ExecutionResult) -> int | None:
    """Memory of one GPU as its driver shows it; None where the GPU is not known."""
    gpu = gpu_of(result)
    return int(gpu.mem_gib * _GIB) if gpu else None
