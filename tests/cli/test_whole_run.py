"""One real run through all stages, and what can be asked of it afterwards."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from spawned import Done, Site, Tree
from terminal import ended, in_terminal

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]  # the shared run takes two minutes
TOKENS = {"HF_TOKEN": "hf_0123456789abcdefgh", "WANDB_API_KEY": "40charsofsecret4711"}
RESULT_KEYS = {
    *("schema", "run_id", "stack", "promoted", "speedup", "speedup_low", "speedup_high"),
    *("reference_step_s", "candidate_step_s", "mfu_reference", "mfu_candidate", "settings"),
    *("patches", "trials", "outcomes", "pairs", "gpu_hours", "wall_s", "overhead_per_trial_s"),
    *("llm", "coverage", "stopped_by"),
    *("name", "confidence", "net_speedup", "break_even_step", "calibration"),
}


class Finished:
    """A site where `optimize --dry-run` has run to its end; `optimized` is how."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.site.fill("loading")
        self.before = self.site.tree()
        assert self.site.infrarsi("init", "job/train.sh").code == 0
        self.contract = self.site.job / "infrarsi.yaml"
        text = self.contract.read_text().replace("patches: all", "patches: [dataloader_workers]")
        self.contract.write_text(text)
        self.contract_text = text
        self.optimized = self.site.infrarsi(
            *("optimize", "job/train.sh", "--llm", "none", "--yes", "--dry-run"),
            *("--no-doctor", "--screens", "2", "-v"),
        )
        self.after: Tree = self.site.tree()

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.site.runs()[0]

    def restore(self) -> None:
        """Put the user's files back."""
        for name in set(self.site.tree()) - set(self.before):
            (self.site.job / name).unlink()
        for name, (content, mode, time_ns) in self.before.items():
            path = self.site.job / name
            path.write_bytes(content)
            path.chmod(mode)
            os.utime(path, ns=(time_ns, time_ns))
        self.contract.write_text(self.contract_text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The run that all tests here share."""
    site = Site(tmp_path_factory.mktemp("whole"), extra=dict(TOKENS))
    try:
        yield Finished(site)
    finally:
        site.close()


@pytest.fixture
def finished(whole: Finished) -> Iterator[Finished]:
    """The same; afterwards the user's files are as they were."""
    yield whole
    whole.restore()


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@localhost"]
    ran = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_it_verifies_a_faster_job_and_touches_nothing(whole: Finished) -> None:
    done = whole.optimized
    assert (done.code, done.err) == (0, "")
    assert whole.after == whole.before
    found = re.search(r"^Verified: ([0-9.]+)x faster", done.out, re.M)
    assert found is not None
    assert 1.5 < float(found[1]) < 3.0  # twice as fast on a quiet machine
    assert "num_workers=2" in done.out
    assert f"Write it with `infrarsi apply --write .infrarsi/runs/{whole.run.name}`." in done.out


def test_nothing_of_it_is_left_behind(whole: Finished) -> None:
    assert whole.site.left() == []
    assert {path.name for path in whole.run.iterdir()} == {
        *("contract.yaml", "journal.jsonl", "run.log", "result.json", "pack.yaml", "REPORT.md"),
        "experience.jsonl",
        *("candidates", "receipts", "snapshot", ".key", ".lock"),
    }
    kept = {path.name for path in whole.run.glob("receipts/*/*")}
    assert kept == {"receipt.json", "stdout.log", "witness"}


def test_the_run_is_in_the_library_and_can_be_shared(whole: Finished) -> None:
    (stored,) = whole.site.library.iterdir()
    assert stored.name == f"cpu-native-ddp-{whole.run.name}.jsonl"
    assert f"Experience stored: {stored}" in whole.optimized.out
    stats = whole.site.infrarsi("exp", "stats").out
    assert stats.startswith(f"1 pack; your own are in {whole.site.library}\n  {stored.stem}: ")
    assert "a verified change of " in stats
    shared = whole.site.folder / "shared.jsonl"
    named = ("--pack-id", "my-pack", "--title", "a loader that waits")
    done = whole.site.infrarsi("exp", "export", str(whole.run), "--out", str(shared), *named)
    assert (done.code, done.err) == (0, "")
    valid = whole.site.infrarsi("exp", "validate", str(shared))
    assert valid.out.startswith(f"{shared}: my-pack: a loader that waits; ")
    for private in (str(whole.site.folder), whole.site.job.name + "/", socket.gethostname()):
        assert private not in shared.read_text()
    again = whole.site.infrarsi("exp", "export", str(whole.run), "--out", str(shared))
    assert (again.code, "exists already" in again.message) == (2, True)
    shared.unlink()


def test_no_token_is_in_any_file_nor_reaches_the_job(whole: Finished) -> None:
    for path in (whole.site.folder / ".infrarsi").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not [name for name, value in TOKENS.items() if value.encode() in content], path
    logs = [path.read_text() for path in whole.run.glob("receipts/*/stdout.log")]
    assert len(logs) > 10
    for log in logs:
        variables = re.search(r"^variables: (.*)$", log, re.MULTILINE)
        assert variables is not None
        assert not set(TOKENS) & set(variables[1].split())
        assert not [name for name in variables[1].split() if name.startswith("RAY_")]
        assert "\ntoken: None\n" in log


def test_the_result_has_exactly_the_keys_that_programs_may_rely_on(whole: Finished) -> None:
    result = json.loads((whole.run / "result.json").read_text())
    assert set(result) == RESULT_KEYS
    assert result["promoted"] is True
    assert result["speedup_low"] < result["speedup"] < result["speedup_high"]
    assert result["reference_step_s"] / result["candidate_step_s"] == pytest.approx(
        result["speedup"]
    )
    assert (result["patches"], result["settings"]) == (["dataloader_workers"], {})
    assert (result["mfu_reference"], result["mfu_candidate"]) == (None, None)
    assert result["stopped_by"] == "space_exhausted"
    assert result["trials"] == 1
    assert result["gpu_hours"]["total"] > result["gpu_hours"]["verification"] > 0


def test_what_a_person_reads_is_narrow_and_says_how_long_it_takes(whole: Finished) -> None:
    lines = whole.optimized.out.splitlines()
    assert any(line.startswith("Search: up to 1 trial of about") for line in lines)
    assert any(line.startswith("  A pair takes about") for line in lines)
    at = next(n for n, line in enumerate(lines) if line.startswith("The change, to "))
    shown = lines[:at]
    assert [line for line in shown if len(line) > 160] == []


def test_the_report_is_printed(whole: Finished) -> None:
    done = whole.site.infrarsi("report")
    assert (done.code, done.err) == (0, "")
    assert done.out == (whole.run / "REPORT.md").read_text()
    assert "num_workers=2" in done.out
    assert "of 16 checks" in done.out


def test_apply_shows_and_writes_only_when_told_to(finished: Finished) -> None:
    site = finished.site
    shown = site.infrarsi("apply")
    assert (shown.code, shown.err) == (0, "")
    assert f"The change, to train.py, infrarsi_optimized.sh in job ({site.job}):" in shown.out
    assert "num_workers=2" in shown.out
    assert site.tree() == finished.before
    written = site.infrarsi("apply", "--write")
    assert (written.code, written.err) == (0, "")
    new = site.tree()
    assert set(new) - set(finished.before) == {"infrarsi_optimized.sh"}
    assert [name for name in finished.before if new[name] != finished.before[name]] == ["train.py"]
    ran = subprocess.run(
        ["bash", "job/infrarsi_optimized.sh"],
        cwd=site.folder,
        env=site.environment(),
        capture_output=True,
        text=True,
    )
    assert "step 11 loss" in ran.stdout, ran.stderr
    assert (site.job / "out" / "model.pt").exists()
    (site.job / "out" / "model.pt").unlink()
    report = (finished.run / "REPORT.md").read_bytes()
    new = site.tree()
    again = site.infrarsi("apply", "--write")
    assert (again.code, again.err) == (0, "")
    assert "Already applied by this run; nothing to do" in again.out
    assert site.tree() == new, "no script anew, no infrarsi.patch"
    assert (finished.run / "REPORT.md").read_bytes() == report


def test_a_file_that_changed_since_is_left_alone(finished: Finished) -> None:
    site = finished.site
    program = site.job / "train.py"
    program.write_text(program.read_text() + "# mine\n")
    mine = site.tree()
    done = site.infrarsi("apply", "--write")
    assert done.code == 0
    assert "`train.py` is not what the run measured any more" in done.out
    new = site.tree()
    assert set(new) - set(mine) == {"infrarsi_optimized.sh", "infrarsi.patch"}
    assert {name: new[name] for name in mine} == mine
    program.write_text(program.read_text().removesuffix("# mine\n"))
    git(site.job, "apply", "--check", "infrarsi.patch")


def test_a_dirty_git_tree_gets_only_the_script_and_the_patch(finished: Finished) -> None:
    site = finished.site
    program = site.job / "train.py"
    git(site.job, "init", "-q")
    program.write_text("# as it was committed\n")
    git(site.job, "add", "train.py", "train.sh")
    git(site.job, "commit", "-qm", "first")
    program.write_bytes(finished.before["train.py"][0])
    before = site.tree()
    done = site.infrarsi("apply", "--write")
    assert done.code == 0
    assert "`train.py` has changes that are not committed" in done.out
    new = site.tree()
    assert set(new) - set(before) == {"infrarsi_optimized.sh", "infrarsi.patch"}
    assert {name: new[name] for name in before} == before
    forget_git(site)


def test_a_branch_gets_the_change_and_the_work_tree_none(finished: Finished) -> None:
    site = finished.site
    git(site.job, "init", "-q")
    git(site.job, "add", "train.py", "train.sh")
    git(site.job, "commit", "-qm", "first")
    done = site.infrarsi("apply", "--branch", "faster")
    assert (done.code, done.err) == (0, "")
    assert site.tree() == finished.before
    assert "num_workers=2" in git(site.job, "show", "faster:train.py")
    assert git(site.job, "show", "--name-only", "--format=", "faster").split() == [
        "infrarsi_optimized.sh",
        "train.py",
    ]
    again = site.infrarsi("apply", "--branch", "faster")
    assert again.code == 2
    assert "there is a branch 'faster' already" in again.message
    forget_git(site)


def forget_git(site: Site) -> None:
    subprocess.run(["rm", "-rf", str(site.job / ".git")], check=True)


def test_another_optimized_script_is_not_overwritten(finished: Finished) -> None:
    site = finished.site
    (site.job / "infrarsi_optimized.sh").write_text("echo mine\n")
    before = site.tree()
    done = site.infrarsi("apply", "--write")
    assert done.code == 2
    assert "was not written by InfraRSI" in done.message
    assert site.tree() == before


def test_finish_and_resume_have_nothing_left_to_do(finished: Finished) -> None:
    journal = (finished.run / "journal.jsonl").read_bytes()
    site = finished.site
    for call in (["finish"], ["run", "--resume", str(finished.run)], ["finish", "--dry-run"]):
        done: Done = site.infrarsi(*call)
        assert (done.code, done.err) == (0, ""), call
        assert site.tree() == finished.before
    assert "`infrarsi apply --write" in site.infrarsi("finish").out
    assert (finished.run / "journal.jsonl").read_bytes() == journal


def test_a_policy_of_never_binds_yes(finished: Finished) -> None:
    contract = finished.run / "contract.yaml"
    text = contract.read_text()
    contract.write_text(text + "policy: {apply: never}\n")
    try:
        done = finished.site.infrarsi("finish", "--yes")
    finally:
        contract.write_text(text)
    assert done.code == 0
    assert "infrarsi.yaml says `policy: {apply: never}`" in done.out
    assert finished.site.tree() == finished.before


def test_a_project_that_is_gone_is_named(finished: Finished) -> None:
    elsewhere = finished.site.folder / "elsewhere"
    finished.site.job.rename(elsewhere)
    try:
        done = finished.site.infrarsi("apply")
    finally:
        elsewhere.rename(finished.site.job)
    assert done.code == 2
    assert "the project of this run is not there any more" in done.message


def test_a_torn_last_line_is_dropped(finished: Finished) -> None:
    journal = finished.run / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"n": 99, "eve')
    try:
        done = finished.site.infrarsi("apply")
    finally:
        journal.write_bytes(whole)
    assert (done.code, done.err) == (0, "")
    assert "num_workers=2" in done.out


def test_damage_in_the_middle_of_the_journal_is_refused(finished: Finished) -> None:
    journal = finished.run / "journal.jsonl"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{broken\n", *lines[2:]]))
    try:
        done = finished.site.infrarsi("apply")
    finally:
        journal.write_bytes(whole)
    assert done.code == 2
    assert "journal.jsonl: line 2 is damaged and more lines follow it" in done.message


def test_a_receipt_that_is_gone_is_the_worlds_fault(finished: Finished) -> None:
    """An unfinished run reads the reference's receipts back."""
    journal = finished.run / "journal.jsonl"
    receipt = finished.run / "receipts" / "ref-01-timed" / "receipt.json"
    whole, hidden = journal.read_bytes(), receipt.with_suffix(".hidden")
    lines = whole.splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["event"] not in ("finished", "applied")]
    journal.write_bytes(b"".join(kept))
    receipt.rename(hidden)
    try:
        done = finished.site.infrarsi("finish")
    finally:
        hidden.rename(receipt)
        journal.write_bytes(whole)
    assert done.code == 3
    assert "ref-01-timed/receipt.json: the receipt cannot be read" in done.message
    assert finished.site.tree() == finished.before


ASKED = r"Apply this change\? \[y/N\] "


@pytest.mark.parametrize("answer", ["\r", "n\r", "q\r", "\x04", "\x03"], ids=repr)
def test_without_a_yes_nothing_is_applied(finished: Finished, answer: str) -> None:
    child = in_terminal(finished.site, "finish")
    child.expect(ASKED)
    assert "num_workers=2" in child.before
    child.send(answer)
    code, text = ended(child)
    assert code == (130 if answer == "\x03" else 0)
    assert "othing was changed. Write it with `infrarsi apply --write" in text.replace("\n", " ")
    assert finished.site.tree() == finished.before


def test_a_yes_applies_the_change(finished: Finished) -> None:
    child = in_terminal(finished.site, "finish")
    child.expect(ASKED)
    child.send("y\r")
    code, text = ended(child)
    assert code == 0
    assert "Wrote train.py, infrarsi_optimized.sh in job." in text
    assert b"num_workers=2" in (finished.site.job / "train.py").read_bytes()
