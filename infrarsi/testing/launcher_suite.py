"""What every `Bench` must do: subclass `LauncherSuite` and give it `make_bench`."""

import json
import os
import select
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from infrarsi.contract import (
    SINKS_TOKEN,
    ExecutionRequest,
    ExecutionResult,
    Outcome,
    Overlay,
    RunKind,
    SnapshotRef,
)
from infrarsi.errors import UserError
from infrarsi.node.digests import Digests
from infrarsi.node.patience import Rules
from infrarsi.ports import Bench

RULES = Rules(grace_s=0.5, stall_s=4.0, stall_factor=5.0)
"""Short limits, so that hangs are seen within seconds."""

SECRETS = {"INFRARSI_SUITE_API_KEY": "sk-suite-0123456789", "INFRARSI_SUITE_TOKEN": "hf_01234567"}
"""What `make_bench` must put into the environment that jobs are started from."""

NASTY = 'it\'s "my" $JOB; \u00e9'
"""A project's folder name with what shells and configuration files trip over."""

_WAIT_S = 60.0
_TRAIN = """\
import os, time
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(os.environ.get("STEPS", "100000"))):
    if step == int(os.environ.get("HANG_AT", "-1")):
        time.sleep(1000)
    time.sleep(float(os.environ.get("DELAY", "0")))
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, loss.item())
"""


class LauncherSuite:
    """Jobs that behave and jobs that do not, each through one bench of the subclass."""

    @classmethod
    def make_bench(cls) -> AbstractContextManager[Bench]:
        """A bench with RULES whose jobs are started from an environment that has SECRETS."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def held(cls) -> Iterator[Bench]:
        """One bench for all tests of the class."""
        with cls.make_bench() as bench:
            yield bench

    @pytest.fixture
    def lab(self, held: Bench, tmp_path: Path) -> "Iterator[Lab]":
        """A fresh project, with the bench to run it on."""
        lab = Lab(held, tmp_path)
        os.mkfifo(lab.mark)
        yield lab
        os.unlink(lab.mark)

    def test_a_job_that_makes_every_step_is_ok(self, lab: "Lab") -> None:
        result = lab.run("python train.py", steps=12)
        assert (result.outcome, result.exit_code) == (Outcome.OK, 0), result
        assert [len(rank.steps) for rank in result.ranks] == [12]
        assert result.ranks[0].sealed
        assert 0 < result.command_s < result.wall_s
        assert tuple(node.node_id for node in result.nodes) == lab.bench.node_ids
        assert "step 0 " in result.log_tail
        assert result.leftover == ()

    def test_nothing_but_the_log_and_the_record_stays_in_the_receipt(self, lab: "Lab") -> None:
        lab.run("mkdir out; echo x > out/a; echo y > $TMPDIR/b")
        kept = {path.name for path in lab.receipt.iterdir()}
        assert kept <= {"stdout.log", "witness"}

    def test_an_exit_code_is_an_error_of_the_job(self, lab: "Lab") -> None:
        result = lab.run("echo 'no such flag' >&2; exit 3")
        assert (result.outcome, result.exit_code) == (Outcome.USER_ERROR, 3)
        assert "exit code 3" in result.reason
        assert "no such flag" in result.reason

    def test_an_exception_is_named_with_its_place_in_the_project(self, lab: "Lab") -> None:
        result = lab.run("python main.py", files={"main.py": "\nraise ValueError('bad shape')\n"})
        assert result.outcome is Outcome.USER_ERROR
        assert "ValueError: bad shape (main.py:2)" in result.reason

    def test_a_job_that_ends_too_early_is_told_both_numbers(self, lab: "Lab") -> None:
        result = lab.run("STEPS=4 python train.py", steps=12)
        assert result.outcome is Outcome.USER_ERROR
        assert "4 optimizer steps" in result.reason
        assert "12" in result.reason

    def test_exit_code_0_without_a_step_is_no_success(self, lab: "Lab") -> None:
        assert lab.run("echo step 100 loss 0.1").outcome is Outcome.USER_ERROR

    def test_a_crash_is_named_by_its_signal(self, lab: "Lab") -> None:
        result = lab.run("kill -SEGV $$")
        assert result.outcome is Outcome.USER_ERROR
        assert "SIGSEGV" in result.reason

    def test_a_job_that_never_begins_is_ended_by_the_start_time_out(self, lab: "Lab") -> None:
        result = lab.run("echo waiting; sleep 1000", start_timeout_s=0.5)
        assert result.outcome is Outcome.TIMEOUT
        assert "no optimizer step within 0.5 s" in result.reason
        assert result.command_s < 5.0
        assert "waiting" in result.log_tail

    def test_a_job_that_hangs_between_steps_is_ended(self, lab: "Lab") -> None:
        result = lab.run("HANG_AT=6 python train.py", steps=12)
        assert result.outcome is Outcome.TIMEOUT
        assert "no optimizer step for 4 s" in result.reason
        assert "of 12" in result.reason

    def test_a_job_slower_than_asked_is_stopped_early(self, lab: "Lab") -> None:
        result = lab.run("DELAY=0.05 python train.py", steps=2000, slower_than_s=0.01)
        assert result.outcome is Outcome.STOPPED
        assert "the limit is 0.01 s" in result.reason
        assert len(result.ranks[0].steps) < 2000

    def test_stop_ends_a_job_that_swallows_sigterm(self, lab: "Lab") -> None:
        command = f"trap '' TERM; echo $$ > {lab.mark}; while :; do sleep 1; done"
        job = lab.bench.start(lab.request(command))
        pid = lab.marked()
        job.stop()
        result = job.wait(5.0)
        assert result is not None
        assert result.outcome is Outcome.STOPPED
        assert is_gone(pid)
        assert any(f"(pid {pid})" in name for name in result.leftover)

    def test_a_daemon_left_behind_is_killed_and_named(self, lab: "Lab") -> None:
        job = lab.bench.start(lab.request(f"(setsid sleep 1000 & echo $! > {lab.mark}); exit 5"))
        pid = lab.marked()
        result = job.wait(_WAIT_S)
        assert result is not None
        assert result.exit_code == 5
        assert is_gone(pid)
        assert any("sleep 1000" in name for name in result.leftover)

    def test_the_log_has_both_streams_in_order_and_its_end_is_in_the_result(
        self, lab: "Lab"
    ) -> None:
        result = lab.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done")
        lines = ["out 1", "err 1", "out 2", "err 2", "out 3", "err 3"]
        assert (lab.receipt / "stdout.log").read_text().splitlines() == lines
        assert result.log_tail.splitlines() == lines

    def test_no_execution_sees_what_another_wrote(self, lab: "Lab") -> None:
        command = (
            f"find . $TMPDIR {SINKS_TOKEN}/ -name trace; "
            f"touch trace $TMPDIR/trace {SINKS_TOKEN}/trace; "
            f"find . $TMPDIR {SINKS_TOKEN}/ -name trace | wc -l"
        )
        for _ in range(2):
            assert lab.run(command).log_tail.split() == ["3"]

    def test_sinks_can_be_named_without_quoting_whatever_the_path(self, lab: "Lab") -> None:
        overlay = Overlay(
            f'bash save.sh && cat {SINKS_TOKEN}/out/step.txt && echo $OUT && basename "$PWD"',
            files={
                "save.sh": f"mkdir -p {SINKS_TOKEN}/out\necho saved > {SINKS_TOKEN}/out/step.txt\n"
            },
            env={"OUT": f"{SINKS_TOKEN}/out"},
        )
        lines = lab.run_overlay(overlay).log_tail.splitlines()
        assert lines[0] == "saved"
        assert lines[1].endswith("/sinks/out")
        assert lines[2] == NASTY

    def test_secrets_and_rays_variables_do_not_reach_the_command(self, lab: "Lab") -> None:
        show = "python -c 'import json, os; print(json.dumps(dict(os.environ)))'"
        plain = lab.environment(show)
        assert not set(SECRETS) & set(plain)
        assert not [name for name in plain if name.startswith(("RAY_", "TUNE_"))]
        assert plain["WANDB_MODE"] == "offline"
        assert plain["PYTHONUNBUFFERED"] == "1"
        name, value = next(iter(SECRETS.items()))
        passed = lab.run(f"test \"${name}\" = {value[:5]}{value[5:]} && echo got it; echo ${name}",
                         env_pass=(name,))  # fmt: skip
        assert "got it" in passed.log_tail
        assert value not in (lab.receipt / "stdout.log").read_text()

    def test_a_changed_frozen_file_is_seen(self, lab: "Lab") -> None:
        frozen = {"train.py": lab.digest("train.py")}
        assert lab.run("true", frozen=frozen).frozen_changed == ()
        assert lab.run("echo >> train.py", frozen=frozen).frozen_changed == ("train.py",)

    def test_a_frozen_file_that_differs_from_the_start_is_not_run(self, lab: "Lab") -> None:
        result = lab.run("echo ran", frozen={"train.py": "sha256:0"})
        assert result.outcome is Outcome.USER_ERROR
        assert result.frozen_changed == ("train.py",)
        assert "ran" not in result.log_tail

    def test_changed_linked_data_is_seen(self, lab: "Lab") -> None:
        lab.link("data", {"train.bin": "0000"})
        assert lab.run("cat data/train.bin").log_tail == "0000"
        assert lab.run("echo 1 >> data/train.bin").frozen_changed == ("data/train.bin",)

    def test_several_nodes_are_refused_in_words(self, lab: "Lab") -> None:
        with pytest.raises(UserError, match=r"`launch.nodes` is 2"):
            lab.bench.start(lab.request("true", nodes=2))


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more, not even an unreaped one."""
    return not Path(f"/proc/{pid}").exists()


class Lab:
    """One project with a nasty name in a fresh folder, run on one bench.

    `mark` is a named pipe: a job writes a process id to it, `marked` reads that.
    """

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self._folder = folder / NASTY
        self._tree = self._folder / "snapshot" / "tree"
        self._tree.mkdir(parents=True)
        self._links: dict[str, str] = {}
        self.write({"train.py": _TRAIN})
        self.receipt = folder
        self.mark = f"/tmp/infrarsi-suite-{uuid.uuid4().hex[:8]}"

    def marked(self) -> int:
        """The process id that the job writes to `mark`; waits for it."""
        pipe = os.open(self.mark, os.O_RDONLY | os.O_NONBLOCK)
        try:
            assert select.select([pipe], [], [], _WAIT_S)[0], "the job wrote no process id"
            return int(os.read(pipe, 100))
        finally:
            os.close(pipe)

    def write(self, files: Mapping[str, str]) -> None:
        """Put files into the project."""
        for name, text in files.items():
            (self._tree / name).write_text(text)

    def link(self, name: str, files: Mapping[str, str]) -> None:
        """Make `name` a linked folder with these files."""
        target = self._folder / f"target of {name}"
        target.mkdir()
        for inner, text in files.items():
            (target / inner).write_text(text)
        self._links[name] = str(target)

    def digest(self, name: str) -> str | None:
        """The digest of a project's file."""
        return Digests().of(self._tree / name)

    def request(self, command: str, *, steps: int = 10, **fields: Any) -> ExecutionRequest:
        """A request for `command` with a receipt folder of its own."""
        overlay = fields.pop("overlay", None) or Overlay(command)
        (self._tree.parent / "links.json").write_text(json.dumps(self._links))
        execution_id = f"e-{uuid.uuid4().hex[:8]}"
        self.receipt = self._folder / "receipts" / execution_id
        return ExecutionRequest(
            execution_id=execution_id,
            kind=RunKind.TIMED,
            snapshot=SnapshotRef("digest", str(self._tree.parent), NASTY),
            overlay=overlay,
            receipt_dir=str(self.receipt),
            cache_dir=str(self._folder / "cache"),
            optimizer_steps=steps,
            ends_by="witness",
            witness_key="ab" * 16,
            **fields,
        )

    def run(
        self, command: str, *, files: Mapping[str, str] | None = None, **fields: Any
    ) -> ExecutionResult:
        """Run `command` to its end."""
        self.write(files or {})
        result = self.bench.start(self.request(command, **fields)).wait(_WAIT_S)
        assert result is not None, f"no result within {_WAIT_S} s"
        return result

    def run_overlay(self, overlay: Overlay) -> ExecutionResult:
        """Run an overlay to its end."""
        return self.run("", overlay=overlay)

    def environment(self, show: str) -> dict[str, str]:
        """The environment that a command sees; `show` prints it as JSON."""
        found: dict[str, str] = json.loads(self.run(show).log_tail)
        return found
