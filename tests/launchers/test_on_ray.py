"""Benches and the search loop on a real local Ray, which the whole module shares."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from infrarsi.contract import ExecutionRequest, ExecutionResult, Outcome
from infrarsi.errors import ExternalError
from infrarsi.node.wire import RunnerSettings
from infrarsi.ports import Bench, Progress
from infrarsi.testing import Lab, LauncherSuite
from infrarsi.testing.launcher_suite import RULES, SECRETS, is_gone
from launchers import HeldBench, NodePool, RaySession, TuneLoop

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("default"),  # Ray's own
    pytest.mark.usefixtures("session"),
]
_settings: list[RunnerSettings] = []


@pytest.fixture(scope="module")
def session() -> Iterator[RaySession]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SECRETS, "OMP_NUM_THREADS": "3"}.items():
            patch.setenv(name, value)
        with RaySession() as session:
            _settings.append(session.settings(RULES))
            yield session


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(None, tmp_path)  # type: ignore[arg-type]  # only its requests are used
    os.mkfifo(lab.mark)
    yield lab
    os.unlink(lab.mark)


class TestHeldBench(LauncherSuite):
    @classmethod
    def make_bench(cls) -> AbstractContextManager[Bench]:
        pool = NodePool()
        return HeldBench(pool, pool.lease(), settings=_settings[0])


def plain_searcher(
    suggest: Callable[[], Mapping[str, object] | None],
    is_over: Callable[[], bool],
    on_complete: Callable[[str, Mapping[str, object] | None, bool], None],
) -> Any:
    """The smallest searcher that Tune takes."""
    from ray.tune.search import Searcher

    class Plain(Searcher):  # type: ignore[misc]  # ray.tune is untyped here
        def __init__(self) -> None:
            super().__init__(metric="steps", mode="max")

        def suggest(self, trial_id: str) -> Any:
            return Searcher.FINISHED if is_over() else suggest()

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            on_complete(trial_id, result, error)

        def save(self, checkpoint_path: str) -> None: ...

        def restore(self, checkpoint_path: str) -> None: ...

        def __getstate__(self) -> dict[str, object]:
            return {}

    return Plain()


@dataclass
class Script:
    """A campaign that asks for these requests in turn, and writes down what it is told."""

    requests: list[ExecutionRequest]
    keep_going: Callable[[str, Progress], bool] = lambda execution_id, progress: True
    over: Callable[["Script"], bool] = lambda script: len(script.results) == script.total
    results: list[ExecutionResult] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    overheads_s: list[float] = field(default_factory=list)
    asked_s: dict[str, float] = field(default_factory=dict)
    total: int = 0

    def __post_init__(self) -> None:
        self.total = len(self.requests)

    def suggest(self) -> ExecutionRequest | None:
        if not self.requests:
            return None
        request = self.requests.pop(0)
        self.events.append(f"suggest {request.execution_id}")
        self.asked_s[request.execution_id] = time.monotonic()
        return request

    def on_result(self, result: ExecutionResult) -> None:
        self.events.append(f"result {result.execution_id}")
        self.results.append(result)
        took_s = time.monotonic() - self.asked_s[result.execution_id]
        self.overheads_s.append(took_s - result.command_s)

    def on_progress(self, execution_id: str, progress: Progress) -> bool:
        return self.keep_going(execution_id, progress)

    def run(self) -> "Script":
        TuneLoop(plain_searcher, NodePool(), settings=_settings[0]).run(
            suggest=self.suggest,
            is_over=lambda: self.over(self),
            on_result=self.on_result,
            on_progress=self.on_progress,
        )
        return self


def kill(name: str) -> None:
    """SIGKILL every Ray worker of this session whose title begins so."""
    mine = psutil.Process().children(recursive=True)
    mine = [p for p in mine if p.status() != psutil.STATUS_ZOMBIE]
    victims = [p for p in mine if (p.cmdline() or [""])[0].startswith(f"ray::{name}")]
    assert victims, f"no {name} among {[p.cmdline()[:1] for p in mine]}"
    for victim in victims:
        victim.kill()


def test_trials_follow_one_another_with_little_between_and_each_result_comes_once(
    lab: Lab,
) -> None:
    requests = [lab.request(f"exit {code}") for code in range(2, 8)]
    names = [request.execution_id for request in requests]
    script = Script(requests).run()
    assert script.events == [f"{what} {name}" for name in names for what in ("suggest", "result")]
    assert [result.exit_code for result in script.results] == list(range(2, 8))
    assert len({result.nodes for result in script.results}) == 1
    assert statistics.median(script.overheads_s) < 3.0  # the first one starts the actors


def test_the_user_keeps_the_environment_that_ray_changes(lab: Lab) -> None:
    script = Script([lab.request("echo threads $OMP_NUM_THREADS nice $(nice)")]).run()
    assert script.results[0].log_tail.split() == ["threads", "3", "nice", str(os.nice(0))]


def test_an_execution_that_the_campaign_gives_up_still_reports(lab: Lab) -> None:
    script = Script(
        [lab.request("sleep 1000"), lab.request("exit 4")], keep_going=lambda *_: False
    ).run()
    assert [r.outcome for r in script.results] == [Outcome.STOPPED, Outcome.USER_ERROR]
    assert script.results[0].command_s < 10.0


def test_the_end_of_the_search_stops_what_runs_and_delivers_it(lab: Lab) -> None:
    pids: list[int] = []
    ended: list[float] = []

    def over(script: Script) -> bool:
        if script.asked_s and not pids:
            pids.append(lab.marked())
            ended.append(time.monotonic())
        return bool(pids)

    script = Script([lab.request(f"echo $$ > {lab.mark}; exec sleep 1000")], over=over).run()
    assert time.monotonic() - ended[0] < 10.0
    assert [result.outcome for result in script.results] == [Outcome.STOPPED]
    assert is_gone(pids[0])


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["NodeRunner", "ExecutionTrainable"])
def test_a_killed_actor_is_an_infrastructure_failure_and_the_search_goes_on(
    lab: Lab, victim: str
) -> None:
    pids: list[int] = []

    def keep_going(execution_id: str, progress: Progress) -> bool:
        if not pids:
            pids.append(lab.marked())
            kill(victim)
        return True

    requests = [lab.request(f"echo $$ > {lab.mark}; exec sleep 1000"), lab.request("exit 4")]
    script = Script(requests, keep_going=keep_going).run()
    assert [r.outcome for r in script.results] == [Outcome.INFRA, Outcome.USER_ERROR]
    assert "died" in script.results[0].reason
    assert "\n" not in script.results[0].reason
    assert is_gone(pids[0])


def test_a_bench_whose_holder_is_killed_takes_its_nodes_again(lab: Lab) -> None:
    pool = NodePool()
    with HeldBench(pool, pool.lease(), settings=_settings[0]) as bench:
        job = bench.start(lab.request(f"echo $$ > {lab.mark}; exec sleep 1000"))
        pid = lab.marked()
        kill("NodeHolder")
        result = job.wait(20.0)
        assert result is not None
        assert result.outcome is Outcome.INFRA
        assert "died" in result.reason
        again = bench.start(lab.request("exit 4")).wait(30.0)
        assert again is not None
        assert again.exit_code == 4
        assert is_gone(pid)


def test_a_lease_is_exclusive_until_it_is_released(lab: Lab) -> None:
    pool = NodePool()
    lease = pool.lease()
    with pytest.raises(ExternalError, match=r"1 idle nodes .* but there are 0 of 1"):
        pool.lease()
    with HeldBench(pool, lease, settings=_settings[0]) as bench:
        assert bench.node_ids == lease.node_ids
        job = bench.start(lab.request(f"echo $$ > {lab.mark}; exec sleep 1000"))
        pid = lab.marked()
        assert job.progress() == Progress(0, None)
    assert is_gone(pid), "leaving the bench ends what runs"
    assert pool.lease().nodes[0].node_id == lease.node_ids[0]


def test_more_gpus_than_there_are_is_said_before_anything_starts() -> None:
    with pytest.raises(ExternalError, match="at least 64 GPUs are needed"):
        NodePool().lease(gpus_per_node=64)
