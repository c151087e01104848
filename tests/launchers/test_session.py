"""What can be said about a Ray session without starting one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from infrarsi.errors import ExternalError, UserError
from launchers import RaySession
from launchers.session import check_address, remove_stale_folders


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "head:port", ""])
def test_an_address_that_is_none_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(UserError, match="must be `auto` or `host:port`"):
        check_address(address)


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ExternalError, match=f"no Ray answers at {address}: Connection refused"):
        RaySession(address).__enter__()


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(Exception("timed out during startup"), ExternalError), (KeyError("ours"), KeyError)],
    ids=["not up in time", "a bug"],
)
def test_a_ray_that_does_not_come_up_is_said_and_a_bug_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, seen: type[Exception]
) -> None:
    import ray

    def late(**options: object) -> None:
        raise raised

    monkeypatch.setattr(ray, "init", late)
    session = RaySession(environ={})
    with pytest.raises(seen, match=r"timed out during startup|ours"):
        session.__enter__()
    assert session.folder is not None
    assert not session.folder.exists()


def test_the_address_of_a_job_is_taken_from_its_environment() -> None:
    assert not RaySession(environ={"RAY_ADDRESS": "10.0.0.1:6379"}).is_local
    assert RaySession(environ={}).is_local


def test_folders_of_dead_sessions_are_removed_and_others_are_left(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    for name in (f"irsi-{ended.pid}-a", f"irsi-{os.getpid()}-b", "irsi-notes", "other"):
        (tmp_path / name).mkdir()
    remove_stale_folders(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f"irsi-{os.getpid()}-b", "irsi-notes", "other"]


def test_importing_the_room_does_not_import_ray() -> None:
    program = "import launchers, sys; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
