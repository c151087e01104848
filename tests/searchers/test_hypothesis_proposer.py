"""Whole searches: what is tried first, what is learned, when it ends, what is recommended."""

import time
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from simulated_jobs import (
    GIB,
    SimulatedJob,
    cpu_space,
    gpt_job,
    search,
    share_of_best,
    simple_space,
)

from infrarsi.contract import (
    ActiveTrial,
    Constraint,
    Effect,
    Exhausted,
    Outcome,
    Point,
    Proposal,
    Space,
    Trial,
)
from searchers import HypothesisProposer

NOISE = 0.01


def proposer(space: Space, max_trials: int = 8) -> HypothesisProposer:
    return HypothesisProposer(space, 0, noise_log_sd=NOISE, max_trials=max_trials)


def ran(number: int, point: Point, log_time: float = 0.0, **changes: object) -> Trial:
    trial = Trial(
        number,
        point,
        Outcome.OK,
        same_job=True,
        step_time_s=float(np.exp(log_time)),
        one_off_s=5.0,
        wall_s=45.0,
        device_s=45.0,
    )
    return replace(trial, **changes)  # type: ignore[arg-type]


def reference(space: Space, **changes: object) -> list[Trial]:
    return [ran(0, space.reference, **changes) for _ in range(3)]


def asked(space: Space, history: list[Trial], active: list[ActiveTrial] | None = None) -> Proposal:
    answer = proposer(space).propose(history, active or [])
    assert isinstance(answer, Proposal)
    return answer


def changed(space: Space, point: Point) -> dict[str, object]:
    return {k: v for k, v in point.items() if v != space.reference[k]}


BELIEVED = [Effect(-0.1, 0.05)] * 3 + [Effect(0.1, 0.05)]


def test_the_first_trial_bundles_everything_believed_helpful() -> None:
    space = simple_space([[e] for e in BELIEVED])
    proposal = asked(space, reference(space))
    assert changed(space, proposal.point) == {"k0": "v1", "k1": "v1", "k2": "v1"}
    assert proposal.expected_log_time == pytest.approx(-0.3, abs=0.01)
    assert proposal.why.startswith("the reference with k0=v1, k1=v1, k2=v1; ")


def test_the_bundle_leaves_out_what_does_not_fit_into_memory() -> None:
    hungry = Effect(-0.1, 0.05, log_memory=1.5, log_memory_sd=0.1)
    space = replace(
        simple_space([[hungry], [Effect(-0.1, 0.05)]]),
        memory_limit_bytes=10 * GIB,
        static_memory_bytes=GIB,
    )
    proposal = asked(space, reference(space, peak_bytes=8 * GIB))
    assert changed(space, proposal.point) == {"k1": "v1"}
    assert proposal.fits is not None
    assert proposal.fits > 0.9


def test_a_hungry_setting_is_paired_with_a_saver_that_makes_room() -> None:
    hungry = Effect(-0.3, 0.05, log_memory=0.6, log_memory_sd=0.05)
    saver = Effect(0.03, 0.02, log_memory=-0.9, log_memory_sd=0.05)
    space = replace(
        simple_space([[hungry], [saver]]), memory_limit_bytes=10 * GIB, static_memory_bytes=GIB
    )
    proposal = asked(space, reference(space, peak_bytes=7 * GIB))
    assert changed(space, proposal.point) == {"k0": "v1", "k1": "v1"}


def test_a_bundle_that_fails_is_split_until_its_culprit_is_known() -> None:
    space = simple_space([[Effect(-0.1, 0.03)] for _ in range(8)])
    history = reference(space)
    for number in range(1, 9):
        point = asked(space, history).point
        if point["k5"] == "v1":
            history.append(Trial(number, point, Outcome.USER_ERROR))
        else:
            history.append(ran(number, point, -0.1 * len(changed(space, point))))
    best = min(t.step_time_s for t in history if t.step_time_s)
    assert np.log(best) == pytest.approx(-0.7, abs=0.01)  # all but the culprit, within 8 trials
    assert sum(t.outcome is not Outcome.OK for t in history) <= 4


@pytest.mark.parametrize("how", ["not the same job", "numeric", "compile_failed"])
def test_a_setting_that_alone_is_not_the_job_is_not_tried_in_bundles(how: str) -> None:
    space = simple_space([[Effect(-0.5, 0.05)], [Effect(-0.02, 0.02)], [Effect(-0.02, 0.02)]])
    point = {**space.reference, "k0": "v1"}
    bad = (
        ran(1, point, -0.9, same_job=False)
        if how == "not the same job"
        else Trial(1, point, Outcome(how))
    )
    proposal = asked(space, [*reference(space), bad])
    assert changed(space, proposal.point) == {"k1": "v1", "k2": "v1"}
    assert proposer(space).ranking([*reference(space), bad]) == []


def test_parallel_proposals_are_different_and_good() -> None:
    space = cpu_space()
    active: list[ActiveTrial] = []
    history = reference(space)
    for number in range(1, 5):
        active.append(ActiveTrial(number, asked(space, history, active).point))
    points = [tuple(sorted(changed(space, a.point).items())) for a in active]
    assert len(set(points)) == 4
    assert all(len(p) >= 2 for p in points)


def test_it_ends_when_nothing_is_left_to_gain() -> None:
    space = simple_space([[Effect(-0.1, 0.01)], [Effect(0.2, 0.01)], [Effect(0.0, 0.001)]])
    both = {**space.reference, "k0": "v1"}
    answer = proposer(space).propose([*reference(space), ran(1, both, -0.1)], [])
    assert answer == Exhausted("no_gain_expected")


def test_a_gain_that_the_planned_run_cannot_repay_is_not_sought() -> None:
    space = simple_space([[Effect(-0.05, 0.02)]])
    long, short = replace(space, planned_steps=100_000), replace(space, planned_steps=100)
    assert isinstance(proposer(long).propose(reference(long), []), Proposal)
    assert proposer(short).propose(reference(short), []) == Exhausted("no_gain_expected")


def test_one_off_cost_counts_against_the_planned_steps() -> None:
    slow_start = Effect(-0.1, 0.02, one_off_s=60.0)
    space = simple_space([[slow_start], [Effect(-0.1, 0.02)]])
    history = reference(space)
    history.append(ran(1, {**space.reference, "k0": "v1"}, -0.12, one_off_s=65.0))
    history.append(ran(2, {**space.reference, "k1": "v1"}, -0.10))
    of_a_long_run = proposer(replace(space, planned_steps=100_000)).ranking(history)
    of_a_short_run = proposer(replace(space, planned_steps=1_000)).ranking(history)
    assert changed(space, of_a_long_run[0]) == {"k0": "v1"}
    assert changed(space, of_a_short_run[0]) == {"k1": "v1"}


def test_inert_settings_are_pruned_and_working_ones_kept() -> None:
    space = simple_space([[Effect(-0.2, 0.1)], [Effect(0.0, 0.03)], [Effect(-0.01, 0.03)]])
    everything = {"k0": "v1", "k1": "v1", "k2": "v1"}
    history = [
        *reference(space),
        ran(1, everything, -0.2),
        ran(2, {**everything, "k1": "v0"}, -0.201),
        ran(3, {**everything, "k2": "v0"}, -0.2),
        ran(4, {**everything, "k0": "v0"}, 0.0),
    ]
    assert proposer(space).prune(history) == {"k0": "v1", "k1": "v0", "k2": "v0"}


def test_pruning_keeps_to_the_constraints_and_to_memory() -> None:
    saver = Effect(0.0, 0.005, log_memory=-1.0, log_memory_sd=0.05)
    hungry = Effect(-0.2, 0.05, log_memory=0.6, log_memory_sd=0.05)
    space = replace(
        simple_space([[hungry], [saver], [Effect(0.0, 0.005)]]),
        constraints=(Constraint.parse("k0 == 'v0' or k2 == 'v1'"),),
        memory_limit_bytes=10 * GIB,
        static_memory_bytes=GIB,
    )
    best = {"k0": "v1", "k1": "v1", "k2": "v1"}
    history = [*reference(space, peak_bytes=7 * GIB), ran(1, best, -0.2, peak_bytes=5 * GIB)]
    assert proposer(space).prune(history) == best


def test_nothing_faster_recommends_the_reference() -> None:
    space = simple_space([[Effect(0.0, 0.03)], [Effect(0.0, 0.03)]])
    history = [*reference(space), ran(1, {"k0": "v1", "k1": "v1"}, 0.1)]
    assert proposer(space).ranking(history) == []
    assert proposer(space).prune(history) == space.reference


def test_at_most_three_are_ranked_for_verification() -> None:
    space = simple_space([[Effect(-0.1, 0.05)] for _ in range(4)])
    history = reference(space)
    for number in range(1, 5):
        point = {**space.reference, f"k{number - 1}": "v1"}
        history.append(ran(number, point, -0.05 * number))
    ranked = proposer(space).ranking(history)
    assert [changed(space, p) for p in ranked] == [{"k3": "v1"}, {"k2": "v1"}, {"k1": "v1"}]


@pytest.mark.slow
def test_the_ranking_picks_better_than_the_luckiest_measurement() -> None:
    space = simple_space([[Effect(0.0, 0.03)] for _ in range(5)])
    apart = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        job = SimulatedJob.draw(space, rng, failing=0.0, noise=0.03)
        history = [job.trial(0, space.reference, rng) for _ in range(3)]
        for number in range(1, 13):
            point = {d.name: d.values[int(rng.integers(2))] for d in space.dimensions}
            history.append(job.trial(number, point, rng))
        searcher = HypothesisProposer(space, 0, noise_log_sd=0.03, max_trials=12)
        ranked = [*searcher.ranking(history), space.reference][0]
        luckiest = min(history, key=lambda t: t.step_time_s or np.inf).point
        apart.append(job.log_time(luckiest) - job.log_time(ranked))
    # Positive where the ranking is better; four standard errors over 200 paired searches.
    assert np.mean(apart) > 4 * np.std(apart) / np.sqrt(len(apart))


def test_the_last_screen_is_spent_on_gain_and_not_on_gain_per_second() -> None:
    slow_start = Effect(-0.2, 0.01, one_off_s=2000.0)
    space = replace(simple_space([[slow_start], [Effect(-0.1, 0.01)]]), planned_steps=10**6)
    space = replace(space, constraints=(Constraint.parse("k0 == 'v0' or k1 == 'v0'"),))
    first = proposer(space, max_trials=8).propose(reference(space), [])
    last = proposer(space, max_trials=1).propose(reference(space), [])
    assert isinstance(first, Proposal)
    assert isinstance(last, Proposal)
    assert changed(space, first.point) == {"k1": "v1"}
    assert changed(space, last.point) == {"k0": "v1"}


@pytest.mark.parametrize("outlier_rate", [0.0, 0.05], ids=["quiet", "disturbed"])
def test_eight_trials_reach_nine_tenths_of_the_best_speed_up(outlier_rate: float) -> None:
    space = cpu_space()
    shares = []
    for seed in range(25):
        rng = np.random.default_rng([seed, 0])
        job = SimulatedJob.draw(space, rng, outlier_rate=outlier_rate)
        searcher, history = search(job, seed, 8)
        ranked = searcher.ranking(history)
        shares.append(share_of_best(job, ranked[0] if ranked else space.reference))
    assert median(shares) >= 0.9
    assert np.mean(shares) >= 0.8


def test_the_same_seed_and_history_give_the_same_search() -> None:
    job = SimulatedJob.draw(cpu_space(), np.random.default_rng(4))
    first, second = search(job, 4, 6)[1], search(job, 4, 6)[1]
    assert [t.point for t in first] == [t.point for t in second]


@pytest.mark.parametrize("size", ["enumerated", "too large to enumerate"])
def test_a_proposal_takes_less_than_a_tenth_of_a_second(size: str) -> None:
    num_knobs = 8 if size == "enumerated" else 30
    rng = np.random.default_rng(0)
    values = [[Effect(float(rng.normal(-0.02, 0.05)), 0.06) for _ in range(2)]] * num_knobs
    space = simple_space(values)
    searcher = proposer(space)
    history = reference(space)
    taken = []
    for number in range(1, 12):
        start = time.thread_time()
        answer = searcher.propose(history, [])
        taken.append(time.thread_time() - start)
        assert isinstance(answer, Proposal)
        history.append(ran(number, answer.point, float(rng.normal(-0.1, 0.05))))
    # CPU time of this thread: on a busy machine BLAS's other threads spin.
    assert median(taken[1:]) < 0.1


@pytest.mark.parametrize("noise", [pytest.param(0.01, marks=pytest.mark.slow), 0.05])
def test_a_job_like_the_example_is_tuned_without_detours(noise: float) -> None:
    shares, early_detours = [], []
    for seed in range(12):
        job = gpt_job(np.random.default_rng([seed, 0]), noise)
        searcher, history = search(job, seed, 8)
        shares.append(share_of_best(job, searcher.ranking(history)[0]))
        times = [job.log_time(t.point) for t in history[3:7]]
        best = np.minimum.accumulate([0.0, *times])[:-1]
        early_detours.append(sum(t - b > 0.05 for t, b in zip(times, best, strict=True)))
    # Measured over 30 seeds: 0.97 at 1 % noise, 0.95 at 5 %, standard errors 0.004 and 0.006.
    assert np.mean(shares) >= 0.93
    assert np.mean(early_detours) <= 0.5


def test_what_is_untested_comes_before_putting_a_helpful_setting_back() -> None:
    space = simple_space([[Effect(-0.1, 0.1)], [Effect(-0.1, 0.1)], [Effect(0.0, 0.03)]])
    both = {**space.reference, "k0": "v1", "k1": "v1"}
    proposal = asked(space, [*reference(space), ran(1, both, -0.2)])
    assert changed(space, proposal.point) == {"k0": "v1", "k1": "v1", "k2": "v1"}


def test_a_doubtful_setting_is_put_back_once_that_is_all_there_is_to_learn() -> None:
    space = simple_space([[Effect(-0.1, 0.15)], [Effect(-0.1, 0.15)]])
    both = {**space.reference, "k0": "v1", "k1": "v1"}
    proposal = asked(space, [*reference(space), ran(1, both, -0.2)])
    assert len(changed(space, proposal.point)) == 1


def test_the_expectation_is_told_as_a_range_of_speed_ups() -> None:
    space = simple_space([[Effect(-0.7, 0.5)], [Effect(0.5, 0.05)]])
    why = asked(space, reference(space)).why
    assert (
        why == "the reference with k0=v1; 1.22x to 3.3x its speed expected; fits: 100%, runs: 97%"
    )
