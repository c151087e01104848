"""What a proposal costs grows no faster than the history."""

import time
from types import ModuleType

import numpy as np
import pytest
from benchmark_module import load

from infrarsi.contract import ActiveTrial
from searchers import HypothesisProposer
from searchers.threads import one_thread


@pytest.fixture(scope="module")
def suggest_time() -> ModuleType:
    return load("suggest_time")


def cpu_s(benchmark: ModuleType, trials: int) -> float:
    """CPU seconds of one proposal among 40 knobs with 16 trials running, the first left out."""
    job = benchmark.MadeUp(40, np.random.default_rng(0))
    history = [job.trial(0, job.space.reference)]
    history += [job.trial(i, job.point()) for i in range(1, trials)]
    active = [ActiveTrial(trials + i, job.point()) for i in range(16)]
    proposer = HypothesisProposer(job.space, 0, noise_log_sd=0.01, max_trials=10 * trials)
    took = []
    for number in range(3):
        began = time.thread_time()
        proposer.propose(history, active)
        took.append(time.thread_time() - began)
        history.append(job.trial(trials + number, job.point()))
    return min(took[1:])


def yardstick_s() -> float:
    """CPU seconds of ten inversions of a matrix of the size that a proposal works with."""
    matrix = np.eye(200) + np.ones((200, 200))
    took = []
    with one_thread():
        for _ in range(5):
            began = time.thread_time()
            for _ in range(10):
                np.linalg.inv(matrix)
            took.append(time.thread_time() - began)
    return min(took)


def test_a_long_history_costs_in_proportion(suggest_time: ModuleType) -> None:
    thousand, four_thousand = cpu_s(suggest_time, 1000), cpu_s(suggest_time, 4000)
    # Measured: 3 of the yardstick, which was 33 ms beside other work on both cores.
    assert thousand < 9 * yardstick_s()
    assert four_thousand < 4 * thousand


def test_figures_are_printed_as_json(
    suggest_time: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    suggest_time.main(["--trials", "5", "20", "--knobs", "6", "--proposals", "3", "--json"])
    out = capsys.readouterr().out
    assert '"trials": 20' in out
    assert '"p99_ms"' in out
