"""Where a project begins: its git repository, if it is in one."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_TIMEOUT_S = 10.0


def git_root(path: Path) -> Path | None:
    """The work tree that a file or folder lies in, None outside of any."""
    for folder in (path, *path.parents):
        if (folder / ".git").exists():
            return folder
    return None


def is_tracked(root: Path, path: Path) -> bool:
    """Whether a file belongs to the repository at `root`; without git it is taken to."""
    command = ["git", "-C", str(root), "ls-files", "--error-unmatch", "--", str(path)]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return answer.returncode == 0


def common_folder(folders: Sequence[Path]) -> Path:
    """The smallest folder that holds them all."""
    return Path(os.path.commonpath([str(folder) for folder in folders]))
