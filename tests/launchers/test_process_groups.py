"""Signals to the driver's group do not reach what it started in another one."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, subprocess, sys
from launchers.process_groups import another_process_group
before = os.getpgrp()
with another_process_group():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
signal.signal(signal.SIGTERM, lambda *_: None)
print(before == os.getpgrp(), os.getpgid(child.pid) != before, flush=True)
input()
print(child.poll(), flush=True)
child.stdin.close()
child.wait()
"""


def test_the_driver_comes_back_and_its_child_stays_out_of_reach() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=False,
        process_group=0,
    )
    assert driver.stdout is not None
    assert driver.stdin is not None
    assert driver.stdout.readline() == "True True\n"
    os.killpg(driver.pid, signal.SIGTERM)
    driver.stdin.write("\n")
    driver.stdin.flush()
    assert driver.stdout.readline() == "None\n"
    driver.stdin.close()
    driver.stdout.close()
    assert driver.wait() == 0


def test_a_session_leader_starts_its_processes_as_before() -> None:
    program = PROGRAM.replace(
        "print(before == os.getpgrp(), os.getpgid(child.pid) != before",
        "print(before == os.getpgrp(), True",
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="\n",
        capture_output=True,
        text=True,
        start_new_session=True,
        check=True,
    )
    assert done.stdout == "True True\nNone\n"


SIGNALLED = """
import os, signal, sys
from launchers.process_groups import another_process_group
count = 0
def heard(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, heard)
with another_process_group():
    print("away", flush=True)
    while not count:
        signal.sigtimedwait([], 0.05)
print("back", flush=True)
input()
print(count, flush=True)
"""


def test_a_signal_to_the_group_meanwhile_reaches_the_driver_once() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", SIGNALLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert driver.stdout is not None
    assert driver.stdin is not None
    assert driver.stdout.readline() == "away\n"
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.stdout.readline() == "back\n"
    driver.stdin.write("\n")
    driver.stdin.flush()
    assert driver.stdout.readline() == "1\n"
    driver.stdin.close()
    driver.stdout.close()
    assert driver.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(driver.pid, 0)
