"""Nothing of a command's tree survives, whatever dies first. Real processes only."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infrarsi.node.supervised import PROGRAM

TREES = {
    "background process": "sleep 1000 & echo $! >&3; sleep 1000 & echo $! >&3; wait",
    "ranks in their own sessions": (
        "for rank in 0 1; do setsid -f bash -c 'echo $$ >&3; exec sleep 1000'; done; sleep 1000"
    ),
    "double fork": "( (echo $BASHPID >&3; exec sleep 1000) & ); echo $$ >&3; exec sleep 1000",
    "deaf to SIGTERM": (
        "trap '' TERM; echo $$ >&3; (trap '' TERM; echo $BASHPID >&3; while :; do sleep 1; done)"
    ),
    "fork in a fork": (
        'echo $$ >&3; setsid -f bash -c \'setsid -f bash -c "echo \\$\\$ >&3; exec sleep 1000"; '
        "exec sleep 1000'; sleep 1000"
    ),
}
PIDS = 2  # each of these trees names two of its processes
GONE_S = 2.0


@dataclass
class Running:
    """A supervised command, and the processes that it named."""

    process: subprocess.Popen[bytes]
    events: int
    pids: list[int]

    def guard(self) -> int:
        """The process that does the work: the only child of the front."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return int(Path(path).read_text().split()[0])

    def end(self) -> dict[str, Any]:
        """The last event, once the supervisor has ended."""
        with os.fdopen(self.events) as file:
            last = file.read().splitlines()[-1]
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        return json.loads(last)  # type: ignore[no-any-return]


def started(command: str, *options: str, pids: int = PIDS) -> Running:
    """Start `command`, which writes `pids` process ids to file descriptor 3."""
    events, events_end = os.pipe()
    read, write = os.pipe()
    script = f"exec 3>/proc/{os.getpid()}/fd/{write}; {command}"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), f"--result-fd={events_end}", "--grace=0.5",
         *options, "--", "bash", "-c", script],
        stdin=subprocess.PIPE,
        pass_fds=(events_end,),
        start_new_session=True,
    )  # fmt: skip
    os.close(events_end)
    named: list[int] = []
    text = b""
    while len(named) < pids:
        text += os.read(read, 100)
        named = [int(word) for word in text.split()] if text.endswith(b"\n") else []
    os.close(read)
    os.close(write)
    return Running(process, events, named)


def is_gone(pid: int, within_s: float = GONE_S) -> bool:
    """Whether the process ends in time; a process that nobody reaped counts as ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


@pytest.fixture(params=TREES)
def tree(request: pytest.FixtureRequest) -> Iterator[Running]:
    running = started(TREES[request.param])
    yield running
    for pid in running.pids:
        if not is_gone(pid, 0.0):
            os.kill(pid, signal.SIGKILL)
    assert running.process.stdin is not None
    running.process.stdin.close()
    running.process.wait()


def assert_gone(running: Running) -> None:
    deadline = time.monotonic() + GONE_S
    left = [p for p in running.pids if not is_gone(p, max(0.0, deadline - time.monotonic()))]
    assert not left


def test_nothing_is_left_when_the_owner_dies(tree: Running) -> None:
    assert tree.process.stdin is not None
    tree.process.stdin.close()  # what the kernel does to a dead owner
    assert_gone(tree)
    assert tree.end()["why"] == "owner_died"


def test_nothing_is_left_when_the_front_is_killed_and_then_the_owner_dies(tree: Running) -> None:
    os.kill(tree.process.pid, signal.SIGKILL)  # Ray kills a worker's direct children
    assert tree.process.stdin is not None
    tree.process.stdin.close()
    assert_gone(tree)


def test_nothing_is_left_when_the_guard_is_killed(tree: Running) -> None:
    os.kill(tree.guard(), signal.SIGKILL)
    assert_gone(tree)
    assert tree.end()["event"] == "lost"


def test_nothing_is_left_after_sigterm(tree: Running) -> None:
    tree.process.terminate()
    assert_gone(tree)
    assert tree.end()["why"] == "stopped"


def test_nothing_is_left_when_the_watched_process_ends() -> None:
    with subprocess.Popen(["sleep", "1000"]) as watched:
        running = started("echo $$ >&3; exec sleep 1000", f"--watch={watched.pid}", pids=1)
        watched.kill()
    assert_gone(running)
    assert running.end()["why"] == "owner_died"


def test_what_had_to_be_killed_is_named() -> None:
    running = started("trap '' TERM; echo $$ >&3; while :; do sleep 1; done", pids=1)
    running.process.terminate()
    killed = running.end()["killed"]
    assert any(f"(pid {running.pids[0]})" in name and "bash" in name for name in killed)


def test_a_daemon_left_behind_by_a_command_that_ended_is_killed_and_named() -> None:
    running = started("setsid -f bash -c 'echo $$ >&3; exec sleep 1000'; exit 7", pids=1)
    end = running.end()
    assert (end["why"], end["exit_code"]) == ("finished", 7)
    assert end["killed"] == [f"sleep 1000 (pid {running.pids[0]})"]
    assert is_gone(running.pids[0], 0.0)


def test_a_command_that_outlives_its_time_out_is_ended() -> None:
    running = started("echo $$ >&3; exec sleep 1000", "--timeout=0.2", pids=1)
    assert running.end()["why"] == "timeout"
    assert is_gone(running.pids[0], 0.0)


def test_the_folders_to_remove_go_with_a_dead_owner_only(tmp_path: Path) -> None:
    for name, owner_dies in (("kept", False), ("gone", True)):
        folder = tmp_path / name
        (folder / "inner").mkdir(parents=True)
        running = started("echo $$ >&3; exec sleep 1000", f"--remove={folder}", pids=1)
        assert running.process.stdin is not None
        if owner_dies:
            running.process.stdin.close()
        else:
            running.process.stdin.write(b"s")
            running.process.stdin.flush()
        running.end()
        assert folder.exists() != owner_dies


def test_a_command_that_ends_is_reported_at_once_with_its_signal() -> None:
    began = time.monotonic()
    running = started("echo $$ >&3; kill -SEGV $$", pids=1)
    end = running.end()
    assert end["exit_code"] == -signal.SIGSEGV
    assert end["seconds"] < time.monotonic() - began < end["seconds"] + 1.0


def test_a_shared_memory_segment_of_the_tree_is_removed_and_a_strangers_is_left() -> None:
    stranger = Path(f"/dev/shm/psm_stranger_{os.getpid()}")
    own = f"torch_$$_{os.getpid()}"
    running = started(f"touch /dev/shm/{own}; echo $$ >&3; exec sleep 1000", pids=1)
    mine = Path(f"/dev/shm/torch_{running.pids[0]}_{os.getpid()}")
    try:
        stranger.touch()
        running.process.terminate()
        segments = running.end()["segments"]
        assert mine.name in segments["removed"]
        assert stranger.name in segments["left"]
        assert stranger.exists()
        assert not mine.exists()
    finally:
        stranger.unlink()
        mine.unlink(missing_ok=True)


def test_a_segment_that_a_process_has_mapped_is_known_by_that(tmp_path: Path) -> None:
    name = f"job_{os.getpid()}"
    program = tmp_path / "mapper.py"
    program.write_text(
        "import mmap, os, time\n"
        f"f = open('/dev/shm/{name}', 'w+b'); f.truncate(4096)\n"
        "m = mmap.mmap(f.fileno(), 4096)\n"
        "os.write(3, b'%d\\n' % os.getpid())\n"
        "time.sleep(1000)\n"
    )
    running = started(f"exec {sys.executable} -S {program}", pids=1)
    running.process.terminate()
    assert name in running.end()["segments"]["removed"]
    assert not Path(f"/dev/shm/{name}").exists()
