"""Commands in a real terminal of 100 columns, as a person sees them."""

from typing import Any

import pexpect
from spawned import INFRARSI, Site

WAIT_S = 60


def in_terminal(site: Site, *arguments: str) -> Any:
    """Start `infrarsi` in a terminal of its own."""
    child = pexpect.spawn(
        str(INFRARSI),
        list(arguments),
        cwd=str(site.folder),
        env=site.environment() | {"TERM": "xterm"},
        dimensions=(40, 100),
        timeout=WAIT_S,
        encoding="utf-8",
    )
    site.pids.append(child.pid)
    return child


def ended(child: Any) -> tuple[int, str]:
    """Read to the end; the exit code and what was shown since the last expectation."""
    child.expect(pexpect.EOF)
    text = str(child.before).replace("\r\n", "\n")
    child.close()
    assert child.signalstatus is None
    return int(child.exitstatus), text
