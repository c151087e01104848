"""One run's folder, and the only place that knows the names of the files in it."""

import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infrarsi.contract import ExecutionResult
from infrarsi.errors import ExternalError, UserError

DEFAULT_ROOT = Path(".infrarsi") / "runs"


class RunDirectory:
    """The paths of one run; `lock` keeps a second process out."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # it goes into commands that run elsewhere
        self._lock: Any = None

    @classmethod
    def create(cls, root: Path, *, now: float) -> "RunDirectory":
        """A new, empty run directory under `root`, its name sortable by time."""
        for _ in range(100):
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
            path = root / f"{stamp}-{secrets.token_hex(2)}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise UserError(
                    f"no run directory can be made: {error.strerror}",
                    where=str(root),
                    fix="name another place with `--out`",
                ) from error
            ignore = root.parent / ".gitignore"
            if root.parent.name == ".infrarsi" and not ignore.exists():
                ignore.write_text("*\n")
            return cls(path)
        raise UserError("no free name for a run directory", where=str(root))

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run directory; raises UserError where there is none."""
        if not (path / "journal.jsonl").is_file():
            there = _runs(path.parent) or _runs(path / DEFAULT_ROOT) or _runs(DEFAULT_ROOT)
            raise UserError(
                "this is not a run directory (it has no journal.jsonl)"
                + (f"; there are {', '.join(map(str, there[-3:]))}" if there else ""),
                where=str(path),
                fix="name a folder under .infrarsi/runs",
            )
        return cls(path)

    @classmethod
    def newest(cls, root: Path) -> "RunDirectory":
        """The newest run under `root`; raises UserError where there is none."""
        runs = _runs(root)
        if not runs:
            raise UserError(
                "there is no run here", where=str(root), fix="start one with `infrarsi optimize`"
            )
        return cls(runs[-1])

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def contract(self) -> Path:
        """The frozen copy of infrarsi.yaml."""
        return self.path / "contract.yaml"

    @property
    def journal(self) -> Path:
        """The journal."""
        return self.path / "journal.jsonl"

    @property
    def log(self) -> Path:
        """All progress lines."""
        return self.path / "run.log"

    @property
    def result(self) -> Path:
        """The result for programs."""
        return self.path / "result.json"

    @property
    def report(self) -> Path:
        """The report for people."""
        return self.path / "REPORT.md"

    @property
    def pack(self) -> Path:
        """The experience of this run."""
        return self.path / "pack.yaml"

    @property
    def experience(self) -> Path:
        """The packs that the search of this run started from."""
        return self.path / "experience.jsonl"

    @property
    def store(self) -> Path:
        """The snapshot of the project."""
        return self.path / "snapshot"

    def receipt(self, execution_id: str) -> Path:
        """The folder of one execution; made if absent."""
        path = self.path / "receipts" / execution_id
        path.mkdir(parents=True, exist_ok=True)
        return path

    def kept(self, execution_id: str) -> Path:
        """Where an execution that was asked to keep its checkpoints has them."""
        return self.path / "receipts" / execution_id / "checkpoints"

    def forget_kept(self) -> None:
        """Delete all kept checkpoints; they are of use until the verification has ended."""
        for folder in self.path.glob("receipts/*/checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)

    def receipt_file(self, execution_id: str) -> Path:
        """The record of one execution, there or not; nothing is made."""
        return self.path / "receipts" / execution_id / "receipt.json"

    def read_receipt(self, execution_id: str) -> ExecutionResult:
        """The full result of one execution; raises ExternalError where it cannot be read."""
        path = self.receipt_file(execution_id)
        try:
            return ExecutionResult.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            what = error.strerror if isinstance(error, OSError) else repr(error)
            raise ExternalError(
                f"the receipt cannot be read: {what}",
                where=str(path),
                fix="restore the file from a copy, or start a new run",
            ) from error

    def remove_if_empty(self) -> None:
        """Remove a run that ended before its first event."""
        if not self.journal.exists() or self.journal.stat().st_size == 0:
            shutil.rmtree(self.path, ignore_errors=True)

    def free_name(self, execution_id: str) -> str:
        """This id, or with a number behind it if an earlier execution already has its receipt."""
        name, number = execution_id, 0
        while (self.path / "receipts" / name).exists():
            number += 1
            name = f"{execution_id}-again{number}"
        return name

    def write_candidate(self, candidate_id: str, data: Mapping[str, Any], diff: str) -> None:
        """Keep a candidate's settings and patch under `candidates/<id>/`."""
        folder = self.path / "candidates" / candidate_id
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "settings.json", json.dumps(data, indent=2) + "\n")
        write_atomically(folder / "patch.diff", diff)

    def lock(self) -> None:
        """Own this run; raises UserError naming the owner when another process does."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            owner = self.path / ".owner"
            pid = owner.read_text().strip() if owner.exists() else "unknown"
            raise UserError(
                f"another process (pid {pid}) is working in this run directory",
                where=str(self.path),
                fix="wait for it, or start a new run",
            ) from None
        self._lock = lock
        (self.path / ".owner").write_text(f"{os.getpid()}\n")

    def unlock(self) -> None:
        """Give the run free again."""
        if self._lock is not None:
            (self.path / ".owner").unlink(missing_ok=True)
            self._lock.release()
            self._lock = None


def _runs(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob("*/journal.jsonl"))


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or nothing; raises ExternalError when the disk does not take it."""
    try:
        _write(path, text)
    except OSError as error:
        raise ExternalError(
            f"the file cannot be written: {error.strerror or error}",
            where=str(path),
            fix="free disk space, then continue with `infrarsi run --resume`",
        ) from error


def _write(path: Path, text: str) -> None:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
