"""The line to the harness: chained JSON lines over a Unix socket that never blocks a step.

Sequenced packets and not a stream, since the kernel stamps packets: the harness then need not wait
at the socket, and a send wakes nobody. A packet of one character is a beat, which takes no time to
make; all others have no meaning of their own, and lines may span them.
"""

import hashlib
import json
import socket
import threading
import time

PACKET = 1 << 15  # bytes; a packet is sent whole or not at all
MAX_UNSENT = 32 << 20  # a harness that reads nothing for so long is gone
BEAT, LOOK = b".", b"*"  # the end of an ordinary step, of a close look
as_text = json.JSONEncoder(separators=(",", ":"), default=str).encode


class Channel(object):
    """One process's connection; every line carries its number and a running hash."""

    def __init__(self, path, hello):
        self.lock = threading.RLock()
        self.chain, self.number, self.unsent = b"", 0, b""
        self.owed = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.socket.settimeout(10.0)
            self.socket.connect(path)
            self.socket.sendall(json.dumps(dict(hello, k="hello")).encode() + b"\n")
            self.config = json.loads(self._read_line())
            self.socket.setblocking(False)
        except Exception:
            self.socket.close()
            raise

    def _read_line(self):
        """The next line from the harness, within the socket's time-out."""
        data = self.socket.recv(1 << 16)  # one packet a line
        if not data:
            raise EOFError("the harness closed its socket")
        return data

    def beat(self, look):
        """Tell that a step ended; one that does not go out now goes first next time, late."""
        beat = LOOK if look else BEAT
        try:
            if self.owed:
                raise BlockingIOError
            self.socket.send(beat)
        except BlockingIOError:
            self.owed += beat

    def line(self, kind, fields, now=True):
        """Send one line; with `now` false it waits for the next one."""
        self.text(kind, as_text(fields)[1:-1], now)

    def text(self, kind, members, now=True):
        """The same of members that are JSON text already, without the braces."""
        with self.lock:
            comma = "," if members else ""
            text = ('{"k":"%s","n":%d%s%s}' % (kind, self.number, comma, members)).encode()
            self.chain = hashlib.blake2b(self.chain + text, digest_size=8).digest()
            self.number += 1
            self.unsent += b'{"h":"%s",' % self.chain.hex().encode() + text[1:] + b"\n"
            if now:
                self.flush()

    def flush(self):
        """Hand over what fits without waiting; the rest goes first next time."""
        with self.lock:
            self._send_packets()
            if len(self.unsent) > MAX_UNSENT:
                raise OSError("the harness does not read its socket")

    def _send_packets(self):
        """Send until all is gone or, on a socket that does not wait, until it takes no more."""
        start = 0
        try:
            while self.owed:
                self.socket.send(self.owed[:1])
                self.owed = self.owed[1:]
            while start < len(self.unsent):
                start += self.socket.send(self.unsent[start : start + PACKET])
        except BlockingIOError:
            pass
        finally:
            self.unsent = self.unsent[start:]

    def drain(self, timeout_s):
        """Send everything, waiting at most so long; only at the end of a process."""
        with self.lock:
            self.socket.settimeout(timeout_s)
            self._send_packets()

    def wait_for_bye(self, timeout_s):
        """Wait until the harness has every rank's end, or for so long."""
        self.socket.settimeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline and self._read_line() != b"bye\n":
                pass
        except (OSError, EOFError):
            return

    def abandon(self):
        """Close this process's copy without a word (in a forked child, or after a fault)."""
        self.socket.close()
