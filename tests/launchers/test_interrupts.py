"""Signals to the driver, in processes of their own."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infrarsi.testing import Lab

GONE_S = 2.0
_DRIVER = """\
import json, sys
from contextlib import ExitStack
from infrarsi.contract import ExecutionRequest
from launchers import HeldBench, Interrupts, NodePool, RaySession
from infrarsi.node.local_bench import LocalBench

request = ExecutionRequest.from_dict(json.loads(sys.argv[2]))
with ExitStack() as stack:
    if sys.argv[1] == "ray":
        session = stack.enter_context(RaySession())
        interrupts = stack.enter_context(Interrupts())
        interrupts.before_exit(session.remove_folder)
        pool = NodePool()
        bench = stack.enter_context(HeldBench(pool, pool.lease(), settings=session.settings()))
    else:
        interrupts = stack.enter_context(Interrupts())
        bench = stack.enter_context(LocalBench())
    job = bench.start(request)
    while not interrupts.requested:
        job.wait(0.2)
    print("asked to stop", flush=True)
    if "deaf" not in sys.argv:
        job.stop()
    result = job.wait()
    print(result.outcome, flush=True)
sys.exit(3)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(None, tmp_path)  # type: ignore[arg-type]  # only its requests are used
    os.mkfifo(lab.mark)
    yield lab
    os.unlink(lab.mark)


def driven(lab: Lab, *how: str) -> tuple[subprocess.Popen[str], int]:
    """A driver that waits for a job, and the job's process id."""
    import json

    request = lab.request(f"trap '' TERM; echo $$ > {lab.mark}; while :; do sleep 1; done")
    text = json.dumps(request.to_dict())
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, how[0], text, *how[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return driver, lab.marked()


def left_of(processes: list[psutil.Process], within_s: float) -> list[str]:
    """Those that do not end in time; one that its new parent has yet to reap has ended."""
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    found = []
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie is one
            found.append(" ".join(process.cmdline())[:80])
    return found


def test_the_first_signal_asks_and_the_driver_ends_in_good_order(lab: Lab) -> None:
    driver, pid = driven(lab, "local")
    job = psutil.Process(pid)
    driver.send_signal(signal.SIGINT)
    assert driver.communicate(timeout=20)[0].splitlines() == ["asked to stop", "stopped"]
    assert driver.returncode == 3
    assert left_of([job], 0.0) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once_and_nothing_is_left(lab: Lab, number: int) -> None:
    driver, pid = driven(lab, "local", "deaf")
    job = psutil.Process(pid)
    assert driver.stdout is not None
    driver.send_signal(number)
    assert driver.stdout.readline() == "asked to stop\n"
    began = time.monotonic()
    driver.send_signal(number)
    assert driver.wait(5) == 130
    assert time.monotonic() - began < 1.0
    assert left_of([job], GONE_S) == []
    driver.stdout.close()


@pytest.mark.ray
@pytest.mark.parametrize("how", [pytest.param("second signal", marks=pytest.mark.slow), "killed"])
def test_nothing_of_the_job_and_of_ray_is_left_when_the_driver_ends_at_once(
    lab: Lab, how: str
) -> None:
    driver, pid = driven(lab, "ray", "deaf")
    job = psutil.Process(pid)
    rays = psutil.Process(driver.pid).children(recursive=True)
    folders = list(Path("/tmp").glob(f"irsi-{driver.pid}-*"))
    assert rays
    assert folders
    if how == "killed":
        driver.kill()
    else:
        assert driver.stdout is not None
        driver.send_signal(signal.SIGINT)
        assert select.select([driver.stdout], [], [], 10.0)[0]
        assert driver.stdout.readline() == "asked to stop\n"
        driver.send_signal(signal.SIGINT)
        assert driver.wait(5) == 130
    assert left_of([job], GONE_S) == []
    assert left_of(rays, GONE_S) == []
    output = driver.communicate()[0]
    assert output == "", "a session prints nothing"
    assert not [folder for folder in folders if folder.exists()]
