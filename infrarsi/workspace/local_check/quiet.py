"""A command run to its end under the supervisor, for the last thing that it printed."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infrarsi.node.supervised import Ended, Supervised

_HIDDEN = "[withheld]"
_LAST_BYTES = (
    "import sys; d = b''\n"
    "while more := sys.stdin.buffer.read1(65536): d = (d + more)[-2000:]\n"
    "sys.stdout.buffer.write(d)"
)


def run_quietly(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    remove: Sequence[Path],
    secrets: Sequence[str] = (),
) -> tuple[Ended, str]:
    """How it ended, and the last line of its output without `secrets`, "" if it printed nothing.

    Nothing of its process tree is left on return. If this process dies meanwhile, the tree ends
    and the folders in `remove` are deleted.
    """
    supervised = Supervised(
        command,
        folder=folder,
        environment=environment,
        grace_s=2.0,
        timeout_s=timeout_s,
        remove=remove,
    )
    drain = subprocess.Popen(
        [sys.executable, "-c", _LAST_BYTES], stdin=supervised.output, stdout=subprocess.PIPE
    )
    try:
        ended = None
        while ended is None:
            ended = supervised.wait(timeout_s)
        supervised.output.close()
        lines = drain.communicate()[0].decode(errors="replace").strip().splitlines()
    finally:
        supervised.close()
        if drain.poll() is None:
            drain.kill()
            drain.wait()
    last = lines[-1] if lines else ""
    for secret in secrets:
        last = last.replace(secret, _HIDDEN)
    return ended, last
