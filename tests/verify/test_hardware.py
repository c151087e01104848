"""The least work of an update, and what a GPU can do at most."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import Job

from infrarsi.contract import ExecutionResult, NodeInfo
from infrarsi.verify.hardware import (
    GPUS,
    capacity_bytes,
    flops_per_update,
    gpu_of,
    lowest_dtype,
    mfu,
    rows_per_update,
)
from infrarsi.verify.joined import join

NAMES = {
    "NVIDIA A100-SXM4-80GB": "A100 80GB",
    "NVIDIA A100 80GB PCIe": "A100 80GB",
    "NVIDIA A100-SXM4-40GB": "A100 40GB",
    "NVIDIA A100-PCIE-40GB": "A100 40GB",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA GH200 480GB": "GH200",
    "NVIDIA B200": "B200",
    "NVIDIA L4": None,
}


def run_on(name: str | None, gpus: int = 1, **rank: object) -> ExecutionResult:
    result = made.run(Job(ranks=max(1, gpus)))
    node = NodeInfo("n", "n", 8, tuple(map(str, range(gpus))), name)
    rank = {"precision": (), **rank}
    return replace(result, nodes=(node,), ranks=tuple(replace(one, **rank) for one in result.ranks))


@pytest.mark.parametrize(("name", "kind"), NAMES.items(), ids=NAMES.keys())
def test_a_gpu_is_known_by_the_name_that_its_driver_gives(name, kind):
    gpu = gpu_of(run_on(name))
    assert (gpu.name if gpu else None) == kind


def test_a_cpu_has_no_peak_no_utilization_and_no_capacity():
    result = run_on(None, gpus=0, models=({"numel": 10, "linear_numel": 10},))
    assert gpu_of(result) is None
    assert mfu(result, join(result), 0.1) is None
    assert capacity_bytes(result) is None


def test_lower_precisions_are_never_slower():
    for gpu in GPUS:
        peaks = [gpu.peak(dtype) for dtype in ("float32", "tf32", "bfloat16", "float8")]
        assert peaks == sorted(peaks), gpu.name
        assert gpu.peak("float16") == gpu.peak("bfloat16")
        assert gpu.peak("float64") <= gpu.peak("tf32")


def test_rows_are_tokens_over_all_ranks_and_micro_batches():
    result = run_on("NVIDIA H200", gpus=2)
    assert rows_per_update(result, join(result).updates[3]) == 16 * 32


def test_rows_of_images_are_samples_labels_or_not():
    shapes = {"x:float32:4x3x32x32": 4, "y:int64:4": 4}
    result = made.run(Job(), lambda step: replace(step, shapes=shapes))
    assert rows_per_update(result, join(result).updates[3]) == 16


def test_utilization_is_work_over_what_all_gpus_can_do():
    model = {"numel": 10**9, "trainable": 10**9, "linear_numel": 10**9}
    result = run_on("NVIDIA H200", gpus=2, models=(model,))
    strict = {"flags": {"allow_tf32_matmul": False, "float32_matmul_precision": "highest"}}
    result = replace(
        result, ranks=tuple(replace(rank, precision=(strict,)) for rank in result.ranks)
    )
    assert lowest_dtype(result) == "float32"
    assert flops_per_update(result, join(result)) == 6e9 * 512
    assert mfu(result, join(result), 0.1) == pytest.approx(6e9 * 512 / (0.1 * 2 * 67e12))


def test_frozen_weights_count_for_their_forward_alone():
    model = {"numel": 10**9, "trainable": 10**6, "linear_numel": 10**9}
    result = run_on("NVIDIA H200", models=(model,))
    assert flops_per_update(result, join(result)) == 2e9 * 512


def test_of_several_models_the_smallest_counts():
    models = tuple({"numel": n, "trainable": n, "linear_numel": n} for n in (10**9, 10**6))
    result = run_on("NVIDIA H200", models=models)
    assert flops_per_update(result, join(result)) == 6e6 * 512


@pytest.mark.parametrize(
    ("rank", "dtype"),
    [
        ({}, "tf32"),
        ({"precision": ({"autocast": {"cuda": "bfloat16"}},)}, "bfloat16"),
        ({"precision": ({"autocast": {"cuda": None}, "parameters": ["float16"]},)}, "bfloat16"),
        ({"precision": ({"flags": {"float32_matmul_precision": "high"}},)}, "tf32"),
        ({"model": {"dtypes": ["bfloat16"]}}, "bfloat16"),
    ],
    ids=["nothing is recorded", "autocast", "half parameters", "tf32", "bfloat16 model"],
)
def test_the_lowest_precision_of_a_run_decides_its_peak(rank, dtype):
    assert lowest_dtype(run_on("NVIDIA H200", **rank)) == dtype
