"""Executes old and new code of a change on recorded inputs and compares what comes out."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from infrarsi.node.environment import looks_secret
from infrarsi.workspace.local_check.changes import Changes, changes
from infrarsi.workspace.local_check.outcome import CheckOutcome, CheckStatus, not_possible
from infrarsi.workspace.local_check.quiet import run_quietly
from infrarsi.workspace.local_check.recording import GUEST, Recording

_MAX_SOURCE_BYTES = 1 << 20


def check(
    python: str,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    recording: Recording,
    timeout_s: float,
) -> CheckOutcome:
    """Whether new code gives the outputs and gradients of the old on the recorded calls.

    `python` is the interpreter of the user's job; it needs torch, nothing of ours. `before` and
    `after` hold the editable files. Classes are compared in training mode (dropout off) and in
    evaluation, with the recorded weights and with larger ones; a changed optimizer for three steps
    on recorded gradients. Anything else is `not_possible` here. Nothing of the user's is written,
    and no process is left.
    """
    started = time.monotonic()
    try:
        found = changes(before, after)
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}"
        return CheckOutcome(CheckStatus.FAILED, f"{where}: the new code does not parse")
    items = [(c, recording.records[c]) for c in found.classes if c in recording.records]
    use_optimizer = bool(found.optimizer) and recording.optimizer is not None
    if not items and not use_optimizer:
        return not_possible(_why_nothing(found, recording), time.monotonic() - started)
    with tempfile.TemporaryDirectory(prefix="infrarsi-check-") as folder:
        spec = _lay_out(Path(folder), before, after, recording)
        spec["records"] = [
            {"name": name, "pickle": str(recording.folder / pickle)} for (_, name), pickle in items
        ]
        if use_optimizer:
            spec["optimizer"] = str(recording.optimizer)
            spec["changes"] = dict(found.optimizer)
        why = _compare(python, Path(folder), spec, timeout_s)
        seconds = time.monotonic() - started
        if why:
            return not_possible(why, seconds)
        answer = json.loads((Path(folder) / "answer.json").read_text(encoding="utf-8"))
    return _outcome(answer, seconds)


def _why_nothing(found: Changes, recording: Recording) -> str:
    for path, name in found.classes:
        why = recording.skipped.get((path, name), "it did not run in the recorded update")
        return f"`{name}` in {path} was not recorded: {why}"
    if found.optimizer:
        return "no optimizer step was recorded"
    place = found.elsewhere or "the change"
    return f"{place}: this is no part of a module or optimizer, so the trial alone judges it"


def _lay_out(
    folder: Path, before: Mapping[str, str], after: Mapping[str, str], recording: Recording
) -> dict[str, object]:
    """Both versions of the project's code in folders of their own."""
    for side, files in (("before", before), ("after", after)):
        shutil.copytree(recording.tree, folder / side, ignore=_only_code, symlinks=True)
        for path, text in files.items():
            place = folder / side / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_symlink() or place.exists():
                place.unlink()
            place.write_text(text, encoding="utf-8", newline="")
    return {
        "folders": [str(folder / "before"), str(folder / "after")],
        "answer": str(folder / "answer.json"),
    }


def _only_code(folder: str, names: list[str]) -> list[str]:
    """Everything but folders and small files: code and its configuration."""
    left_out = []
    for name in names:
        path = os.path.join(folder, name)
        is_large = os.path.isfile(path) and os.path.getsize(path) > _MAX_SOURCE_BYTES
        if name in ("__pycache__", ".git") or is_large or not os.path.exists(path):
            left_out.append(name)
    return left_out


def _compare(python: str, folder: Path, spec: Mapping[str, object], timeout_s: float) -> str:
    """Run the comparison; why it gave no answer, or ""."""
    (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME") and not looks_secret(name)
    }
    environment.update(
        OMP_NUM_THREADS="1",
        PYTHONDONTWRITEBYTECODE="1",
        CUDA_VISIBLE_DEVICES="",
        TMPDIR=str(folder),
    )
    ended, last = run_quietly(
        [python, str(GUEST / "compare.py"), str(folder / "spec.json")],
        folder=folder,
        environment=environment,
        timeout_s=timeout_s,
        remove=[folder],
    )
    if not ended.by_itself:
        return f"the comparison did not end in {timeout_s:.0f} s"
    if ended.exit_code != 0 or not (folder / "answer.json").exists():
        return f"the comparison ended with exit code {ended.exit_code}" + (
            f" ({last})" if last else ""
        )
    return ""


def _outcome(answer: list[list[object]], seconds: float) -> CheckOutcome:
    """One outcome of all checks: a failure decides, then whatever was compared."""
    rows = [(str(n), CheckStatus(str(s)), str(r), f) for n, s, r, f in answer]
    for name, status, reason, _ in rows:
        if status is CheckStatus.FAILED:
            return CheckOutcome(status, f"`{name}`: {reason}", seconds=seconds)
    figures: dict[str, float] = {}
    for _, _, _, seen in rows:
        assert isinstance(seen, dict)
        for key, value in seen.items():
            figures[key] = max(figures.get(key, 0.0), value)
    passed = [n for n, status, _, _ in rows if status is CheckStatus.PASSED]
    left = [f"`{n}`: {r}" for n, status, r, _ in rows if status is CheckStatus.NOT_POSSIBLE]
    if not passed:
        return not_possible("; ".join(left), seconds)
    text = ", ".join(f"{key} differs by {value:.1e}" for key, value in sorted(figures.items()))
    names = ", ".join(f"`{n}`" for n in passed)
    rest = f"; not compared: {'; '.join(left)}" if left else ""
    return CheckOutcome(CheckStatus.PASSED, f"{names}: {text}{rest}", figures, seconds)
