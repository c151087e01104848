"""When a packet was sent, by the kernel's clock: reading it late does not change its stamp.

The kernel notes when a process hands a packet to a Unix socket (`SO_TIMESTAMPNS`, which Linux
honours for datagrams and sequenced packets, and not for streams). So the harness may look at its
sockets at leisure instead of waiting at them, and a rank that sends wakes nobody: waking the
harness at every step was most of what the witness cost a job. Neither process can set that clock.
"""

import socket
import struct
import time

_SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; Python 3.11 has no name for it
_TIMESPEC = struct.Struct("qq")
_LARGEST = 1 << 18  # above the kernel's limit for one packet


def ask_for_stamps(connection: socket.socket) -> None:
    """Have the kernel stamp what is sent to this socket from now on, where it can."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return  # `receive` then finds no stamp


def receive(connection: socket.socket) -> tuple[bytes, float | None]:
    """The next packet and when it was sent, on `time.monotonic`'s scale; None where not stamped.

    Never waits: raises BlockingIOError where there is none. Empty data says that the other end is
    closed. The kernel stamps with the wall clock, whose present distance from the monotonic clock
    is taken off; a stamp later than now is now.
    """
    data, notes, _, _ = connection.recvmsg(_LARGEST, 64)
    now = time.monotonic()
    for level, kind, value in notes:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
            age = time.time() - (seconds + 1e-9 * nanoseconds)
            return data, min(now, now - age)
    return data, None
