"""A command run for its last line, and what is left if its owner is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from infrarsi.workspace.local_check.quiet import run_quietly

OWNER = """
import os, sys
from pathlib import Path
from infrarsi.workspace.local_check.quiet import run_quietly
folder = Path(sys.argv[1])
run_quietly(
    ["bash", "-c", f"echo $$ > {folder}/pid; echo > {folder}/begun; exec sleep 1000"],
    folder=folder, environment=dict(os.environ), timeout_s=600.0, remove=[folder],
)
"""


def test_the_last_line_comes_back_without_secrets(tmp_path: Path) -> None:
    ended, last = run_quietly(
        ["bash", "-c", "seq 100000; echo token=s3cret-0123; exit 3"],
        folder=tmp_path,
        environment=dict(os.environ),
        timeout_s=60.0,
        remove=[],
        secrets=["s3cret-0123"],
    )
    assert (ended.exit_code, last) == (3, "token=[withheld]")


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    os.mkfifo(folder / "begun")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)])
    (folder / "begun").read_text()  # the command runs
    command = psutil.Process(int((folder / "pid").read_text()))
    guard = command.parent()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert guard is not None
    psutil.wait_procs([command, guard], timeout=20.0)
    assert not command.is_running()
    assert not folder.exists()
