"""What launch scripts, batch scripts and manifests of every manner become in the contract."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from launched_jobs import JOBS, Written
from reading_jobs import read

from infrarsi.draft.placing import placement
from infrarsi.draft.target import locate

Make = Callable[[Mapping[str, str]], Path]
MACHINE_GPUS = 2

jobs = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())


@jobs
def test_the_launch_is_what_the_job_says(write: Make, job: Written) -> None:
    root = write(job.files)
    target = locate(root / job.target, entry=None, command=None, environ={})
    expected = job.expected
    assert target.root == root
    found = (target.command, target.script_path, target.entry, target.cwd)
    assert found == (expected.command, expected.script, expected.entry, expected.cwd)
    environment = {name: a.value for name, a in target.training.environment.items()}
    assert expected.env.items() <= environment.items()
    placed = placement(target)
    assert placed.nodes == expected.nodes
    processes = None if placed.processes is None else placed.processes.number
    assert processes == expected.processes
    assert (None if placed.gpus is None else placed.gpus.number) == expected.gpus


@jobs
def test_the_contract_is_what_the_job_says(write: Make, job: Written) -> None:
    launch = read(write(job.files) / job.target, gpus=MACHINE_GPUS).project.launch
    expected = job.expected
    assert (launch.command, launch.script) == (expected.command, expected.script)
    assert launch.nodes == expected.nodes
    words = launch.command + str(job.files)
    alone = 1 if "python " in words or "uv run train" in words else MACHINE_GPUS
    assert launch.gpus_per_node == (expected.gpus or expected.processes or alone)
