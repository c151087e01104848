"""After failed trials: whom the search suspects, and how soon it is back at a trial that runs."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from simulated_jobs import simple_space

from infrarsi.contract import (
    Dimension,
    DimensionKind,
    Effect,
    Outcome,
    Point,
    Proposal,
    Scalar,
    Space,
    Trial,
)
from infrarsi.families import effects
from searchers import HypothesisProposer

GAINS = {
    "equal": (0.1,) * 8,
    "steep": (0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.02, 0.02),
}
SD = {"sure": 0.05, "unsure": 0.2}


def eight(gains: str, sd: str) -> Space:
    return simple_space([[Effect(-g, SD[sd])] for g in GAINS[gains]])


def search(space: Space, bad: set[str], num_trials: int = 8) -> list[tuple[bool, Point]]:
    """Whether each trial ran, with its point; gains are as believed, `bad` dimensions fail."""
    proposer = HypothesisProposer(space, 0, noise_log_sd=0.01, max_trials=num_trials)
    history = [ran(space, 0, space.reference) for _ in range(3)]
    for number in range(1, num_trials + 1):
        answer = proposer.propose(history, ())
        if not isinstance(answer, Proposal):
            break
        changed = {k for k, v in answer.point.items() if v != space.reference[k]}
        fails = bool(changed & bad)
        history.append(failure(number, answer.point) if fails else ran(space, number, answer.point))
    return [(t.outcome is Outcome.OK, t.point) for t in history[3:]]


def ran(space: Space, number: int, point: Point) -> Trial:
    step = float(np.exp(sum(d.effect(point[d.name]).log_time for d in space.dimensions)))
    return Trial(number, point, Outcome.OK, True, step_time_s=step, one_off_s=5.0, wall_s=45.0,
                 device_s=45.0)  # fmt: skip


def failure(number: int, point: Point, reason: str = "exit code 1") -> Trial:
    return Trial(number, point, Outcome.USER_ERROR, reason=reason, wall_s=5.0, device_s=5.0)


def trials_until_one_runs(space: Space, bad: set[str]) -> int:
    """Trials after the first failed one, up to and including the first that ran."""
    results = [ok for ok, _ in search(space, bad)]
    return results.index(True) - results.index(False)


@pytest.mark.parametrize("sd", SD)
@pytest.mark.parametrize("gains", GAINS)
def test_with_one_bad_setting_of_eight_a_bundle_runs_within_two_more_trials(
    gains: str, sd: str
) -> None:
    space = eight(gains, sd)
    assert all(trials_until_one_runs(space, {f"k{i}"}) <= 2 for i in range(8))


@pytest.mark.parametrize("sd", SD)
@pytest.mark.parametrize("gains", GAINS)
def test_with_two_bad_settings_of_eight_a_bundle_mostly_runs_within_three_more(
    gains: str, sd: str
) -> None:
    space = eight(gains, sd)
    more = [trials_until_one_runs(space, {f"k{i}", f"k{j}"}) for i, j in combinations(range(8), 2)]
    assert np.mean(more) <= 2.6
    assert np.mean(np.array(more) <= 3) >= 0.75  # of all 28 pairs
    assert max(more) <= 5


@pytest.mark.parametrize("gains", GAINS)
def test_half_of_what_can_be_had_is_had_after_four_trials(gains: str) -> None:
    space = eight(gains, "sure")
    for bad in range(8):
        good = [p for ok, p in search(space, {f"k{bad}"}, 4) if ok]
        best = max(sum(g for i, g in enumerate(GAINS[gains]) if p[f"k{i}"] == "v1") for p in good)
        assert best >= 0.5 * (sum(GAINS[gains]) - GAINS[gains][bad])


def gpu_space() -> Space:
    """A job on one GPU: many numbers of workers, micro-batches, and code patches."""
    knobs: list[tuple[str, str, tuple[Scalar, ...], Scalar]] = [
        ("micro_batch", "micro_batch", (1, 2, 4, 8, 16), 1),
        ("workers", "dataloader_workers", (0, 1, 2, 4, 8, 12, 16), 0),
    ]
    recipes = [("fused", "optimizer_impl", "fused", "foreach"),
               ("sdpa", "attention_backend", "sdpa", "eager"),
               ("no_sync", "ddp_no_sync", True, False),
               ("compile", "compile", "on", "off")]  # fmt: skip
    dimensions = [
        Dimension(
            name, family, DimensionKind.KNOB, values, ref, effects(family, values, ref, "gpu")
        )
        for name, family, values, ref in knobs
    ]
    for name, family, value, ref in recipes:
        after = effects(family, [value], ref, "gpu")[0]
        zero = Effect(0.0, 0.0, 0.0, 0.0)
        dimensions.append(
            Dimension(name, family, DimensionKind.RECIPE, (False, True), False, (zero, after))
        )
    return Space(tuple(dimensions), planned_steps=100_000)


def test_every_number_of_workers_is_suspect_once_two_have_failed() -> None:
    space = gpu_space()
    history = [ran(space, 0, space.reference) for _ in range(3)]
    for number, changed in enumerate(
        [{"workers": 16, "micro_batch": 16}, {"workers": 12, "fused": True}], start=1
    ):
        history.append(failure(number, {**space.reference, **changed}))
    answer = HypothesisProposer(space, 0, noise_log_sd=0.01, max_trials=8).propose(history, ())
    assert isinstance(answer, Proposal)
    assert answer.point["workers"] == 0
    assert answer.why.endswith("; without workers, suspect of a failure")


def test_loaders_that_always_crash_cost_at_most_two_screens() -> None:
    space = gpu_space()
    assert [ok for ok, _ in search(space, {"workers"})].count(False) <= 2


def test_the_text_of_one_failure_is_enough_to_leave_its_setting_out() -> None:
    signs = {"workers": ("DataLoader worker",), "compile": (r"torch\._dynamo",)}
    space = gpu_space()
    space = replace(
        space,
        dimensions=tuple(replace(d, fault_signs=signs.get(d.name, ())) for d in space.dimensions),
    )
    point = {**space.reference, "workers": 16, "micro_batch": 16, "sdpa": True, "compile": True}
    history = [ran(space, 0, space.reference) for _ in range(3)]
    history.append(failure(1, point, "RuntimeError: DataLoader worker (pid 7) exited unexpectedly"))
    answer = HypothesisProposer(space, 0, noise_log_sd=0.01, max_trials=8).propose(history, ())
    assert isinstance(answer, Proposal)
    assert answer.point["workers"] == 0
    assert answer.point["micro_batch"] == 16
    assert answer.point["sdpa"] is True
