"""What `apply` does to the user's own folder: shown first, then written whole or not at all."""

import os
import stat
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.contract import Candidate, Project
from infrarsi.errors import ExternalError, UserError
from infrarsi.workspace import git, optimized_script
from infrarsi.workspace.frozen import digest_bytes
from infrarsi.workspace.launch_text import LaunchText
from infrarsi.workspace.overlay import patched
from infrarsi.workspace.patching import make
from infrarsi.workspace.sources import Sources

PATCH_NAME = "infrarsi.patch"


@dataclass(frozen=True)
class FileChange:
    """One file's new content; `before` is None for a new file, `mode` its permission bits."""

    path: str
    before: bytes | None
    after: bytes
    mode: int


@dataclass(frozen=True)
class Change:
    """What would be written into `root`, and `diff`, which shows all of it.

    `refusals` says why the code is left alone (one sentence each); then `files` holds only the
    launch script and `infrarsi.patch`. `there` are files that have the change's text already; they
    are not written again. Empty `files` means that there is nothing to apply.
    """

    root: Path
    files: tuple[FileChange, ...]
    diff: str
    refusals: tuple[str, ...] = ()
    script: str = optimized_script.NAME
    run_id: str = ""
    there: tuple[FileChange, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The project-relative paths that are written."""
        return tuple(file.path for file in self.files)

    @property
    def is_applied(self) -> bool:
        """Whether every file has its text already, so that nothing is left to write."""
        return bool(self.there) and not self.files


def plan(
    project_root: Path,
    project: Project,
    candidate: Candidate,
    *,
    sources: Sources,
    expected: Mapping[str, str],
    run_id: str = "",
) -> Change:
    """The change that a verified candidate makes; nothing is written.

    `sources` are the files as they were measured, `expected` their digests (`sha256:...`). Code
    that differs from what was measured, is read-only, or is dirty in git is left alone, and a patch
    file takes its place; code that has the patched text already is done. Raises UserError if
    `infrarsi_optimized.sh` is somebody else's.
    """
    root = project_root.resolve()
    new_code = patched(project, sources, candidate)
    launch = LaunchText.of(project, sources, new_code)
    changed = launch.with_settings(project, candidate.settings)
    new_code |= changed.configs
    code = tuple(_code_change(root, sources, path, text) for path, text in new_code.items())
    before = {path: sources.text(path) for path in new_code}
    diff = make(before, new_code)
    measured = {*project.editable, *project.frozen, *([launch.path] if launch.path else [])}
    there = tuple(file for file in code if _content(root, file.path) == file.after)
    left = tuple(file for file in code if file not in there)

    def script_with(patch_file: str | None) -> FileChange:
        facts = optimized_script.Facts(
            project.launch.command,
            run_id,
            candidate.describe(),
            tuple(sorted(new_code)),
            patch_file,
        )
        text = optimized_script.render(facts, changed)
        return _script_change(root, optimized_script.place(launch.path), text, launch.path)

    script = script_with(None)
    refusals: tuple[str, ...] = ()
    if left or script.before != script.after:
        refusals = (*_refusals(root, left, expected), *_moved_on(root, measured, code, expected))
    files = [*left, script]
    if refusals and left:
        script = script_with(PATCH_NAME)
        names = [file.path for file in left]
        own = make({n: before[n] for n in names}, {n: new_code[n] for n in names})
        files = [script, _patch_file(root, own)]
    there += tuple(file for file in files if file not in left and file.before == file.after)
    text = script.after.decode()
    old_script = script.before.decode(errors="replace") if script.before is not None else None
    shown = diff + make(
        {} if old_script is None else {script.path: old_script}, {script.path: text}
    )
    files = [file for file in files if file not in there]
    return Change(root, tuple(files), shown, refusals, script.path, run_id, there)


def write(change: Change) -> tuple[Path, ...]:
    """Write all files of a change, each by renaming; on any error everything is as it was.

    Raises UserError if a file has changed since `plan`, ExternalError if the disk refuses.
    """
    staged: list[tuple[FileChange, Path]] = []
    done: list[FileChange] = []
    try:
        for file in change.files:
            _check_still(change.root, file)
            staged.append((file, _stage(change.root / file.path, file.after, file.mode)))
        for file, temporary in staged:
            _check_still(change.root, file)
            done.append(file)  # first, so that a Ctrl-C between the two does not leave it behind
            os.replace(temporary, change.root / file.path)
    except BaseException as error:
        for file in reversed(done):
            _restore(change.root, file)
        for _, temporary in staged:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ExternalError(
                f"the change could not be written ({error.strerror}); nothing was changed",
                where=str(error.filename or change.root),
                fix="make room or correct the permissions, then apply again",
            ) from error
        raise
    return tuple(change.root / file.path for file in change.files)


def write_on_branch(change: Change, branch: str) -> str:
    """Commit the change on a new git branch and return the commit; the work tree stays untouched.

    Raises UserError without a git repository, if the branch exists, or if the code was refused.
    """
    if change.refusals:
        raise UserError(
            f"the change cannot be committed: {change.refusals[0]}",
            where=str(change.root),
            fix=f"apply {PATCH_NAME} by hand",
        )
    files = (*change.there, *change.files)
    blobs = {file.path: (file.before, file.after, file.mode) for file in files}
    subject = "Apply what InfraRSI found and verified"
    message = f"{subject}\n\nRun {change.run_id}." if change.run_id else subject
    return git.commit_on_branch(change.root, branch, blobs, message)


def _code_change(root: Path, sources: Sources, path: str, text: str) -> FileChange:
    place = root / path
    mode = stat.S_IMODE(place.stat().st_mode) if place.is_file() else 0o644
    return FileChange(path, sources.content(path), text.encode(), mode)


def _refusals(root: Path, code: tuple[FileChange, ...], expected: Mapping[str, str]) -> list[str]:
    found = []
    for file in code:
        now = _content(root, file.path)
        wanted = expected.get(file.path, digest_bytes(file.before or b""))
        if now is None:
            found.append(f"`{file.path}` is gone")
        elif digest_bytes(now) != wanted:
            found.append(f"`{file.path}` is not what the run measured any more")
        elif not file.mode & 0o222:
            found.append(f"`{file.path}` is read-only")
    dirty = git.dirty(root, [file.path for file in code])
    found += [f"`{path}` has changes that are not committed" for path in dirty]
    return found


def _moved_on(
    root: Path, measured: Collection[str], code: tuple[FileChange, ...], expected: Mapping[str, str]
) -> list[str]:
    """Why the job is not the one that was measured: other code, its script, frozen files."""
    patched_paths = {file.path for file in code}
    found = []
    for path in sorted(set(measured) - patched_paths):
        now, wanted = _content(root, path), expected.get(path)
        if wanted is not None and (now is None or digest_bytes(now) != wanted):
            found.append(f"`{path}` is not what the run measured any more")
    return found


def _script_change(root: Path, path: str, text: str, original: str | None) -> FileChange:
    before = _content(root, path)
    if before is not None and not optimized_script.is_ours(before):
        raise UserError(
            f"there is a `{path}` already that was not written by InfraRSI",
            where=str(root / path),
            fix="rename it, then apply again",
        )
    mode = 0o755
    if original is not None and (root / original).is_file():
        mode = stat.S_IMODE((root / original).stat().st_mode) | 0o700
        mode |= (mode & 0o444) >> 2  # executable for whoever may read it
    return FileChange(path, before, text.encode(), mode)


def _patch_file(root: Path, diff: str) -> FileChange:
    return FileChange(PATCH_NAME, _content(root, PATCH_NAME), diff.encode(), 0o644)


def _content(root: Path, path: str) -> bytes | None:
    place = root / path
    if place.is_symlink() or not place.is_file():
        return None
    return place.read_bytes()


def _check_still(root: Path, file: FileChange) -> None:
    place = root / file.path
    if _content(root, file.path) != file.before or (file.before is None and _there(place)):
        raise UserError(
            f"`{file.path}` changed while the change was being written",
            where=str(place),
            fix="apply again",
        )


def _there(place: Path) -> bool:
    return os.path.lexists(place)


def _stage(place: Path, content: bytes, mode: int) -> Path:
    """The content in a temporary file beside its place, on disk."""
    handle, name = tempfile.mkstemp(prefix=".infrarsi-", dir=place.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _restore(root: Path, file: FileChange) -> None:
    place = root / file.path
    if file.before is None:
        place.unlink(missing_ok=True)
    else:
        os.replace(_stage(place, file.before, file.mode), place)
