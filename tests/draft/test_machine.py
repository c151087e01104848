"""What is found out about a machine without starting anything."""

from pathlib import Path

import pytest

from infrarsi.draft import Machine


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({}, 4),
        ({"CUDA_VISIBLE_DEVICES": "0,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5"}, 4),
    ],
)
def test_gpus_are_counted_as_far_as_they_are_visible(
    tmp_path: Path, environ: dict[str, str], gpus: int
) -> None:
    for index in range(4):
        (tmp_path / str(index)).mkdir()
    assert Machine.here(environ, gpu_folder=tmp_path).gpus == gpus


def test_a_machine_without_a_driver_has_no_gpu(tmp_path: Path) -> None:
    machine = Machine.here({}, gpu_folder=tmp_path / "none")
    assert machine.gpus == 0
    assert machine.cpus >= 1
