"""Stand-ins for container runtimes: they let the run's folders and the witness into the container.

A launch script names its runtime by `docker`, `srun` and so on; what it is given comes out of
variables and functions, so the script itself is left alone. Instead a folder in front of PATH holds
a program of each such name, which adds the runtime's own options and becomes the real one.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from infrarsi.contract.admission import COMMANDS, Admission

_PROGRAM = Path(__file__).with_name("enter.py")
_ALWAYS = (
    "WANDB_MODE",
    "PYTHONUNBUFFERED",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)


def stand_ins(
    folder: Path,
    variables: Mapping[str, str],
    *,
    writable: tuple[str, ...],
    readable: tuple[str, ...],
    passed: tuple[str, ...],
) -> dict[str, str]:
    """Make the stand-ins in `folder`; the variable PATH that finds them, nothing without a runtime.

    `variables` are those of the command. `passed` names the ones that a container must have beside
    those that every run has.
    """
    path = variables.get("PATH", "")
    found = [name for name in COMMANDS if shutil.which(name, path=path)]
    if not found:
        return {}
    names = dict.fromkeys((*_ALWAYS, *passed))
    admission = Admission(
        folders=_existing(writable),
        read_only=_existing(readable),
        variables={name: variables[name] for name in names if name in variables},
        python_path=variables.get("PYTHONPATH", "").partition(os.pathsep)[0],
    )
    folder.mkdir()
    told = folder / "admission.json"
    told.write_text(json.dumps(admission.to_dict()))
    for name in found:
        program = folder / name
        words = [sys.executable, "-I", str(_PROGRAM), str(told), name]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{path}"}


def _existing(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for path in folders if os.path.exists(path)))
