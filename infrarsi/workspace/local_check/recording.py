"""What the job's own modules were called with in its first update, kept for local checks."""

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.contract import ExecutionRequest, NodeInfo
from infrarsi.errors import UserError
from infrarsi.node.environment import CommandEnvironment, command_environment
from infrarsi.node.tree import WorkTree, remove_tree, unpack
from infrarsi.workspace.local_check.outcome import CheckOutcome, not_possible
from infrarsi.workspace.local_check.quiet import run_quietly

GUEST = Path(__file__).with_name("guest")
_SITE = '''"""Lets the recorder wait for torch, after whatever else is to be customized."""
import importlib.machinery, os, sys
_here = os.path.dirname(os.path.abspath(__file__))
_rest = [p for p in sys.path if os.path.abspath(p or ".") != _here]
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _spec is not None and _spec.loader is not None:
    import importlib.util
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
try:
    import _infrarsi_recorder
    _infrarsi_recorder.arrange()
except Exception as _error:
    sys.stderr.write("infrarsi: nothing is recorded: %r\\n" % (_error,))
'''


@dataclass(frozen=True)
class Recording:
    """A folder of recorded calls: `records` maps (file, class) to its pickle in `folder`.

    `skipped` says why a class that ran is not there. `tree` is the untouched project that the
    recorded job ran from. `seconds` is what the recording run took.
    """

    folder: Path
    tree: Path
    records: Mapping[tuple[str, str], str]
    skipped: Mapping[tuple[str, str], str]
    optimizer: Path | None
    seconds: float


def record(
    request: ExecutionRequest,
    node: NodeInfo,
    *,
    base: Mapping[str, str],
    files: Iterable[str],
    into: Path,
    timeout_s: float,
) -> Recording | CheckOutcome:
    """Run the job until its first optimizer step and keep the first calls of its modules.

    The run happens in a copy with fresh sinks under a supervisor, as every execution does; copy,
    sinks and processes are gone on return. `files` are the editable files whose classes are kept,
    `base` is the user's environment. `into` is made, and keeps the recording. Whatever the job
    does is an outcome, never an exception.
    """
    started = time.monotonic()
    _prepare(into, files)
    try:
        cache = Path(request.cache_dir)
        tree = unpack(request.snapshot, request.overlay, into / "run", cache)
    except (UserError, OSError) as error:
        seconds = time.monotonic() - started
        return not_possible(f"the project could not be laid out: {error}", seconds)
    try:
        environment = command_environment(base, request, tree, node)
        variables = environment.variables
        site = str(into / "site")
        paths = [site, *filter(None, [variables.get("PYTHONPATH")])]
        variables.update(
            PYTHONPATH=os.pathsep.join(paths),
            INFRARSI_RECORD_ROOT=str(tree.folder),
            INFRARSI_RECORD_OUT=str(into / "calls"),
        )
        why = _run(tree, request.overlay.command, environment, timeout_s)
    finally:
        for path in tree.removable:
            remove_tree(path)
        remove_tree(into / "run")
    done = into / "calls" / "done.json"
    seconds = time.monotonic() - started
    if not done.exists():
        return not_possible(f"no update could be recorded: {why}", seconds)
    return _read(done, Path(request.snapshot.root) / "tree", seconds)


def _prepare(into: Path, files: Iterable[str]) -> None:
    (into / "site").mkdir(parents=True)
    (into / "calls").mkdir()
    (into / "site" / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
    shutil.copyfile(GUEST / "recorder.py", into / "site" / "_infrarsi_recorder.py")
    (into / "calls" / "files.json").write_text(json.dumps(sorted(files)), encoding="utf-8")


def _run(tree: WorkTree, command: str, environment: CommandEnvironment, timeout_s: float) -> str:
    """Run the command to its end; says why nothing may have been recorded."""
    ended, last = run_quietly(
        ["bash", "-c", tree.fill_in(command)],
        folder=tree.folder,
        environment=environment.variables,
        timeout_s=timeout_s,
        remove=tree.removable,
        secrets=environment.secrets,
    )
    if not ended.by_itself:
        return f"the job made no optimizer step in {timeout_s:.0f} s"
    return f"the job ended with exit code {ended.exit_code} ({last or 'it printed nothing'})"


def _read(done: Path, tree: Path, seconds: float) -> Recording:
    data = json.loads(done.read_text(encoding="utf-8"))
    folder = done.parent
    return Recording(
        folder=folder,
        tree=tree,
        records={(r["file"], r["name"]): r["pickle"] for r in data["records"]},
        skipped={(file, name): why for file, name, why in data["skipped"]},
        optimizer=folder / "optimizer.pickle" if data["optimizer"] else None,
        seconds=seconds,
    )
