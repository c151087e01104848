"""What the machine offers, as far as values of knobs depend on it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Machine:
    """One node: cores that this process may use, and GPUs that are visible."""

    cpus: int
    gpus: int = 0

    @classmethod
    def here(cls, environ: Mapping[str, str], gpu_folder: Path = _NVIDIA) -> "Machine":
        """This machine, found without importing torch or starting a process."""
        present = len(list(gpu_folder.iterdir())) if gpu_folder.is_dir() else 0
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            named = [name for name in visible.split(",") if name.strip() not in ("", "-1")]
            present = min(present, len(named))
        return cls(cpus=len(os.sched_getaffinity(0)), gpus=present)
