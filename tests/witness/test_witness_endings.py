"""How records end when jobs end badly, and when there is nobody to tell."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infrarsi.node.collector import INJECT_DIR

HEAD = """
import os, signal, sys, threading
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        loss = model(torch.ones(3, 2)).sum(); loss.backward(); optimizer.step()
"""


def test_a_job_that_swallows_the_exit_and_trains_on_is_ended_hard(watch):
    text = HEAD + "try:\n    train(9)\nexcept BaseException:\n    train(9)\nprint('survived')\n"
    observed = watch(text, steps=3, ends_by="witness")
    assert observed.exit_code == 0
    assert "survived" not in observed.stdout
    assert observed.rank.sealed
    assert len(observed.rank.steps) == 3


def test_a_job_that_swallows_the_exit_and_stops_may_finish(watch):
    text = HEAD + "try:\n    train(9)\nexcept SystemExit:\n    pass\nprint('done')\n"
    observed = watch(text, steps=3, ends_by="witness")
    assert (observed.exit_code, observed.stdout, observed.stderr) == (0, "done\n", "")


def test_a_job_that_trains_in_a_thread_is_ended_too(watch):
    text = HEAD + "t = threading.Thread(target=train, args=(10**6,)); t.start(); t.join()\n"
    observed = watch(text, steps=3, ends_by="witness")
    assert observed.exit_code == 0
    assert observed.rank.sealed


def test_os_exit_seals_the_record(watch):
    observed = watch(HEAD + "train(4)\nos._exit(3)\n")
    assert observed.exit_code == 3
    assert observed.rank.sealed
    assert observed.rank.end["how"] == "os._exit"
    assert len(observed.rank.steps) == 4


def test_an_uncaught_error_is_named(watch):
    observed = watch(HEAD + "train(2)\nraise ValueError('no more data')\n")
    assert observed.exit_code == 1
    assert observed.rank.error == "ValueError: no more data"
    assert observed.rank.end["how"] == "ValueError"
    assert observed.stderr.count("Traceback") == 1


def test_memory_that_ran_out_is_noted(watch):
    observed = watch(HEAD + "train(2)\ntorch.empty(2**46)\n")
    assert observed.exit_code == 1
    assert observed.rank.error is not None
    assert observed.rank.oom is not None


def test_a_killed_job_has_no_sealed_record(watch):
    observed = watch(HEAD + "train(4)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert observed.exit_code == -9
    assert not observed.rank.sealed
    assert len(observed.rank.steps) == 1  # the others were to go with the next close look
    assert observed.progress.steps == 3


def test_a_job_that_takes_the_witness_out_has_no_sealed_record(watch):
    text = HEAD + "train(2)\nos.closerange(3, 200)\ntrain(3)\nprint('on')\n"
    observed = watch(text)
    assert observed.stdout == "on\n"
    assert not observed.rank.sealed


def test_a_replaced_hook_is_a_problem_of_the_record(watch):
    text = HEAD + "torch.nn.Module.__call__ = torch.nn.Module._call_impl\ntrain(4)\n"
    observed = watch(text)
    assert any("Module.__call__" in problem for problem in observed.rank.problems)


FORKS = """
import os
pid = os.fork()
train(3)
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_forked_child_that_trains_has_a_record_of_its_own(watch):
    observed = watch(HEAD + FORKS)
    assert len(observed.ranks) == 2
    assert all(rank.sealed and len(rank.steps) == 3 for rank in observed.ranks)
    assert len({rank.pid for rank in observed.ranks}) == 2


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "flag", ["-S", pytest.param("-I", marks=SLOW), pytest.param("-E", marks=SLOW)]
)
def test_without_site_or_environment_there_is_no_record(watch, flag):
    paths = [path for path in sys.path if path.endswith("site-packages")]
    text = "import sys; sys.path += sys.argv[1:]\n" + HEAD + "train(2)\nprint('ok')\n"
    observed = watch(text, *paths, command=(sys.executable, flag))
    assert observed.stdout == "ok\n"
    assert observed.ranks == ()


def test_a_scrubbed_environment_leaves_no_record(watch):
    observed = watch(HEAD + "train(2)\nprint('ok')\n", command=("env", "-i", sys.executable))
    assert observed.stdout == "ok\n"
    assert observed.ranks == ()


@pytest.mark.slow
def test_a_crash_at_exit_leaves_a_sealed_record_and_the_exit_code(watch):
    text = HEAD + "import atexit\ntrain(3)\natexit.register(os.abort)\n"
    observed = watch(text)  # handlers run in reverse: the abort comes before the witness's own
    assert observed.exit_code == -6
    assert not observed.rank.sealed
    bomb = "class Bomb:\n    def __del__(self, abort=os.abort): abort()\nbomb = Bomb()\n"
    late = HEAD + "train(3)\n" + bomb
    observed = watch(late, command=(sys.executable,))
    assert observed.exit_code == -6
    assert observed.rank.sealed
    assert len(observed.rank.steps) == 3


BY_HAND = """
for _ in range(3):
    loss = model(torch.ones(3, 2)).sum(); loss.backward()
    with torch.no_grad():
        for p in model.parameters(): p -= 0.1 * p.grad; p.grad = None
"""


def test_updates_made_by_hand_are_said_not_to_be_seen(watch):
    rank = watch(HEAD + BY_HAND).rank
    assert rank.sealed
    assert rank.steps == ()
    assert rank.end["partial"] == {"forwards": 3, "backwards": 3}
    assert rank.problems == (
        "no torch optimizer stepped after a backward: updates made by hand are not seen (3 times)",
    )


UNEVEN = """
import os, sys, torch
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3 + rank):
    model(torch.ones(3, 2)).sum().backward(); optimizer.step()
"""


@pytest.mark.slow
def test_ranks_that_end_at_different_steps_each_have_their_own_record(watch):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    observed = watch(UNEVEN, command=command)
    assert [len(rank.steps) for rank in observed.ranks] == [3, 4]
    assert all(rank.sealed for rank in observed.ranks)


LATE_FAULTS = {
    "gradients": "torch.Tensor.double = None\n",
    "forward": "torch.get_rng_state = None\n",
}


@pytest.mark.parametrize("where", ["gradients", "forward"])
def test_a_failure_in_an_audits_own_hooks_costs_the_record_alone(watch, where):
    text = HEAD + LATE_FAULTS[where] + "train(3)\nprint('went on')\n"
    observed = watch(text, kind="audit")
    assert (observed.exit_code, observed.stdout) == (0, "went on\n")
    assert observed.stderr.count("\n") == 1
    assert not observed.rank.sealed
    assert any("removed itself" in problem for problem in observed.rank.problems)


def run_with_socket(tmp_path: Path, path: str, text: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "job.py").write_text(text)
    env = {"PYTHONPATH": str(INJECT_DIR), "INFRARSI_WITNESS_SOCK": path, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


SHOW = HEAD + "train(2)\nprint([m for m in sys.modules if 'infrarsi' in m], len(sys.meta_path))\n"


def test_without_a_socket_nothing_of_the_witness_is_loaded(tmp_path):
    done = run_with_socket(tmp_path, str(tmp_path / "none"), SHOW)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[] ")


def test_a_hidden_sitecustomize_is_run_first(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys; sys.hidden_ran = True\n")
    (tmp_path / "job.py").write_text("import sys; print(sys.hidden_ran)\n")
    env = {"PYTHONPATH": f"{INJECT_DIR}:{tmp_path / 'hidden'}"}
    done = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_witness_that_fails_removes_itself_with_one_line(tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(folder / "s"))
    server.listen(8)

    def answer() -> None:
        connection, _ = server.accept()
        connection.recv(4096)
        connection.sendall(b"what?\n")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    text = HEAD + (
        "train(3)\nprint(model(torch.ones(1, 2)).item() < 9)\n"
        "print(torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl)\n"
        "print(type(torch.autograd.Variable._execution_engine).__module__)\n"
    )
    done = run_with_socket(tmp_path, str(folder / "s"), text)
    thread.join()
    server.close()
    assert done.returncode == 0
    assert done.stdout == "True\nTrue\ntorch._C\n"
    assert done.stderr.count("\n") == 1
    assert "infrarsi witness: removed itself (boundary: JSONDecodeError" in done.stderr


ODD = """
import sys, torch
class Odd(torch.nn.Linear):
    def __eq__(self, other):
        return torch.ones(2)
    __hash__ = torch.nn.Module.__hash__
class Mapping(dict):
    def keys(self):
        raise RuntimeError("no keys")
class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.inner = Odd(2, 1)
    def forward(self, x, extra=None):
        return self.inner(x).sum()
model = Wrapped() if sys.argv[1] == "mapping" else Odd(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sys.audit("open", "only a path")
for _ in range(3):
    out = model(torch.ones(3, 2), *([Mapping()] if sys.argv[1] == "mapping" else []))
    out.sum().backward(); optimizer.step()
print("done")
"""


def test_an_odd_module_and_an_odd_audit_event_do_no_harm(watch):
    observed = watch(ODD, "module")
    assert (observed.stdout, observed.stderr) == ("done\n", "")
    assert len(observed.rank.steps) == 3
    assert observed.rank.sealed


def test_an_argument_that_cannot_be_looked_into_costs_the_record_and_not_the_job(watch):
    observed = watch(ODD, "mapping")
    assert observed.stdout == "done\n"
    assert observed.stderr.count("\n") == 1
    assert not observed.rank.sealed
    assert any("no keys" in problem for problem in observed.rank.problems)
