"""The few things asked of the user's git repository, if there is one."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from infrarsi.errors import UserError

_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1"}
Blob = tuple[bytes | None, bytes, int]
"""Content before (None: a new file), content after, permission bits."""


def dirty(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Tracked files among `paths` with uncommitted changes; none without git or a repository."""
    if not paths:
        return ()
    answer = _git(
        root, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no", "--", *paths
    )
    if answer is None or answer.returncode != 0:
        return ()
    prefix = _prefix(root)
    found = []
    for entry in answer.stdout.split(b"\0"):
        if len(entry) > 3:
            name = entry[3:].decode(errors="surrogateescape")
            found.append(name.removeprefix(prefix))
    return tuple(path for path in paths if path in found)


def commit_on_branch(root: Path, branch: str, files: Mapping[str, Blob], message: str) -> str:
    """A commit on top of HEAD that holds these files alone, on a new branch; its hash.

    Neither the work tree nor the index nor the current branch changes. Raises UserError if there is
    no repository or commit, the branch exists, or HEAD has another text of a file.
    """
    if (answer := _git(root, "rev-parse", "--verify", "-q", "HEAD^{commit}")) is None:
        raise _refused(root, "git was not found", "install git, or apply without `--branch`")
    if answer.returncode != 0:
        fix = "make a repository with a first commit, or apply without `--branch`"
        raise _refused(root, "this is no git repository with a commit", fix)
    head = answer.stdout.decode().strip()
    if _must(root, "check-ref-format", "--branch", branch, allow_failure=True) is None:
        raise _refused(root, f"{branch!r} cannot be the name of a branch", "choose another name")
    exists = _git(root, "rev-parse", "--verify", "-q", f"refs/heads/{branch}")
    if exists is not None and exists.returncode == 0:
        raise _refused(root, f"there is a branch {branch!r} already", "choose another name")
    prefix = _prefix(root)
    top = Path(_text(_must(root, "rev-parse", "--show-toplevel")))
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        _must(root, "read-tree", head, env=index)
        for path, (before, after, mode) in files.items():
            name = prefix + path
            _check_head(top, head, name, before)
            blob = _blob(top, name, after)
            kind = "100755" if mode & 0o100 else "100644"
            _must(top, "update-index", "--add", "--cacheinfo", f"{kind},{blob},{name}", env=index)
        tree = _text(_must(root, "write-tree", env=index))
    commit = _text(_must(root, "commit-tree", tree, "-p", head, "-m", message))
    _must(root, "update-ref", f"refs/heads/{branch}", commit, "0" * len(commit))
    return commit


def _check_head(root: Path, head: str, name: str, before: bytes | None) -> None:
    answer = _git(root, "rev-parse", "--verify", "-q", f"{head}:{name}")
    tracked = answer is not None and answer.returncode == 0
    if before is None or not tracked or answer is None:
        return
    if answer.stdout.decode().strip() != _blob(root, name, before):
        raise _refused(
            root,
            f"`{name}` in the last commit is not what the run measured",
            "commit the file as it was measured, or apply without `--branch`",
        )


def _blob(top: Path, name: str, content: bytes) -> str:
    """The content as git stores it for that path (line endings converted where configured)."""
    return _text(_must(top, "hash-object", "-w", "--stdin", "--path", name, content=content))


def _prefix(root: Path) -> str:
    answer = _git(root, "rev-parse", "--show-prefix")
    if answer is None or answer.returncode != 0:
        return ""
    return answer.stdout.decode(errors="surrogateescape").rstrip("\n")


def _must(
    root: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    content: bytes | None = None,
    allow_failure: bool = False,
) -> bytes | None:
    answer = _git(root, *words, env=env, content=content)
    if answer is not None and answer.returncode == 0:
        return answer.stdout
    if allow_failure:
        return None
    said = "" if answer is None else answer.stderr.decode(errors="replace").strip()
    raise _refused(root, f"`git {words[0]}` failed: {said}", "apply without `--branch`")


def _git(
    root: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> "subprocess.CompletedProcess[bytes] | None":
    """Run git in a folder; None if there is no git. It takes no locks for looking."""
    try:
        return subprocess.run(
            ["git", *words],
            cwd=root,
            env={**os.environ, **_QUIET, **(env or {})},
            input=content if content is not None else b"",
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return None


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="surrogateescape").strip()


def _refused(root: Path, what: str, fix: str) -> UserError:
    return UserError(what, where=str(root), fix=fix)
