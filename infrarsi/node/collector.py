"""The harness's side of the witness: receives, stamps and keeps what each rank says.

The harness's clock decides speed. A line's stamp is when the kernel took it from its process
(`stamps`), so it does not matter that the sockets are looked at only every few milliseconds; where
the kernel gives no stamps, the thread waits at the sockets and stamps what it reads. Lines are kept
in `witness/rank<R>.jsonl` of the receipt folder as they came, each with its stamp in front;
`infrarsi.node.rank_files` turns such files into `RankRecord`s.
"""

import json
import os
import selectors
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from infrarsi.contract.execution import RunKind
from infrarsi.contract.record import RankRecord
from infrarsi.node.rank_files import load_ranks, mark, stamped
from infrarsi.node.stamps import ask_for_stamps, receive

SOCKET_VARIABLE = "INFRARSI_WITNESS_SOCK"
INJECT_DIR = Path(__file__).resolve().parent.parent / "witness" / "inject"
_STEADY_WINDOW = 15  # step times that the live median is taken over
_LOOK_EVERY_S = 0.01  # a waiting reader would be woken by every line, on the rank's account
BEAT, LOOK = b".", b"*"  # as in the guest's wire: the end of an ordinary step, of a close look
_DRAIN_S = 5.0  # a process that outlives the command must not hold up its receipt


@dataclass(frozen=True)
class WitnessConfig:
    """What each rank is told over the socket when its record opens.

    `key` (hex) chooses the close looks of a timed run. `roots` are the folders that the job may
    write to; a path opened for writing elsewhere is noted in the record.
    """

    key: str
    kind: RunKind
    optimizer_steps: int
    ends_by: str
    roots: tuple[str, ...] = ()

    def to_line(self) -> bytes:
        """The JSON line that the guest reads."""
        fields = {
            "key": self.key,
            "kind": str(self.kind.value),
            "optimizer_steps": self.optimizer_steps,
            "ends_by": self.ends_by,
            "roots": [os.path.realpath(root) for root in self.roots],
        }
        return json.dumps(fields).encode() + b"\n"


@dataclass(frozen=True)
class WitnessProgress:
    """What is known while the job runs; times are seconds since `start_clock`.

    `steps`: optimizer steps that every rank seen so far has finished. `step_time_s`: median of the
    last steady step times of the lowest rank (first two steps and close looks left out), None
    before there are any; `steady_steps` says over how many it could be taken. `last_beat_s`:
    arrival of the latest line of any rank, None before the first. `ranks`: ranks that opened a
    record; `sealed`: how many of them sent their end line.
    """

    steps: int = 0
    step_time_s: float | None = None
    steady_steps: int = 0
    last_beat_s: float | None = None
    ranks: int = 0
    sealed: int = 0


@dataclass
class _Rank:
    """One connection that said hello."""

    connection: socket.socket
    rank: int
    file: BinaryIO
    steps: int = 0
    previous_s: float | None = None
    steady: deque[float] = field(default_factory=lambda: deque(maxlen=_STEADY_WINDOW))
    steady_count: int = 0
    ended: bool = False
    open: bool = True
    pid: int = 0
    unwritten: str = ""
    last_s: float = 0.0

    def beat(self, now: float, *, look: bool) -> None:
        """Follow the live figures: a step ended."""
        self.steps += 1
        if self.previous_s is not None and self.steps > 2 and not look:
            self.steady.append(now - self.previous_s)
            self.steady_count += 1
        self.previous_s = now

    def keep(self, text: bytes) -> None:
        """Write a stamped line; a disk that does not take it costs the rest of the record."""
        if self.unwritten:
            return
        try:
            self.file.write(text)
        except OSError as exc:
            self.unwritten = f"the record could not be written: {exc.strerror}"

    def flush(self, *, last: bool = False) -> None:
        """Hand what was kept to the disk; with `last` the file is closed."""
        try:
            self.file.close() if last else self.file.flush()
        except OSError as exc:
            self.unwritten = self.unwritten or f"the record could not be written: {exc.strerror}"


class Collector:
    """Receives the witness records of one execution on this node.

    A context manager: entering makes the socket and starts the thread, leaving stops both and
    removes the socket; the files stay. `start_clock` must be called when the command is spawned
    (until then stamps count from entering). All methods may be called from any thread.
    """

    def __init__(self, receipt_dir: Path, config: WitnessConfig) -> None:
        self._folder = receipt_dir / "witness"
        self._receipt_dir = receipt_dir
        self._config = config
        self._lock = threading.Lock()
        self._ranks: list[_Rank] = []
        self._buffers: dict[socket.socket, bytes] = {}
        self._by_connection: dict[socket.socket, _Rank] = {}
        self._last_s: float | None = None
        self._start = time.monotonic()
        self._drain_s = _DRAIN_S
        self._stop_at: float | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Collector":
        self._folder.mkdir(parents=True, exist_ok=True)
        self._dir = tempfile.mkdtemp(prefix="irw", dir=_short_temp())
        self._path = os.path.join(self._dir, "s")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(self._path)
        self._server.listen(128)
        self._server.setblocking(False)
        self._wake_read, self._wake_write = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="witness-collector", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    def start_clock(self) -> None:
        """Make now the zero of every stamp; to be called right before the command is spawned."""
        self._start = time.monotonic()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The variables to set for the command, given the environment it would have without us."""
        behind = base.get("PYTHONPATH")
        prefix = str(INJECT_DIR)
        return {
            "PYTHONPATH": prefix + os.pathsep + behind if behind else prefix,
            SOCKET_VARIABLE: self._path,
        }

    def progress(self) -> WitnessProgress:
        """Live state; does not block."""
        with self._lock:
            if not self._ranks:
                return WitnessProgress(last_beat_s=self._last_s)
            lowest = min(self._ranks, key=lambda rank: rank.rank)
            return WitnessProgress(
                steps=min(rank.steps for rank in self._ranks),
                step_time_s=statistics.median(lowest.steady) if lowest.steady else None,
                steady_steps=lowest.steady_count,
                last_beat_s=self._last_s,
                ranks=len(self._ranks),
                sealed=sum(rank.ended for rank in self._ranks),
            )

    def finish(self) -> None:
        """Read what the ended command left in the sockets, then close them; may be called twice.

        Takes at most 5 s, and that long only if a process that has a record is still alive.
        """
        if self._thread is None:
            return
        self._stop_at = time.monotonic() + self._drain_s
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._thread = None
        for rank in self._ranks:
            rank.flush(last=True)
        for connection in list(self._buffers):
            connection.close()
        self._selector.close()
        self._server.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        shutil.rmtree(self._dir, ignore_errors=True)

    def ranks(self) -> tuple[RankRecord, ...]:
        """The records of the ranks that trained, by rank; finishes first."""
        self.finish()
        unwritten = {rank.pid: rank.unwritten for rank in self._ranks if rank.unwritten}
        return tuple(
            replace(rank, sealed=False, problems=(*rank.problems, unwritten[rank.pid]))
            if rank.pid in unwritten
            else rank
            for rank in load_ranks(self._receipt_dir)
        )

    def _serve(self) -> None:
        while True:
            ready = self._selector.select(self._patience())
            for key, _ in ready:
                if key.fileobj is self._server:
                    self._accept()
                elif key.fileobj == self._wake_read:
                    os.read(self._wake_read, 64)
            found = [self._receive(connection) for connection in list(self._buffers)]
            if self._stop_at is None or ready or any(found):
                continue
            if not self._buffers or time.monotonic() >= self._stop_at:
                return

    def _patience(self) -> float | None:
        """How long to wait at the server's socket before the connections are looked at again."""
        if self._buffers:
            return _LOOK_EVERY_S
        return 0.0 if self._stop_at is not None else None

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.setblocking(False)
        ask_for_stamps(connection)
        self._buffers[connection] = b""

    def _receive(self, connection: socket.socket) -> bool:
        """Take in all that has come; whether there was anything."""
        came = False
        while True:
            try:
                data, sent = receive(connection)
            except BlockingIOError:
                break
            except OSError:
                data, sent = b"", None
            if not data:
                self._drop(connection)
                return True
            came = True
            self._take(connection, data, sent)
        if came:
            self._release()
        return came

    def _take(self, connection: socket.socket, data: bytes, sent: float | None) -> None:
        rank = self._by_connection.get(connection)
        now = (time.monotonic() if sent is None else sent) - self._start
        if rank is not None:
            self._wait_at(connection, stamped=sent is not None)
            now = rank.last_s = max(now, rank.last_s)
        with self._lock:
            self._last_s = max(now, self._last_s or now)
            if rank is not None and data in (BEAT, LOOK):
                rank.keep(mark(now))
                rank.beat(now, look=data == LOOK)
                return
            *lines, rest = (self._buffers[connection] + data).split(b"\n")
            self._buffers[connection] = rest
            for line in lines:
                if rank is None:
                    rank = self._greet(connection, line, now)
                    continue
                rank.keep(stamped(line, now))
                self._follow(rank, line, now)

    def _wait_at(self, connection: socket.socket, *, stamped: bool) -> None:
        """Without the kernel's stamps, be woken by this connection from now on."""
        if not stamped and connection not in self._selector.get_map():
            self._selector.register(connection, selectors.EVENT_READ)

    def _greet(self, connection: socket.socket, line: bytes, now: float) -> _Rank | None:
        """Open the file of a process that said hello, and tell it what it has to know."""
        hello = _object(line)
        if hello.get("k") != "hello":
            return None
        number = int(hello.get("rank", 0))
        copies = sum(rank.rank == number for rank in self._ranks)
        name = f"rank{number}.jsonl" if not copies else f"rank{number}.{copies}.jsonl"
        try:
            file = (self._folder / name).open("wb")
        except OSError as exc:  # without a configuration the process goes on unwitnessed
            _send(connection, f"the record cannot be opened: {exc.strerror}\n".encode())
            return None
        rank = _Rank(connection, number, file, pid=int(hello.get("pid", 0)))
        rank.keep(stamped(line, now))
        self._ranks.append(rank)
        self._by_connection[connection] = rank
        _send(connection, self._config.to_line())
        return rank

    def _follow(self, rank: _Rank, line: bytes, now: float) -> None:
        """Keep the live figures; the file alone is what is judged."""
        head = line[:80]
        if b'"k":"head"' in head:
            rank.previous_s = now
        elif b'"k":"end"' in head:
            rank.ended = True

    def _release(self) -> None:
        """Let sealed ranks leave together, so that none pulls the network from under another."""
        live = [rank for rank in self._ranks if rank.open]
        if live and all(rank.ended for rank in live):
            for rank in live:
                _send(rank.connection, b"bye\n")

    def _drop(self, connection: socket.socket) -> None:
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
        connection.close()
        rest = self._buffers.pop(connection)
        rank = self._by_connection.pop(connection, None)
        if rank is not None:
            if rest:
                rank.keep(stamped(rest, self._last_s or 0.0))
            rank.open = False
            rank.flush()
            self._release()


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.send(data)
    except OSError:
        return  # the process is gone; its record says how far it came


def _short_temp() -> str:
    """A folder whose paths fit into a socket address (107 bytes)."""
    return "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()
