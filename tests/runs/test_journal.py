"""The journal survives what can happen to a file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infrarsi.errors import ExternalError, UserError
from infrarsi.runs import Journal, RunDirectory, RunState, read
from infrarsi.runs.directory import write_atomically


class FixedClock:
    """A clock that stands still."""

    def monotonic(self) -> float:
        return 5.0

    def now(self) -> float:
        return 1000.0


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", FixedClock())
    journal.append("run_started", name="job")
    journal.append("search_ended", stopped_by="screens")
    journal.close()
    events = read(tmp_path / "journal.jsonl").events
    assert [(e["n"], e["event"]) for e in events] == [(0, "run_started"), (1, "search_ended")]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_dropped_with_a_note_and_writing_goes_on(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, FixedClock())
    journal.append("run_started", name="job")
    journal.append("search_ended", stopped_by="screens")
    journal.close()
    os.truncate(path, path.stat().st_size - cut)
    again = Journal(path, FixedClock())
    assert "line 2" in again.note
    again.append("search_ended", stopped_by="again")
    again.close()
    assert [e.get("stopped_by") for e in read(path).events] == [None, "again"]


def test_damage_before_the_last_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, FixedClock())
    for _ in range(3):
        journal.append("interrupted", stage="search")
    journal.close()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{garbage\n" + lines[2])
    with pytest.raises(UserError, match="line 2 is damaged"):
        read(path)


def test_a_missing_line_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, FixedClock())
    for _ in range(4):
        journal.append("interrupted", stage="search")
    journal.close()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[2] + lines[3])
    with pytest.raises(UserError, match="line 2 is damaged"):
        read(path)


def test_an_event_is_on_disk_when_append_has_returned(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from infrarsi.runs import Journal\n"
        "class C:\n"
        "    monotonic = now = staticmethod(time.time)\n"
        "j = Journal(Path(sys.argv[1]), C())\n"
        "for i in range(1000):\n"
        "    j.append('interrupted', stage=str(i))\n"
        "    print(i, flush=True)\n"
    )
    path = tmp_path / "journal.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = -1
    for line in process.stdout:
        said = int(line)
        if said == 20:
            process.send_signal(signal.SIGKILL)
            break
    said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.wait()
    process.stdout.close()
    assert len(read(path).events) >= said + 1


def test_a_full_disk_is_an_external_error() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    journal = Journal(Path("/dev/null"), FixedClock())
    os.close(journal._fd)
    journal._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(ExternalError, match="cannot be written"):
        journal.append("run_started")
    journal.close()


def test_a_second_process_cannot_own_the_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, now=0.0)
    Journal(run.journal, FixedClock()).close()
    run.lock()
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from infrarsi.errors import UserError\nfrom infrarsi.runs import RunDirectory\n"
        "try:\n    RunDirectory.open(Path(sys.argv[1])).lock()\n"
        "except UserError as e:\n    print(e.what)\n"
    )
    command = [sys.executable, "-c", program, str(run.path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"pid {os.getpid()}" in out
    run.unlock()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_the_newest_run_is_the_last_by_time(tmp_path: Path) -> None:
    for now in (100.0, 900_000.0, 5_000.0):
        run = RunDirectory.create(tmp_path, now=now)
        Journal(run.journal, FixedClock()).close()
    newest = RunDirectory.newest(tmp_path)
    assert newest.run_id == max(p.name for p in tmp_path.iterdir())


def test_no_run_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run here"):
        RunDirectory.newest(tmp_path / "runs")


def test_an_atomic_write_leaves_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \udcff")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_state_passes_over_events_of_a_newer_version() -> None:
    events = [
        {"n": 0, "t": 1.0, "event": "run_started", "name": "job"},
        {"n": 1, "t": 2.0, "event": "something_new", "x": 1},
        {"n": 2, "t": 3.0, "event": "search_ended", "stopped_by": "screens"},
    ]
    state = RunState.of(json.loads(json.dumps(events)))
    assert state.stopped_by == "screens"
    assert state.wall_s == 2.0


def test_the_time_between_an_interrupt_and_the_next_process_does_not_count() -> None:
    times = {"run_started": 10.0, "interrupted": 15.0, "resumed": 1000.0, "finished": 1007.0}
    events: list[dict[str, object]] = [
        {"n": n, "t": t, "event": event, "stage": "search"}
        for n, (event, t) in enumerate(times.items())
    ]
    assert RunState.of(events).wall_s == 12.0
    applied = {"n": 4, "t": 5000.0, "event": "applied", "files": []}
    assert RunState.of([*events, applied]).wall_s == 12.0


def test_a_failed_append_leaves_no_half_line_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, FixedClock())
    journal.append("interrupted", stage="1")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))  # a full disk
    with pytest.raises(ExternalError, match="only 10 of"):
        journal.append("interrupted", stage="2")
    monkeypatch.undo()
    journal.append("interrupted", stage="3")
    journal.close()
    assert [event["stage"] for event in read(path).events] == ["1", "3"]


def test_a_place_that_cannot_be_written_to_is_an_external_error(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="the file cannot be written: No such file"):
        write_atomically(tmp_path / "gone" / "result.json", "text")


def test_no_key_is_kept_in_what_is_told_and_a_patch_stays_to_the_letter(tmp_path: Path) -> None:
    key = "hf_" + "aB3" * 9
    journal = Journal(tmp_path / "journal.jsonl", FixedClock())
    verdict = {"results": [{"check": "no_errors", "reason": f"the log says {key}"}]}
    journal.append(
        "trial", command=f"train.sh --token {key}", verdict=verdict, candidate={"diff": f"+{key}\n"}
    )
    journal.close()
    (event,) = read(tmp_path / "journal.jsonl").events
    assert event["command"] == "train.sh --token [withheld]"
    assert event["verdict"]["results"][0]["reason"] == "the log says [withheld]"
    assert event["candidate"] == {"diff": f"+{key}\n"}
