"""The command's output, kept within bounds and without secrets."""

import contextlib
import threading
from collections import deque
from pathlib import Path
from typing import BinaryIO

from infrarsi.contract.secrecy import HIDDEN, without_secrets

_CHUNK = 1 << 16
_LONGEST = 512  # no secret that is known by its form or name takes more, its name included


class CapturedLog:
    """Reads a pipe to its end in a thread and writes it to a file.

    The file gets the first and the last half of `max_bytes`, with a line between them that says
    how much was left out. Values in `secrets` are replaced, and what looks like a key or token.
    `close` must be called.
    """

    def __init__(
        self, source: BinaryIO, path: Path, *, max_bytes: int, secrets: tuple[str, ...] = ()
    ) -> None:
        self._source = source
        self._path = path
        self._half = max_bytes // 2
        self._secrets = tuple(secret.encode() for secret in secrets)
        self._overlap = max([_LONGEST, *map(len, self._secrets)])
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._left_out = 0
        self._file = path.open("wb")
        self._head_bytes = 0
        self._fault: OSError | None = None
        self._thread = threading.Thread(target=self._read, name="captured-log", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for the end of the pipe and complete the file; may be called twice.

        Raises OSError if the disk did not take the output, which the command did not notice.
        """
        self._thread.join(timeout_s)
        if self._file.closed:
            return
        if self._fault is not None:
            with contextlib.suppress(OSError):  # it would flush once more
                self._file.close()
            raise self._fault
        if self._left_out:
            self._file.write(b"\n... %d bytes were left out here ...\n" % self._left_out)
        self._file.writelines(self._tail)
        self._file.close()
        self._tail.clear()

    def tail(self, max_bytes: int) -> str:
        """The end of the file; to be called after `close`."""
        with self._path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - max_bytes))
            return file.read().decode(errors="replace")

    def _read(self) -> None:
        rest = b""
        while data := self._source.read1(_CHUNK):  # type: ignore[attr-defined]  # a BufferedReader
            whole, newline, rest = (rest + data).rpartition(b"\n")
            whole = self._clean(whole + newline)
            if len(rest) > _CHUNK:  # a line without end; a secret may have begun at its end
                rest = self._clean(rest)
                whole, rest = whole + rest[: -self._overlap], rest[-self._overlap :]
            self._keep(whole)
        self._keep(self._clean(rest))
        self._source.close()

    def _clean(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, HIDDEN.encode())
        text = data.decode("latin-1")  # each byte a letter, so that all others stay as they are
        clean = without_secrets(text)
        return data if clean == text else clean.encode("latin-1")

    def _keep(self, data: bytes) -> None:
        room = self._half - self._head_bytes
        if room > 0:
            self._write(data[:room])
            self._head_bytes += len(data[:room])
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._half:
            dropped = len(self._tail.popleft())
            self._tail_bytes -= dropped
            self._left_out += dropped

    def _write(self, data: bytes) -> None:
        """A disk that is full must not stop the reading, or the command would wait for ever."""
        if self._fault is not None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as fault:
            self._fault = fault
