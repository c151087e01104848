"""What all tests share: jobs find the interpreter of the tests first, as in an activated venv."""

import os
import sys

_OURS = os.path.dirname(sys.executable)
if os.environ.get("PATH", "").split(os.pathsep)[:1] != [_OURS]:
    os.environ["PATH"] = os.pathsep.join((_OURS, os.environ.get("PATH", "")))
