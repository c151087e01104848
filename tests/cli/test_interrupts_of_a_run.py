"""Ctrl-C, SIGTERM and `kill -9` in every stage: what was done is kept, nothing is left running.

One run is killed in its search; most tests go on from a copy of what it had written by then.
"""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from spawned import Site, Tree

pytestmark = pytest.mark.ray
SHORT = ("--no-doctor", "--screens", "3", "--searcher", "random")


class Killed:
    """A site whose run was killed by SIGKILL while the job of its second trial ran."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.site.fill()
        assert self.site.infrarsi("init", "job/train.sh").code == 0
        self.contract = self.site.job / "infrarsi.yaml"
        self.contract_text = self.contract.read_text().replace("patches: all", "patches: none")
        self.contract.write_text(self.contract_text)
        self.site.announce()
        self.before: Tree = self.site.tree()
        started = self.site.start("run", "job", *SHORT)
        started.until_job("trial-002")
        started.kill()
        self.out = started.end().out
        self.left = self.site.left()
        self.run = str(self.site.runs()[0].relative_to(site.folder))
        self.saved = site.folder / "saved"
        shutil.copytree(site.folder / ".infrarsi", self.saved)

    def restore(self) -> None:
        """The state just after the kill."""
        shutil.rmtree(self.site.folder / ".infrarsi")
        shutil.copytree(self.saved, self.site.folder / ".infrarsi")
        self.contract.write_text(self.contract_text)

    def events(self, name: str) -> list[dict[str, object]]:
        """The journal's events of one name."""
        return [event for event in self.site.events() if event["event"] == name]


@pytest.fixture(scope="module")
def after_kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """The run that is killed once for all tests."""
    site = Site(tmp_path_factory.mktemp("killed"))
    try:
        yield Killed(site)
    finally:
        site.close()


@pytest.fixture
def killed(after_kill: Killed) -> Iterator[Killed]:
    """The same, as it was just after the kill; the test may do with it what it likes."""
    yield after_kill
    assert after_kill.site.left() == []
    assert after_kill.site.tree() == after_kill.before
    after_kill.restore()


@pytest.mark.slow
def test_nothing_of_a_killed_run_is_left(killed: Killed) -> None:
    assert "trial  1 " in killed.out
    assert killed.left == []
    assert not list(Path(killed.site.folder, killed.run).glob("receipts/*/work"))


@pytest.mark.slow
def test_a_killed_run_says_how_to_complete_it(killed: Killed) -> None:
    report = killed.site.infrarsi("report")
    assert (report.code, report.err) == (0, "")
    assert "**Not finished.** Complete it with `infrarsi finish " in report.out
    plan = killed.site.infrarsi("finish", "--dry-run")
    assert (plan.code, plan.err) == (0, "")
    assert "Would verify against the reference, best first:\n  micro_batch=" in plan.out
    applied = killed.site.infrarsi("apply", "--write")
    assert applied.code == 2, "nothing was written"
    assert f"\n  fix: complete it with `infrarsi finish {killed.run}`" in applied.message


@pytest.mark.slow
def test_a_run_is_not_resumed_under_another_contract(killed: Killed) -> None:
    text = killed.contract_text.replace("loss_tolerance: 0.03", "loss_tolerance: 0.3")
    killed.contract.write_text(text)
    done = killed.site.infrarsi("run", "--resume", killed.run)
    assert done.code == 2
    assert f"{killed.run}: the contract is not the one" in done.message
    assert "invariants changed" in done.message


@pytest.mark.slow
def test_a_second_process_is_kept_out_and_a_second_interrupt_ends_at_once(killed: Killed) -> None:
    journal = Path(killed.site.folder, killed.run, "journal.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"n": 17, "t"')
    changed = killed.site.job / "notes.txt"
    changed.write_text("of the user\n")
    started = killed.site.start("run", *SHORT, "--resume")
    started.until_job("trial-002-again1")
    second = killed.site.infrarsi("finish", killed.run)
    assert second.code == 2
    owner = started.process.pid
    assert f"another process (pid {owner}) is working in this run" in second.message
    started.interrupt()
    started.until("Stopping in good order; Ctrl-C once more ends all at once.")
    done = started.interrupt().end()
    assert done.code == 130
    assert done.message.startswith("infrarsi: stopped at once; continue with `infrarsi run --res")
    changed.unlink()
    assert "of the journal was torn and is dropped" in done.out
    assert "the copy of your files that it began with; changed since: notes.txt." in done.out
    assert "Reference" not in done.out, "what the journal has is not run again"


def test_an_interrupt_in_the_reference_ends_the_run(site: Site) -> None:
    site.fill()
    assert site.infrarsi("init", "job/train.sh").code == 0
    site.announce()
    before = site.tree()
    started = site.start("optimize", "job/train.sh", "--yes", *SHORT)
    done = started.until_job("ref-01-timed").interrupt().end()
    run = site.runs()[0].relative_to(site.folder)
    assert done.code == 130
    assert done.message == f"infrarsi: stopped; continue with `infrarsi run --resume {run}`\n"
    assert site.tree() == before
    assert site.events()[-1]["event"] == "interrupted"
    assert [e["outcome"] for e in site.events() if e["event"] == "execution"] == ["stopped"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupt_in_the_search_verifies_the_best_so_far(killed: Killed, number: int) -> None:
    started = killed.site.start("run", "--resume", killed.run, *SHORT)
    started.until_job("trial-002-again1")
    done = started.interrupt(number).end()
    assert (done.code, done.err) == (0, "")
    assert "Now the best so far is verified" in done.out
    result = json.loads((killed.site.runs()[0] / "result.json").read_text())
    assert (result["stopped_by"], result["promoted"], result["trials"]) == ("interrupt", True, 1)
    assert "Ended by" not in done.out
    assert len(killed.events("trial")) == 1


@pytest.mark.slow
def test_an_interrupt_before_the_first_trial_has_nothing_to_verify(killed: Killed) -> None:
    journal = Path(killed.site.folder, killed.run, "journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if json.loads(line)["event"] == "proposal")
    journal.write_text("".join(lines[:first]))
    started = killed.site.start("run", "--resume", killed.run, *SHORT)
    done = started.until_job("trial-001-again1").interrupt().end()
    assert done.code == 130
    assert "`infrarsi run --resume" in done.message
    assert killed.events("search_ended") == []


@pytest.mark.slow
def test_a_stop_in_the_search_can_be_gone_on_with(killed: Killed) -> None:
    stop = ("--on-interrupt", "stop")
    started = killed.site.start("run", "--resume", killed.run, *SHORT, *stop)
    started.until_job("trial-002-again1")
    done = started.interrupt().end()
    assert done.code == 130
    assert "`infrarsi run --resume" in done.message
    again = killed.site.infrarsi("run", "--resume", killed.run, *SHORT)
    assert (again.code, again.err) == (0, "")
    assert len(killed.events("reference_done")) == 1
    assert len(killed.events("trial")) == 2, "every other value of the one knob"
    assert [e["stopped_by"] for e in killed.events("search_ended")] == ["space_exhausted"]
    names = [e["execution_id"] for e in killed.events("execution")]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_finish_verifies_what_a_killed_run_found(killed: Killed) -> None:
    done = killed.site.infrarsi("finish")
    assert (done.code, done.err) == (0, "")
    assert "Verified: " in done.out
    assert "`infrarsi apply --write " in done.out
    assert [e["stopped_by"] for e in killed.events("search_ended")] == ["cut_off"]
    assert killed.events("finished")[0]["promoted"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupt_in_the_verification_keeps_its_pairs(killed: Killed, number: int) -> None:
    started = killed.site.start("finish", killed.run, "-v")
    done = started.until("    2 pairs: ").interrupt(number).end()
    assert done.code == 130
    assert "`infrarsi finish" in done.message
    assert len(killed.events("pair")) == 2
    again = killed.site.infrarsi("finish")
    assert (again.code, again.err) == (0, "")
    assert "Verified: " in again.out
    assert [e["index"] for e in killed.events("pair")] == [0, 1, 2, 3]
    assert len(killed.events("audit")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupt_while_recipes_are_tried_ends_the_run(site: Site, number: int) -> None:
    site.fill()
    before = site.tree()
    started = site.start("optimize", "job/train.sh", "--yes", *SHORT)
    done = started.until("Code changes that fit are checked").interrupt(number).end()
    assert done.code == 130
    assert "`infrarsi run --resume" in done.message
    assert site.tree() == before
    assert not (site.runs()[0] / "recorded").exists()
    assert [e for e in site.events() if e["event"] == "recipe"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=["ctrl-c", "sigterm"],
)
@pytest.mark.parametrize(
    "moment",
    ["session_latest", pytest.param("session_latest/sockets/raylet", marks=pytest.mark.slow)],
)
def test_an_interrupt_while_ray_starts_leaves_nothing(site: Site, number: int, moment: str) -> None:
    site.fill()
    started = site.start("optimize", "job/train.sh", "--yes", *SHORT)
    started.until_there(Path("/tmp"), f"irsi-{started.process.pid}-*/{moment}")
    done = started.interrupt(number).end()
    assert done.code == 130
    assert done.message == "infrarsi: stopped; nothing of it is running any more\n"
    assert site.runs() == []
