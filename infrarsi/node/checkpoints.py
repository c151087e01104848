"""The files that a run left below its sinks, and what is in those that are checkpoints.

It happens after the command has ended, so it is in no timed window. A checkpoint is read by the
job's own Python in a process of its own, with nothing of it executed; one that cannot be read says
so (`unread`).
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infrarsi.node.kept import IN_TREE
from infrarsi.node.tree import WorkTree

MAX_FILES = 4000
MAX_TENSORS = 2000
MAX_BYTES = 2 << 30
"""Of all checkpoints of a run, read for norms; beyond that keys and shapes are listed alone."""
TIMEOUT_S = 300.0

_PROGRAM = Path(__file__).with_name("checkpoint_reader.py")
_TORCH = (".pt", ".pth", ".ckpt", ".bin", ".tar", ".pkl", ".model", ".state")


def kind_of(path: Path) -> str:
    """`torch`, `safetensors`, `distributed` (torch.distributed.checkpoint), else `file`."""
    if path.name == ".metadata":
        return "distributed"
    if path.suffix == ".safetensors":
        return "safetensors"
    if path.suffix == ".distcp":
        return "file"
    if _is_torch_archive(path):
        return "torch"
    return "torch" if path.suffix in _TORCH and _is_pickle(path) else "file"


def _is_torch_archive(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            if file.read(4) != b"PK\x03\x04":
                return False
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return path.suffix in _TORCH  # cut short: then reading it says so


def _is_pickle(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(1) == b"\x80"
    except OSError:
        return False


def left_by_run(
    tree: WorkTree, removed: tuple[str, ...], search_path: str
) -> dict[str, dict[str, Any]]:
    """What a run left in its sinks: `{size, kind}` by path, and the content of each checkpoint.

    `removed` are the overlay's paths that began empty (`path:` sinks); `search_path` the PATH of
    the job. A checkpoint has `tensors` (key: shape, dtype, values [norm, projection]) and
    `scalars`, or `unread` with the reason.
    """
    found, places = listed(tree, removed)
    if places:
        for name, content in _read(places, tree.scratch.parent, search_path).items():
            found[name].update(content)
    return found


def listed(
    tree: WorkTree, removed: tuple[str, ...]
) -> tuple[dict[str, dict[str, Any]], list[tuple[str, str, str]]]:
    """`{size, kind}` by path of every file, and (name, kind, path) of each checkpoint."""
    found: dict[str, dict[str, Any]] = {}
    places: list[tuple[str, str, str]] = []
    for name, path in _files(tree, removed):
        kind = kind_of(path)
        found[name] = {"size": path.stat().st_size, "kind": kind}
        if kind != "file":
            places.append((name, kind, str(path)))
    return found, places


def _files(tree: WorkTree, removed: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """(name, path) of every regular file in the sinks, at most MAX_FILES."""
    roots = [(tree.sinks, "")]
    roots += [(tree.folder / name, f"{IN_TREE}{name}/") for name in removed]
    number = 0
    for root, prefix in roots:
        if root.is_file() and not root.is_symlink():
            yield prefix.rstrip("/"), root
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if path.is_symlink() or not path.is_file():
                    continue
                number += 1
                if number > MAX_FILES:
                    return
                yield prefix + path.relative_to(root).as_posix(), path


def _read(
    places: list[tuple[str, str, str]], scratch: Path, search_path: str
) -> dict[str, dict[str, Any]]:
    pythons = [shutil.which(name, path=search_path) for name in ("python", "python3")]
    folder = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=scratch))
    asked, answer = folder / "asked.json", folder / "answer.json"
    asked.write_text(
        json.dumps(
            {
                "files": places,
                "max_tensors": MAX_TENSORS,
                "max_bytes": MAX_BYTES,
                "out": str(answer),
            }
        )
    )
    why = ""
    for python in dict.fromkeys(p for p in (*pythons, sys.executable) if p):
        told = _run(python, asked, folder)
        why = why or told  # that of the job's own Python
        if answer.exists():
            found: dict[str, dict[str, Any]] = json.loads(answer.read_text())
            return found
    return {name: {"unread": why} for name, _, _ in places}


def _run(python: str, asked: Path, folder: Path) -> str:
    """Why there is no answer, "" if the program ended well."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    try:
        done = subprocess.run(
            [python, "-I", str(_PROGRAM), str(asked)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it was not read within {TIMEOUT_S:g} s"
    except OSError as error:
        return f"{python} did not start: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{python} could not read it: {lines[-1][:200] if lines else done.returncode}"
