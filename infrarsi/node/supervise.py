"""Run a command so that nothing of its process tree outlives it, whatever dies first.

    supervise.py [--result-fd N] [--grace S] [--timeout S] [--watch PID] [--remove PATH]... --
        COMMAND...

A stand-alone program of the standard library: it is started by path, never imported by the job.
The owner keeps the write end of this program's stdin: any byte means stop, end-of-file means that
the owner died; so does the end of the process `--watch`. Then, on SIGTERM, SIGINT, SIGHUP and
after `--timeout`, the command's process group gets SIGTERM, and after `--grace` seconds every
descendant gets SIGKILL. Descendants that are left when the command ends by itself are killed too.
`--remove` paths are deleted if the owner died.
To `--result-fd` go two JSON lines, `started` and `ended` (see `_Guard.run`).

Two processes do it, because Ray kills the direct children and the process group of a worker that
exits: the front only waits, the guard in a session of its own does the work. Both are child
subreapers, so that ranks in their own sessions and double forks stay descendants, also if the
guard itself is killed.
"""

import argparse
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_S = 5.0  # how often the tree's process ids are noted, to know later who made a segment
SETTLE_S = 0.5  # what helpers (compile workers, trackers) get to end after the command
SWEEP_S = 30.0  # a process in an uninterruptible wait cannot be killed; it is reported instead
SHM = "/dev/shm"


def descendants(root: int) -> list[int]:
    """Process ids of the whole tree under `root`, zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rsplit(b")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if fields[0] not in (b"Z", b"X"):
                children.setdefault(int(fields[1]), []).append(int(entry))
    found, stack = [], [root]
    while stack:
        for child in children.get(stack.pop(), []):
            found.append(child)
            stack.append(child)
    return found


def describe(pid: int) -> str:
    """`command line (pid N)`, cut to what fits one line of a report."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"{words[:100] or '?'} (pid {pid})"


def sample(root: int) -> set[int]:
    """Process ids under `root` by the kernel's child lists: cheap, main threads' children only."""
    found: set[int] = set()
    stack = [root]
    while stack:
        pid = stack.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = [int(word) for word in file.read().split()]
        except (OSError, ValueError):
            continue
        stack += [child for child in children if child not in found]
        found.update(children)
    return found


def sweep(root: int) -> tuple[list[str], list[str]]:
    """Kill all descendants of `root`; returns who was killed, and who could not be killed."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + SWEEP_S
    while True:
        reap()
        left = descendants(root)
        if not left:
            return list(killed.values()), []
        if time.monotonic() > deadline:
            return list(killed.values()), [describe(pid) for pid in left]
        for pid in left:
            killed.setdefault(pid, describe(pid))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def reap() -> dict[int, int]:
    """Collect ended children; process id to exit code (negative: the signal)."""
    ended: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return ended
            ended[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return ended


def segments() -> set[str]:
    """Names of the shared-memory segments of this user."""
    names = set()
    try:
        with os.scandir(SHM) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    names.add(entry.name)
    except OSError:
        return names
    return names


def mapped(pids: list[int]) -> set[str]:
    """Names of the segments that any of `pids` has mapped."""
    names = set()
    prefix = f"{SHM}/"
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", errors="replace") as file:
                for line in file:
                    at = line.find(prefix)
                    if at >= 0:
                        names.add(line[at + len(prefix) :].rstrip("\n").removesuffix(" (deleted)"))
        except OSError:
            continue
    return names


def report(options: argparse.Namespace, **event: object) -> None:
    """One JSON line to the owner; dropped if the owner is gone."""
    if options.result_fd is not None:
        with contextlib.suppress(OSError):
            os.write(options.result_fd, json.dumps(event).encode() + b"\n")


class _Guard:
    """The process that owns the command's tree."""

    def __init__(self, options: argparse.Namespace, command: list[str]) -> None:
        self.options = options
        self.command = command
        self.seen: set[int] = set()
        self.exit_code: int | None = None
        self.seconds: float | None = None
        self.signalled: list[int] = []
        self.segments_before = segments()
        self.segments_seen: set[str] = set()
        self.watched = _handle_of(options.watch) if options.watch else None
        self.wake, wake_write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.signalled.append(number))
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Report `started`, then `ended` with why, exit_code, seconds, killed, survived, segments.

        `why` is one of finished, stopped, timeout, owner_died; `segments` maps `removed` and
        `left` to shared-memory segments that appeared during the run.
        """
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, start_new_session=True
        )
        report(self.options, event="started", pid=self.process.pid)
        why = self._watch()
        if why != "finished":
            self._ask_to_end()
        self._settle(SETTLE_S if why == "finished" else self.options.grace)
        left = descendants(os.getpid())
        self.seen.update(left)
        self.segments_seen |= mapped(left)
        killed, survived = sweep(os.getpid())
        removed, stay = self._clear_segments()
        if why == "owner_died":
            for path in self.options.remove:
                shutil.rmtree(path, ignore_errors=True)
        report(
            self.options,
            event="ended",
            why=why,
            exit_code=self.exit_code,
            seconds=self.seconds,
            killed=killed,
            survived=survived,
            segments={"removed": removed, "left": stay},
        )

    def _watch(self) -> str:
        owner = [0] if self.watched is None else [0, self.watched]
        while True:
            self._reap()
            if self.exit_code is not None:
                return "finished"
            if self.signalled:
                return "stopped"
            wait = SAMPLE_S
            if self.options.timeout:
                left = self.started + self.options.timeout - time.monotonic()
                if left <= 0:
                    return "timeout"
                wait = min(wait, left)
            ready, _, _ = select.select([*owner, self.wake], [], [], wait)
            if self.wake in ready:
                os.read(self.wake, 4096)
            if self.watched in ready:
                return "owner_died"
            if 0 in ready:
                return "stopped" if os.read(0, 64) else "owner_died"
            if not ready:
                self.seen |= sample(os.getpid())

    def _reap(self) -> None:
        for pid, code in reap().items():
            self.seen.add(pid)
            if pid == self.process.pid:
                self.exit_code = self.process.returncode = code
                self.seconds = time.monotonic() - self.started

    def _ask_to_end(self) -> None:
        left = descendants(os.getpid())
        self.seen.update(left)
        self.segments_seen |= mapped(left)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)

    def _settle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while descendants(os.getpid()) and time.monotonic() < deadline:
            select.select([self.wake], [], [], 0.02)
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake, 4096)
            self._reap()
        self._reap()

    def _clear_segments(self) -> tuple[list[str], list[str]]:
        """Remove new segments that are known to be this tree's; the rest is left and reported."""
        removed: list[str] = []
        left: list[str] = []
        for name in sorted(segments() - self.segments_before):
            maker = name.split("_")[1] if name.startswith("torch_") and name.count("_") > 1 else ""
            known = name in self.segments_seen or (maker.isdigit() and int(maker) in self.seen)
            try:
                if known:
                    os.unlink(f"{SHM}/{name}")
            except OSError:
                known = False
            (removed if known else left).append(name)
        return removed, left


def _handle_of(pid: int) -> int | None:
    """Something that is readable once the process has ended; None on kernels before 5.3."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return os.open("/dev/null", os.O_RDONLY)  # it has ended: readable at once
    except OSError:
        return None


def _front(guard: int, options: argparse.Namespace) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(guard, signal.SIGTERM))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == guard:
            break
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        killed, survived = sweep(os.getpid())
        report(options, event="lost", exit_code=code, killed=killed, survived=survived)
    return 0 if code == 0 else 1


def main(arguments: list[str]) -> int:
    """The program; 0 once the tree is gone and reported, 1 if the guard itself was lost."""
    split = arguments.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--result-fd", type=int)
    parser.add_argument("--grace", type=float, default=1.0)
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--watch", type=int)
    parser.add_argument("--remove", action="append", default=[])
    options = parser.parse_args(arguments[:split])
    if options.result_fd is not None:
        os.set_inheritable(options.result_fd, False)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = os.fork()
    if guard:
        return _front(guard, options)
    os.setsid()
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # fork does not inherit it
    _Guard(options, arguments[split + 1 :]).run()
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
