"""Runs real jobs under the witness, as the node does."""

import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infrarsi.contract.execution import RunKind
from infrarsi.contract.record import RankRecord
from infrarsi.node.collector import (
    INJECT_DIR,
    SOCKET_VARIABLE,
    Collector,
    WitnessConfig,
    WitnessProgress,
)

KEY = "ab" * 16


@dataclass(frozen=True)
class Observed:
    """One job's end, and what its witness said."""

    exit_code: int
    stdout: str
    stderr: str
    ranks: tuple[RankRecord, ...]
    progress: WitnessProgress
    receipt: Path

    @property
    def rank(self) -> RankRecord:
        """The only rank's record."""
        assert len(self.ranks) == 1, (self.ranks, self.stderr)
        return self.ranks[0]


Watch = Callable[..., Observed]


def plain_environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = "1"
    return env


class Nursery:
    """A process with torch in it that forks jobs; its socket is a link to each collector's."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="irn", dir="/tmp")
        self.link = os.path.join(self.folder.name, "s")
        os.symlink("/dev/null", self.link)
        env = {**plain_environment(), "PYTHONPATH": str(INJECT_DIR), SOCKET_VARIABLE: self.link}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("job_nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )

    def run(self, folder: Path, argv: list[str], path: str) -> tuple[int, str, str]:
        os.unlink(self.link)
        os.symlink(path, self.link)
        job = {"folder": str(folder), "argv": argv}
        job.update({name: str(folder / name) for name in ("stdout", "stderr")})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        return status, (folder / "stdout").read_text(), (folder / "stderr").read_text()

    def close(self) -> None:
        self.process.communicate()
        self.folder.cleanup()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="session")
def watch(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Runs the text of a job under the witness: `watch(text, steps=.., kind=.., ends_by=..)`.

    With `command` it is a fresh process of its own, else one forked after torch's import.
    """
    numbers = itertools.count()

    def run(
        text: str,
        *arguments: str,
        steps: int = 4,
        kind: str = "timed",
        ends_by: str = "job",
        command: tuple[str, ...] | None = None,
    ) -> Observed:
        folder = tmp_path_factory.mktemp(f"job{next(numbers)}")
        (folder / "job.py").write_text(text)
        config = WitnessConfig(KEY, RunKind(kind), steps, ends_by, (str(folder), "/tmp"))
        argv = ["job.py", *arguments]
        with Collector(folder / "receipt", config) as collector:
            env = {**plain_environment(), **collector.environment({})}
            collector.start_clock()
            if command is None:
                status, stdout, stderr = nursery.run(folder, argv, env[SOCKET_VARIABLE])
            else:
                done = subprocess.run(
                    [*command, *argv], cwd=folder, env=env, capture_output=True, text=True
                )
                status, stdout, stderr = done.returncode, done.stdout, done.stderr
            ranks = collector.ranks()
            progress = collector.progress()
            return Observed(status, stdout, stderr, ranks, progress, folder / "receipt")

    return run


@pytest.fixture
def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
