"""The collector against the guest's own channel, and what it reads back from its files."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infrarsi.contract.execution import RunKind
from infrarsi.contract.record import RankRecord
from infrarsi.node.collector import INJECT_DIR, SOCKET_VARIABLE, Collector, WitnessConfig
from infrarsi.node.rank_files import load_rank, load_ranks
from infrarsi.node.stamps import ask_for_stamps, receive
from infrarsi.witness.guest.wire import Channel

CONFIG = WitnessConfig("00" * 16, RunKind.TIMED, 4, "witness", ("/tmp",))


def hello(collector: Collector, rank: int = 0, world: int = 1) -> Channel:
    path = collector.environment({})[SOCKET_VARIABLE]
    return Channel(path, {"pid": os.getpid(), "rank": rank, "world_size": world})


def step(channel: Channel, index: int, *, look: bool = False) -> None:
    channel.beat(look)
    said = {"i": index, "w": 0.1 * index, "look": look, "loss": 2.0}
    channel.line("step", {**said, "digests": {"x": [1, 2**64 - 1]}})


def run_rank(collector: Collector, rank: int, world: int, steps: int) -> Channel:
    channel = hello(collector, rank, world)
    channel.line("head", {"torch": "2"})
    for index in range(steps):
        step(channel, index)
    channel.drain(10.0)  # more than the socket holds goes out with the next line, but none comes
    channel.socket.setblocking(False)
    return channel


def wait_until(collector: Collector, steps: int) -> None:
    """Returns once the thread has read so many steps; fails after ten seconds."""
    limit = time.monotonic() + 10
    while collector.progress().steps < steps:
        assert time.monotonic() < limit
        os.sched_yield()


def test_a_rank_is_told_the_configuration_and_read_back(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        collector.start_clock()
        channel = run_rank(collector, 0, 1, 3)
        assert channel.config == {
            "key": "00" * 16,
            "kind": "timed",
            "optimizer_steps": 4,
            "ends_by": "witness",
            "roots": ["/tmp"],
        }
        channel.line("end", {"steps": 3, "peak_bytes": 12, "world_size": 1})
        channel.wait_for_bye(10.0)
        channel.abandon()
        (record,) = collector.ranks()
    assert record.sealed
    assert record.problems == ()
    assert record.peak_bytes == 12
    assert [one.index for one in record.steps] == [0, 1, 2]
    assert record.steps[0].digests == {"x": (1, 2**64 - 1)}
    assert 0 <= record.steps[0].harness_s <= record.steps[2].harness_s < 60
    assert RankRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert load_ranks(tmp_path) == (record,)


def test_progress_is_that_of_the_slowest_rank_and_leaves_out_close_looks(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        assert collector.progress().steps == 0
        assert collector.progress().last_beat_s is None
        first = run_rank(collector, 0, 2, 6)
        step(first, 6, look=True)
        second = run_rank(collector, 1, 2, 5)
        wait_until(collector, 5)
        progress = collector.progress()
        assert progress.ranks == 2
        assert progress.sealed == 0
        assert progress.steady_steps == 4
        assert progress.step_time_s is not None
        assert progress.last_beat_s is not None
        first.abandon()
        second.abandon()


def test_sealed_ranks_are_let_go_together(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channels = [run_rank(collector, rank, 2, 2) for rank in (0, 1)]
        channels[0].line("end", {"steps": 2})
        channels[0].socket.settimeout(0.2)
        with pytest.raises(TimeoutError, match="timed out"):
            channels[0]._read_line()
        channels[1].line("end", {"steps": 2})
        for channel in channels:
            channel.socket.settimeout(10.0)
            assert channel._read_line() == b"bye\n"
            channel.abandon()
        assert [record.sealed for record in collector.ranks()] == [True, True]


def test_a_rank_that_died_does_not_hold_the_others(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channels = [run_rank(collector, rank, 2, 2) for rank in (0, 1)]
        channels[1].abandon()
        channels[0].line("end", {"steps": 2})
        channels[0].socket.settimeout(10.0)
        assert channels[0]._read_line() == b"bye\n"
        channels[0].abandon()
        assert [record.sealed for record in collector.ranks()] == [True, False]


def test_a_process_that_only_connects_leaves_no_record(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channel = hello(collector)
        channel.abandon()
        assert collector.ranks() == ()


def test_the_socket_is_gone_afterwards_and_a_stale_environment_does_no_harm(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        env = collector.environment({"PYTHONPATH": "/a:/b"})
    assert env["PYTHONPATH"] == f"{INJECT_DIR}{os.pathsep}/a:/b"
    assert not os.path.exists(env[SOCKET_VARIABLE])
    assert len(env[SOCKET_VARIABLE]) < 100


def test_finish_does_not_wait_for_ever_for_a_process_that_lives_on(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channel = run_rank(collector, 0, 1, 2)
        wait_until(collector, 2)
        collector._drain_s = 0.1
        collector.finish()
        (record,) = load_ranks(tmp_path)
        channel.abandon()
    assert not record.sealed
    assert len(record.steps) == 2


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The file of a sealed record."""
    with Collector(tmp_path, CONFIG) as collector:
        channel = run_rank(collector, 0, 1, 3)
        channel.line("end", {"steps": 3})
        channel.abandon()
    path = tmp_path / "witness" / "rank0.jsonl"
    assert load_rank(path).sealed
    return path


def test_an_edited_line_breaks_the_chain(whole: Path) -> None:
    whole.write_text(whole.read_text().replace('"loss":2.0', '"loss":1.9', 1))
    record = load_rank(whole)
    assert not record.sealed
    assert any("chain of the record breaks at its line 4" in text for text in record.problems)


def test_a_missing_line_breaks_the_chain(whole: Path) -> None:
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text("".join(lines[:3] + lines[5:]))
    assert not load_rank(whole).sealed


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_last_line_is_seen(whole: Path, cut: int) -> None:
    whole.write_bytes(whole.read_bytes()[: -1 - cut])
    record = load_rank(whole)
    assert not record.sealed
    assert len(record.steps) == 3


def test_a_record_cut_before_its_end_line_is_not_sealed(whole: Path) -> None:
    lines = whole.read_text().splitlines(keepends=True)
    whole.write_text("".join(lines[:-1]))
    record = load_rank(whole)
    assert not record.sealed
    assert record.problems == ()


def test_an_unchained_line_from_the_job_is_a_problem(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channel = run_rank(collector, 0, 1, 1)
        channel.socket.setblocking(True)
        channel.socket.sendall(b'{"k":"step","i":1,"loss":0.0}\nnot even json\n')
        channel.line("end", {"steps": 2})
        channel.abandon()
        (record,) = collector.ranks()
    assert not record.sealed
    assert len(record.steps) == 1


def test_two_processes_of_one_rank_each_have_a_file(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        for _ in range(2):
            run_rank(collector, 0, 1, 1).abandon()
        assert len(collector.ranks()) == 2
    assert sorted(os.listdir(tmp_path / "witness")) == ["rank0.1.jsonl", "rank0.jsonl"]


FULL_DISK = """
import json, os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_collector import CONFIG, Collector, run_rank, wait_until
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
with Collector(Path(sys.argv[1]), CONFIG) as collector:
    channel = run_rank(collector, 0, 1, 400)
    wait_until(collector, 400)
    channel.line("end", {"steps": 400, "world_size": 1})
    channel.wait_for_bye(10.0)
    channel.abandon()
    (record,) = collector.ranks()
print(json.dumps([record.sealed, list(record.problems), len(record.steps)]))
"""


def test_a_disk_that_fills_costs_the_record_and_holds_nobody_up(tmp_path: Path) -> None:
    # In a process of its own: the limit holds for every file, the test's own output included.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    sealed, problems, steps = json.loads(done.stdout)
    assert not sealed
    assert "the record could not be written: File too large" in problems
    assert 0 < steps < 400


def test_a_record_that_cannot_be_opened_is_told_to_the_process(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        (tmp_path / "witness/rank0.jsonl").mkdir()
        with pytest.raises(ValueError, match="Expecting value"):
            hello(collector)
        assert collector.progress().ranks == 0


def test_a_line_is_stamped_when_it_was_sent_however_late_it_is_read(tmp_path: Path) -> None:
    server, client = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with server, client:
        server.setblocking(False)
        ask_for_stamps(server)
        before = time.monotonic()
        client.send(b"first")
        between = time.monotonic()
        limit = time.monotonic() + 0.2
        while time.monotonic() < limit:
            os.sched_yield()
        client.send(b"second")
        after = time.monotonic()
        first, first_s = receive(server)
        second, second_s = receive(server)
        with pytest.raises(BlockingIOError):
            receive(server)
    assert (first, second) == (b"first", b"second")
    assert first_s is not None
    assert second_s is not None
    slack = 0.01  # between two clocks that are read one after the other on a busy machine
    assert before - slack <= first_s <= between + slack
    assert limit - slack <= second_s <= after + slack


def test_a_line_longer_than_a_packet_arrives_whole(tmp_path: Path) -> None:
    with Collector(tmp_path, CONFIG) as collector:
        channel = hello(collector)
        channel.line("head", {"torch": "2", "long": "x" * 300_000})
        channel.line("end", {"steps": 0, "world_size": 1})
        channel.drain(10.0)
        channel.wait_for_bye(10.0)
        channel.abandon()
        (record,) = collector.ranks()
    assert record.sealed
    assert len(record.head["long"]) == 300_000
