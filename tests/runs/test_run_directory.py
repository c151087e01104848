"""Run directories: names, the lock, and paths that hold wherever a command runs."""

from pathlib import Path

import pytest

from infrarsi.errors import UserError
from infrarsi.runs import RunDirectory


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A relative root for runs, as the command line has it."""
    monkeypatch.chdir(tmp_path)
    return Path(".infrarsi") / "runs"


def begun(root: Path, now: float = 0.0) -> RunDirectory:
    run = RunDirectory.create(root, now=now)
    run.journal.write_text('{"n": 0, "t": 1, "event": "run_started"}\n')
    return run


def test_paths_are_absolute_however_the_run_was_named(root: Path) -> None:
    made = begun(root)
    for run in (made, RunDirectory.open(root / made.run_id), RunDirectory.newest(root)):
        assert run.path == Path.cwd() / root / made.run_id
        assert run.receipt("a").is_absolute()


def test_the_newest_run_is_found_by_its_name(root: Path) -> None:
    begun(root, now=0.0)
    last = begun(root, now=100.0)
    assert RunDirectory.newest(root).path == last.path


def test_git_does_not_see_our_folder(root: Path) -> None:
    begun(root)
    assert (root.parent / ".gitignore").read_text() == "*\n"


def test_a_folder_that_is_no_run_is_refused_with_those_that_are(root: Path) -> None:
    run = begun(root)
    with pytest.raises(UserError, match="not a run directory") as caught:
        RunDirectory.open(Path("elsewhere"))
    assert run.run_id in caught.value.what
    with pytest.raises(UserError, match="there is no run here"):
        RunDirectory.newest(Path("elsewhere"))


def test_the_lock_keeps_a_second_owner_out_and_names_the_first(root: Path) -> None:
    import os

    run = begun(root)
    run.lock()
    with pytest.raises(UserError, match=f"another process .pid {os.getpid()}. is working"):
        RunDirectory.open(run.path).lock()
    run.unlock()
    again = RunDirectory.open(run.path)
    again.lock()
    again.unlock()


def test_a_receipt_is_never_used_twice(root: Path) -> None:
    run = begun(root)
    names = []
    for _ in range(3):
        names.append(run.free_name("pair-1A"))
        run.receipt(names[-1])
    assert names == ["pair-1A", "pair-1A-again1", "pair-1A-again2"]


def test_only_a_run_that_never_began_is_removed(root: Path) -> None:
    run = begun(root)
    run.remove_if_empty()
    assert run.path.is_dir()
    run.journal.write_text("")
    run.remove_if_empty()
    assert not run.path.exists()
