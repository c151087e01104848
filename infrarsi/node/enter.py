"""What a stand-in runs: `enter.py ADMISSION NAME ARGUMENTS...`, which becomes the real NAME."""

import json
import os
import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infrarsi.contract.admission import Admission

_NOT_STARTED = 125  # as docker says that it could not start the container


def main(arguments: list[str]) -> int:
    """Becomes the runtime; returns an exit code only where it cannot."""
    told, name, *rest = arguments
    own = os.path.dirname(told)
    parts = os.environ.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(part for part in parts if part != own)
    real = shutil.which(name, path=path)
    if real is None:
        sys.stderr.write(f"{name}: not found\n")
        return 127
    with open(told) as file:
        admission = Admission.from_dict(json.load(file))
    try:
        words = admission.admitted([name, *rest])
    except ValueError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return _NOT_STARTED
    os.environ["PATH"] = path
    os.execv(real, words)
    return _NOT_STARTED  # for the reader: execv does not come back


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
