"""A change is shown first, then written whole or not at all, and never over the user's work."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
import small_job

from infrarsi.contract import Project
from infrarsi.errors import ExternalError, UserError
from infrarsi.workspace import (
    Change,
    Sources,
    digests,
    plan,
    take,
    tree_digest,
    write,
    write_on_branch,
)

SETTINGS = {"batch": 4, "threads": 2}
FAKE_TORCHRUN = '#!/bin/sh\necho "$OMP_NUM_THREADS|$*"\n'


class Job:
    """A job with its snapshot."""

    def __init__(self, folder: Path, contract: Project) -> None:
        self.root = folder / "my job"
        if not self.root.exists():
            small_job.write(self.root)
        self.project = contract
        self.snapshot = take(self.root, folder / "store")

    def plan(self, *, patched: bool = True) -> Change:
        return plan(
            self.root,
            self.project,
            small_job.candidate(SETTINGS, patched=patched),
            sources=Sources.of(self.snapshot),
            expected=digests(self.snapshot),
            run_id="r7",
        )

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def run_optimized(self, folder: Path) -> str:
        """What torchrun is given by the written script."""
        tools = folder / "bin"
        tools.mkdir()
        (tools / "torchrun").write_text(FAKE_TORCHRUN)
        (tools / "torchrun").chmod(0o755)
        done = subprocess.run(
            [str(self.root / "infrarsi_optimized.sh")],
            cwd=folder,
            env={"PATH": f"{tools}:/usr/bin:/bin"},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, small_job.project())


@pytest.fixture
def in_git(job: Job) -> Job:
    job.git("init", "-q", "-b", "main")
    job.git("add", ".")
    job.git("commit", "-q", "-m", "start")
    return job


def test_planning_writes_nothing(job: Job) -> None:
    before = tree_digest(job.root)
    job.plan()
    assert tree_digest(job.root) == before


def test_the_diff_shows_code_and_script(job: Job) -> None:
    diff = job.plan().diff
    assert "--- a/model.py\n+++ b/model.py\n" in diff
    assert "-width = 4\n+width = 8\n" in diff
    assert "--- /dev/null\n+++ b/infrarsi_optimized.sh\n" in diff
    assert "+export OMP_NUM_THREADS=2\n" in diff


def test_the_diff_applied_by_patch_gives_what_is_written(job: Job, tmp_path: Path) -> None:
    change = job.plan()
    other = small_job.write(tmp_path / "other")
    subprocess.run(["patch", "-p1", "-s"], cwd=other, input=change.diff.encode(), check=True)
    write(change)
    for path in change.paths:
        assert (other / path).read_bytes() == (job.root / path).read_bytes()


def test_code_and_script_are_written_and_the_rest_is_left_alone(job: Job) -> None:
    train = (job.root / "train.sh").read_bytes()
    written = write(job.plan())
    assert [path.name for path in written] == ["model.py", "infrarsi_optimized.sh"]
    assert (job.root / "model.py").read_text() == small_job.MODEL.replace("4", "8")
    assert (job.root / "train.sh").read_bytes() == train
    names = {path.name for path in job.root.iterdir()}
    assert names == {"model.py", "train.py", "train.sh", "infrarsi_optimized.sh"}


def test_the_written_script_runs_by_itself(job: Job, tmp_path: Path) -> None:
    write(job.plan())
    assert job.run_optimized(tmp_path) == (
        "2|--nproc_per_node=2 train.py --batch 4 --out out --accum 2"
    )
    text = (job.root / "infrarsi_optimized.sh").read_text()
    assert text.startswith("#!/bin/bash\n# Written by InfraRSI, which it does not need")
    assert "run r7" in text
    assert "model.py" in text
    assert "# the job\n" in text


def test_a_bare_command_becomes_a_script(tmp_path: Path) -> None:
    launch = {"command": "torchrun --nproc_per_node=2 train.py --batch 1"}
    job = Job(tmp_path, small_job.project(launch=launch))
    write(job.plan())
    assert job.run_optimized(tmp_path) == ("2|--nproc_per_node=2 train.py --batch 4 --accum 2")


def test_what_the_command_gives_to_the_script_becomes_its_default(tmp_path: Path) -> None:
    root = small_job.write(tmp_path / "my job")
    text = 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node=${N:-1} train.py "$@"\n'
    (root / "train.sh").write_text(text)
    launch = {"command": "N=3 bash train.sh --name 'a b'", "script": "train.sh"}
    job = Job(tmp_path, small_job.project(launch=launch))
    write(job.plan())
    assert job.run_optimized(tmp_path) == (
        "2|--nproc_per_node=3 train.py --batch 4 --accum 2 --name a b"
    )


def test_a_script_in_a_folder_gets_its_neighbour(tmp_path: Path) -> None:
    root = small_job.write(tmp_path / "my job")
    (root / "scripts").mkdir()
    (root / "train.sh").rename(root / "scripts" / "train.sh")
    launch = {"command": "bash scripts/train.sh", "script": "scripts/train.sh"}
    change = Job(tmp_path, small_job.project(launch=launch)).plan()
    assert change.script == "scripts/infrarsi_optimized.sh"
    assert b"bash scripts/infrarsi_optimized.sh" in change.files[-1].after


def test_modes_are_kept_and_the_script_is_executable(job: Job) -> None:
    (job.root / "model.py").chmod(0o640)
    (job.root / "train.sh").chmod(0o664)
    write(job.plan())
    assert stat.S_IMODE((job.root / "model.py").stat().st_mode) == 0o640
    assert stat.S_IMODE((job.root / "infrarsi_optimized.sh").stat().st_mode) == 0o775


def test_carriage_returns_and_missing_newlines_survive(tmp_path: Path) -> None:
    root = small_job.write(tmp_path / "my job")
    text = small_job.MODEL.replace("\n", "\r\n").rstrip()
    (root / "model.py").write_bytes(text.encode())
    from infrarsi.contract import Candidate, Patch
    from infrarsi.workspace.patching import make

    new = text.replace("4", "8")
    patch = Patch(("x",), make({"model.py": text}, {"model.py": new}))
    write(
        plan(
            root,
            small_job.project(),
            Candidate.of({}, patch),
            sources=Sources(root),
            expected={},
        )
    )
    assert (root / "model.py").read_bytes() == new.encode()


@pytest.mark.parametrize("damage", ["changed", "gone", "read-only"])
def test_code_that_is_not_as_measured_is_left_alone(job: Job, damage: str) -> None:
    model = job.root / "model.py"
    if damage == "changed":
        model.write_text(small_job.MODEL + "# mine\n")
    elif damage == "gone":
        model.unlink()
    else:
        model.chmod(0o444)
    before = model.read_bytes() if model.exists() else None
    change = job.plan()
    assert set(change.paths) == {"infrarsi_optimized.sh", "infrarsi.patch"}
    assert "`model.py`" in change.refusals[0]
    write(change)
    assert (model.read_bytes() if model.exists() else None) == before
    text = (job.root / "infrarsi_optimized.sh").read_text()
    assert "NOT applied yet" in text
    assert "patch -p1 < infrarsi.patch" in text


def test_the_patch_file_makes_the_change(job: Job, tmp_path: Path) -> None:
    (job.root / "model.py").chmod(0o444)
    write(job.plan())
    other = small_job.write(tmp_path / "other")
    diff = (job.root / "infrarsi.patch").read_bytes()
    subprocess.run(["patch", "-p1", "-s", "--fuzz=0"], cwd=other, input=diff, check=True)
    assert (other / "model.py").read_text() == small_job.MODEL.replace("4", "8")


def test_code_that_is_dirty_in_git_is_left_alone(in_git: Job, tmp_path: Path) -> None:
    (in_git.root / "model.py").write_text(small_job.MODEL + "# measured, not committed\n")
    from infrarsi.contract import Candidate, Patch
    from infrarsi.workspace.patching import make

    text = (in_git.root / "model.py").read_text()
    patch = Patch(("x",), make({"model.py": text}, {"model.py": text.replace("4", "8")}))
    change = plan(
        in_git.root,
        small_job.project(),
        Candidate.of({}, patch),
        sources=Sources(in_git.root),
        expected={},
    )
    assert change.refusals == ("`model.py` has changes that are not committed",)


def test_other_dirty_files_do_not_matter(in_git: Job) -> None:
    (in_git.root / "notes.txt").write_text("mine\n")
    (in_git.root / "new.py").touch()
    assert in_git.plan().refusals == ()


@pytest.mark.parametrize("path", ["train.py", "train.sh"])
def test_a_job_that_has_moved_on_elsewhere_is_left_alone(job: Job, path: str) -> None:
    with (job.root / path).open("a") as file:
        file.write("# mine\n")
    change = job.plan()
    assert change.refusals == (f"`{path}` is not what the run measured any more",)
    assert "model.py" not in change.paths
    settings_only = job.plan(patched=False)
    assert settings_only.paths == ("infrarsi_optimized.sh",)


def test_a_project_that_git_does_not_track_is_not_dirty(job: Job) -> None:
    job.git("init", "-q")
    assert job.plan().refusals == ()


def test_somebody_elses_script_of_that_name_is_not_overwritten(job: Job) -> None:
    (job.root / "infrarsi_optimized.sh").write_text("echo mine\n")
    with pytest.raises(UserError, match="not written by InfraRSI"):
        job.plan()


def test_applying_again_replaces_our_own_script(job: Job) -> None:
    write(job.plan(patched=False))
    first = (job.root / "infrarsi_optimized.sh").read_text()
    again = job.plan()
    assert "--- a/infrarsi_optimized.sh\n" in again.diff
    write(again)
    assert (job.root / "infrarsi_optimized.sh").read_text() != first


def test_a_file_that_changes_after_planning_stops_everything(job: Job) -> None:
    change = job.plan()
    (job.root / "model.py").write_text("# just now\n")
    before = tree_digest(job.root)
    with pytest.raises(UserError, match="changed while the change was being written"):
        write(change)
    assert tree_digest(job.root) == before


def test_a_failure_half_way_restores_what_was_written(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = job.plan()
    before = tree_digest(job.root)
    real = os.replace

    def full(source: object, target: object) -> None:
        if str(target).endswith("infrarsi_optimized.sh"):
            raise OSError(28, "No space left on device")
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ExternalError, match="No space left on device"):
        write(change)
    assert tree_digest(job.root) == before


def test_a_branch_holds_the_change_alone(in_git: Job) -> None:
    (in_git.root / "notes.txt").write_text("mine\n")
    (in_git.root / "untracked.py").touch()
    before = tree_digest(in_git.root, skip=(".git",))
    status = in_git.git("status", "--porcelain")
    commit = write_on_branch(in_git.plan(), "infrarsi/r7")
    assert tree_digest(in_git.root, skip=(".git",)) == before
    assert in_git.git("status", "--porcelain") == status
    assert in_git.git("branch", "--show-current").strip() == "main"
    assert in_git.git("rev-parse", "infrarsi/r7").strip() == commit
    changed = in_git.git("diff", "--name-only", "main", "infrarsi/r7").split()
    assert changed == ["infrarsi_optimized.sh", "model.py"]
    assert in_git.git("show", "infrarsi/r7:model.py") == small_job.MODEL.replace("4", "8")
    assert "100755" in in_git.git("ls-tree", "infrarsi/r7", "infrarsi_optimized.sh")


def test_a_branch_from_a_folder_inside_a_repository(tmp_path: Path) -> None:
    small_job.write(tmp_path / "my job")
    job = Job(tmp_path, small_job.project())
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    job.git("add", ".")
    job.git("commit", "-q", "-m", "start")
    write_on_branch(job.plan(), "faster")
    changed = job.git("diff", "-z", "--name-only", "HEAD", "faster").strip("\0").split("\0")
    assert changed == ["my job/infrarsi_optimized.sh", "my job/model.py"]


@pytest.mark.parametrize(
    ("branch", "message"),
    [("main", "there is a branch 'main' already"), ("a..b", "cannot be the name of a branch")],
)
def test_a_branch_that_cannot_be_made_is_refused(in_git: Job, branch: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_on_branch(in_git.plan(), branch)


def test_a_branch_needs_a_repository(job: Job) -> None:
    with pytest.raises(UserError, match="no git repository with a commit"):
        write_on_branch(job.plan(), "faster")


def test_a_branch_is_refused_where_the_commit_is_not_what_was_measured(in_git: Job) -> None:
    change = in_git.plan()
    (in_git.root / "model.py").write_text("# another\n")
    in_git.git("commit", "-q", "-a", "-m", "other")
    with pytest.raises(UserError, match="is not what the run measured"):
        write_on_branch(change, "faster")
    assert in_git.git("branch", "--list", "faster") == ""


def test_what_is_applied_already_is_not_written_again(job: Job) -> None:
    write(job.plan())
    before = tree_digest(job.root)
    again = job.plan()
    assert again.is_applied
    assert (again.files, again.refusals) == ((), ())
    write(again)
    assert tree_digest(job.root) == before
    assert not (job.root / "infrarsi.patch").exists()


def test_what_is_applied_in_part_is_completed(job: Job) -> None:
    first = job.plan()
    write(first)
    (job.root / first.script).unlink()
    rest = job.plan()
    assert (rest.paths, rest.refusals) == ((first.script,), ())


def test_a_patch_that_is_there_already_is_not_written_again(job: Job) -> None:
    (job.root / "model.py").write_text("# mine\n")
    first = job.plan()
    assert "infrarsi.patch" in first.paths
    write(first)
    again = job.plan()
    assert again.is_applied
    assert again.refusals == first.refusals


def test_a_change_that_is_applied_but_not_committed_can_still_go_on_a_branch(in_git: Job) -> None:
    write(in_git.plan())
    write_on_branch(in_git.plan(), "faster")
    names = in_git.git("show", "--name-only", "--format=", "faster").split("\n")
    assert set(filter(None, names)) == {"model.py", "infrarsi_optimized.sh"}
