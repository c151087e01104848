"""Starting processes outside this process's own group.

What signals a whole group (a terminal's Ctrl-C, `timeout`, a scheduler) then reaches the driver
alone, which stops everything in good order. Ray 2.60 starts its processes in the group of the
driver, and a SIGTERM to the group took the cluster from under it.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def another_process_group() -> Iterator[None]:
    """Processes started inside are in a group of their own; this one comes back to its old group.

    Does nothing where the system refuses it, as for a session leader (a container's first process).
    """
    ours = os.getpgrp()
    read_end, write_end = os.pipe()
    holder = os.fork()  # a group needs a member while the driver is not in it
    if holder == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    try:
        moved = _move(holder)
        try:
            yield
        finally:
            if moved:
                _return(ours)
    finally:
        os.close(write_end)
        os.waitpid(holder, 0)


def _move(group: int) -> bool:
    try:
        os.setpgid(group, group)
        os.setpgid(0, group)
    except OSError:
        return False
    return True


def _return(group: int) -> None:
    try:
        os.setpgid(0, group)
    except OSError:  # the old group had no other member: make it anew
        os.setpgid(0, 0)
