"""What this machine is: processors, memory, GPUs."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from functools import cache

from infrarsi.contract import NodeInfo

_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_QUERY_S = 20.0  # nvidia-smi takes seconds on a machine without persistence mode


def local_node(
    node_id: str = "local",
    *,
    gpus: tuple[str, ...] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> NodeInfo:
    """This machine; `gpus` are the ones placed here, by default all that `environ` shows.

    A container's memory limit counts. Asks nvidia-smi once a process, where there is one.
    """
    found = _gpu_names()
    if gpus is None:
        shown = environ.get("CUDA_VISIBLE_DEVICES")
        gpus = tuple(found) if shown is None else tuple(part for part in shown.split(",") if part)
    return NodeInfo(
        node_id=node_id,
        hostname=socket.gethostname(),
        cpus=len(os.sched_getaffinity(0)),
        gpus=gpus,
        gpu_name=next(iter(found.values()), None) if gpus else None,
        memory_bytes=_memory_bytes(),
    )


def kernel_kills() -> int | None:
    """How often the kernel's out-of-memory killer has acted since boot; None where not told."""
    try:
        with open("/proc/vmstat") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return None
    return None


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


@cache
def _gpu_names() -> dict[str, str]:
    """Index to product name of every GPU of the machine."""
    if shutil.which("nvidia-smi") is None:
        return {}
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_QUERY_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if answer.returncode != 0:
        return {}
    pairs = (line.split(",", 1) for line in answer.stdout.splitlines() if "," in line)
    return {index.strip(): name.strip() for index, name in pairs}
