"""The environment of the user's command.

Nothing of Ray's reaches it, no secret that was not asked for, and every execution has its own
temporary folder, free ports and compile caches.
"""

import hashlib
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.contract import ExecutionRequest, NodeInfo
from infrarsi.node.tree import WorkTree

RAY_OVERRIDES = (
    "OMP_NUM_THREADS",  # Ray sets it to num_cpus where the user has not
    "CUDA_VISIBLE_DEVICES",
    "LD_PRELOAD",
    "PYTHONBREAKPOINT",
    "PYTHONPATH",
    "GRPC_ENABLE_FORK_SUPPORT",
    "NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)
"""Variables that a Ray worker has other values of than the user; see `own_values`."""
_RAY = re.compile(r"(RAY|TUNE|__RAY)_")
_SECRET_WORDS = re.compile(
    r"keys?|apikey|accesskey|secrets?|token|password|passwd|passphrase|credentials?|auth|cookie"
    r"|dsn|webhook|pat"
)
_NOT_SECRET = re.compile(r"(?i).*(token_id|_key_(dim|size|len\w*|heads?)|num_\w*|max_\w*)$")


@dataclass(frozen=True)
class CommandEnvironment:
    """`variables` for the command, and the names that were `withheld` because they look secret."""

    variables: dict[str, str]
    withheld: tuple[str, ...]
    secrets: tuple[str, ...]


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a key, token or password.

    >>> [looks_secret(n) for n in ("HF_TOKEN", "WANDB_API_KEY", "TOKENIZERS_PARALLELISM")]
    [True, True, False]
    """
    words = re.split(r"[_\W]+", name.lower())
    return any(_SECRET_WORDS.fullmatch(word) for word in words) and not _NOT_SECRET.match(name)


def own_values(environ: Mapping[str, str]) -> dict[str, str | None]:
    """What the user's shell has for RAY_OVERRIDES; take it before Ray starts."""
    return {name: environ.get(name) for name in RAY_OVERRIDES}


def without_ray(
    environ: Mapping[str, str], own: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """`environ` of a Ray worker as the user's shell had it.

    `own` comes from `own_values` in the driver; without it (the node belongs to a cluster) what
    Ray may have set is left out.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not _RAY.match(name) and name not in RAY_OVERRIDES
    }
    kept.update({name: value for name, value in (own or {}).items() if value is not None})
    return kept


def command_environment(
    base: Mapping[str, str], request: ExecutionRequest, tree: WorkTree, node: NodeInfo
) -> CommandEnvironment:
    """What the user's command gets on one node (the witness's variables come on top)."""
    passed = {*request.env_pass, *request.overlay.env}
    withheld = tuple(sorted(n for n in base if looks_secret(n) and n not in passed))
    variables = {n: v for n, v in base.items() if n not in withheld and not _RAY.match(n)}
    variables.update(
        PATH=_search_path(base.get("PATH", "")),
        TMPDIR=str(tree.scratch),
        PYTHONUNBUFFERED="1",
        WANDB_MODE="offline",
    )
    variables.update(_devices(request, node))
    variables.update(_compile_caches(tree, node, variables["PATH"]))
    variables.update(_rendezvous())
    for name in request.overlay.unset_env:
        variables.pop(name, None)
    variables.update({n: tree.fill_in(v) for n, v in request.overlay.env.items()})
    secrets = tuple(v for n, v in base.items() if looks_secret(n) and len(v) >= 8)
    return CommandEnvironment(variables, withheld, secrets)


def _search_path(path: str) -> str:
    """The user's own PATH, so that the job finds the Python that it has today; ours comes last."""
    ours = os.path.dirname(sys.executable)
    parts = [part for part in path.split(os.pathsep) if part]
    return os.pathsep.join(parts if ours in parts else [*parts, ours])


def _compile_caches(tree: WorkTree, node: NodeInfo, path: str) -> dict[str, str]:
    """Folders for compiled code, shared between executions of one interpreter and device kind."""
    python = shutil.which("python", path=path) or sys.executable
    identity = (os.path.realpath(python), python, node.gpu_name, platform.machine(), node.hostname)
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:12]
    folders = {
        "TORCHINDUCTOR_CACHE_DIR": Path(tree.cache_text) / key / "inductor",
        "TRITON_CACHE_DIR": Path(tree.cache_text) / key / "triton",
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {name: str(folder) for name, folder in folders.items()}


def _devices(request: ExecutionRequest, node: NodeInfo) -> dict[str, str]:
    """The GPUs of this execution; a machine without any keeps the variable as it is."""
    gpus = node.gpus[: request.gpus_per_node] if request.gpus_per_node else node.gpus
    if not gpus and not os.path.exists("/dev/nvidiactl"):
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def _rendezvous() -> dict[str, str]:
    """One node's meeting point; an argument on torchrun's command line beats PET_*."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "PET_NNODES": "1",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": port,
    }
