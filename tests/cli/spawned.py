"""Real `infrarsi` commands in a folder of their own, and what they leave behind.

Every process that a command starts inherits a variable with a value of its own, so that what it
leaves is found in the process list whatever its parent or session is.
"""

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INFRARSI = Path(sys.executable).with_name("infrarsi")
JOBS = Path(__file__).with_name("jobs")
MARK = "INFRARSI_TEST_MARK"
SHM = Path("/dev/shm")
_LOOK_S = 0.02
GONE_S = 4.0  # a supervisor's grace, its sweep, and Ray's own daemons
Tree = dict[str, tuple[bytes, int, int]]


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What it said on stderr, insisted to be one message of ours and no traceback."""
        assert "Traceback" not in self.out + self.err, self.err
        assert self.err.startswith("infrarsi: "), self.err
        assert self.err.count("infrarsi: ") == 1, self.err
        assert self.err.count("\n  fix: ") <= 1, self.err
        return self.err


@dataclass
class Site:
    """A folder with a job in `job/`; commands run in the folder."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    pids: list[int] = field(default_factory=list)
    _commands: list["Started"] = field(default_factory=list)
    started: int = -1

    def __post_init__(self) -> None:
        self.temporary.mkdir()
        self._segments = set(os.listdir(SHM))

    @property
    def job(self) -> Path:
        """The user's project."""
        return self.folder / "job"

    @property
    def temporary(self) -> Path:
        """TMPDIR of the commands."""
        return self.folder / "tmp"

    @property
    def library(self) -> Path:
        """The user's library of experience."""
        return self.folder / "library"

    def fill(self, job: str = "waiting", **edits: tuple[str, str]) -> Path:
        """Put a job there; `edits` replace a text in a file (`train_py=("old", "new")`)."""
        shutil.copytree(JOBS / job, self.job)
        for name, (old, new) in edits.items():
            path = self.job / name.replace("_", ".")
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new))
        return self.job

    def environment(self) -> dict[str, str]:
        """The environment of the commands: the marker, no colours, a temporary folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTEST_"))}
        path = f"{INFRARSI.parent}{os.pathsep}{kept.get('PATH', '')}"
        own = {
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "PATH": path,
            "INFRARSI_LIBRARY": str(self.library),
        }
        return {**kept, **own, **self.extra}

    def start(self, *arguments: str, **options: Any) -> "Started":
        """Start `infrarsi` with these arguments, in a process group of its own."""
        process = subprocess.Popen(
            [str(INFRARSI), *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            **options,
        )
        self.pids.append(process.pid)
        self._commands.append(Started(process, self))
        return self._commands[-1]

    def infrarsi(self, *arguments: str) -> Done:
        """Run `infrarsi` with these arguments to its end."""
        return self.start(*arguments).end()

    def close(self) -> None:
        """End what a failed test left running."""
        for command in self._commands:
            command.close()
        if self.started >= 0:
            os.close(self.started)

    def runs(self) -> list[Path]:
        """The run directories, oldest first."""
        root = self.folder / ".infrarsi" / "runs"
        return sorted(root.iterdir()) if root.is_dir() else []

    def events(self) -> list[dict[str, Any]]:
        """The journal of the newest run."""
        text = (self.runs()[-1] / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def tree(self) -> Tree:
        """The user's files: content, mode and time; the draft and our own folder left out."""
        found: Tree = {}
        for path in sorted(self.job.rglob("*")):
            name = str(path.relative_to(self.job))
            if name.startswith((".infrarsi", "infrarsi.yaml", ".git")) or path.is_dir():
                continue
            status = path.stat()
            found[name] = (path.read_bytes(), status.st_mode, status.st_mtime_ns)
        return found

    def announce(self) -> None:
        """Have every execution of the job say that it has started, to `Started.until_job`."""
        pipe = self.folder / "started"
        os.mkfifo(pipe)
        self.started = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        script = self.job / "train.sh"
        script.write_text(script.read_text().replace("\nexport ", f"\npwd > {pipe}\nexport ", 1))

    def announced(self) -> bytes:
        """What executions have announced since the last call, and nothing more to come at once."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.started, 1 << 16)
        return b""

    def left(self) -> list[str]:
        """Everything of the commands that is still there after a few seconds."""
        wanted = f"{MARK}={self.mark}".encode()
        found = [
            f"process {pid}: {words}" for pid, words in _marked(wanted) if not _ends(pid, GONE_S)
        ]
        found += [f"process {pid}: {words}" for pid, words in _marked(wanted)]
        for pid in self.pids:
            found += [str(path) for path in Path("/tmp").glob(f"irsi-{pid}-*")]
        found += [str(path) for path in self.temporary.iterdir()]
        found += [f"/dev/shm/{name}" for name in _unowned(self._segments)]
        return found


class Started:
    """A command under way; its output is read as it comes."""

    def __init__(self, process: "subprocess.Popen[bytes]", site: Site) -> None:
        self._site = site
        self._announced = b""
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.texts = {process.stdout.fileno(): b"", process.stderr.fileno(): b""}
        self._open = set(self.texts)
        self._out, self._err = self.texts

    def until(self, pattern: str, timeout_s: float = 120.0) -> "Started":
        """Read on until `pattern` is in what it printed."""
        self._read(lambda: re.search(pattern, self.out) is not None, timeout_s)
        assert re.search(pattern, self.out), f"ended without {pattern!r}:\n{self.out}\n{self.err}"
        return self

    def until_job(self, execution_id: str, timeout_s: float = 120.0) -> "Started":
        """Read on until the job of that execution has started; see `Site.announce`."""
        wanted = f"/receipts/{execution_id}/".encode()
        self._read(lambda: wanted in self._announced, timeout_s)
        assert wanted in self._announced, f"ended before:\n{self.out}\n{self.err}"
        return self

    def until_there(self, parent: Path, pattern: str, timeout_s: float = 60.0) -> "Started":
        """Return once a path that matches is there; the command must not have ended by then."""
        handle = os.pidfd_open(self.process.pid)
        try:
            for _ in range(int(timeout_s / _LOOK_S)):
                if next(parent.glob(pattern), None) is not None:
                    return self
                ended = select.select([handle], [], [], _LOOK_S)[0]
                assert not ended, f"ended before {pattern} was there:\n{self.out}\n{self.err}"
        finally:
            os.close(handle)
        raise AssertionError(f"{pattern} was not there within {timeout_s} s")

    def interrupt(self, number: int = signal.SIGINT) -> "Started":
        """Ctrl-C as a terminal does it: the signal goes to the whole process group."""
        os.killpg(self.process.pid, number)
        return self

    def kill(self) -> None:
        """End the command's own process without any warning."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, timeout_s: float = 400.0) -> Done:
        """Read to the end."""
        self._read(lambda: False, timeout_s)
        code = self.process.wait(timeout_s)
        self.close()
        return Done(code, self.out, self.err)

    def close(self) -> None:
        """Kill the command if it still runs, and close its pipes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self.texts[self._out].decode()

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self.texts[self._err].decode()

    def _read(self, is_enough: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        announcing = [self._site.started] if self._site.started >= 0 else []
        while self._open and not is_enough():
            left_s = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([*self._open, *announcing], [], [], left_s)
            assert ready, f"nothing more within {timeout_s} s:\n{self.out}\n{self.err}"
            for number in ready:
                if number in announcing:
                    self._announced += self._site.announced()
                    continue
                data = os.read(number, 1 << 16)
                self.texts[number] += data
                if not data:
                    self._open.discard(number)


def _marked(wanted: bytes) -> list[tuple[int, str]]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path("/proc", entry, "environ").read_bytes()
            words = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append((int(entry), words.decode(errors="replace")[:120]))
    return found


def _ends(pid: int, timeout_s: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout_s)[0])
    finally:
        os.close(handle)


def _unowned(before: set[str]) -> list[str]:
    """New shared-memory segments that no living process has mapped (one of another test would)."""
    new = set(os.listdir(SHM)) - before
    if not new:
        return []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                maps = Path("/proc", entry, "maps").read_text(errors="replace")
            except OSError:
                continue
            new = {name for name in new if f"/dev/shm/{name}" not in maps}
    return sorted(name for name in new if (SHM / name).exists())
