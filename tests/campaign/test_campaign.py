"""The campaign's promises, in a simulated world."""

import json
from dataclasses import replace

import pytest
from simulated_world import Bed, World

from infrarsi.contract import ExecutionRequest, ExecutionResult, Outcome, RankRecord
from infrarsi.errors import ExternalError, Interrupted, UserError
from infrarsi.report import report, result
from infrarsi.runs import Journal, RunState, costs_of


def conduct(bed: Bed) -> str | None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    promoted: str | None = campaign.verify()
    return promoted


def state(bed: Bed) -> RunState:
    return bed.campaign().state


def test_the_best_candidate_is_verified_and_promoted(bed: Bed) -> None:
    promoted = conduct(bed)
    found = state(bed)
    assert promoted is not None
    assert dict(found.candidates[promoted].settings) == {"a": 4, "b": True}
    assert found.verified[promoted]["speedup"] == pytest.approx(1.65)
    assert len(found.pairs_of(promoted)) == 4
    assert [p.order for p in found.pairs_of(promoted)] == ["AB", "BA", "AB", "BA"]


def test_a_trial_that_left_no_trace_of_its_settings_says_so(bed: Bed) -> None:
    bed.world.idle_points = [{"a": 4}]
    conduct(bed)
    found = state(bed)
    idle = [line.trial for line in found.trials if "without effect" in line.trial.reason]
    assert [dict(trial.point) for trial in idle] == [{"a": 4, "b": False}]
    assert "without effect: as the reference" in report(found)


def test_a_cheat_is_not_verified_however_fast(bed: Bed) -> None:
    bed.world.wrong_points = [{"a": 4, "b": True}]
    promoted = conduct(bed)
    assert promoted is not None
    assert dict(state(bed).candidates[promoted].settings) == {"a": 4}


def test_a_candidate_that_fails_its_audit_is_dropped_for_the_next(bed: Bed) -> None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    bed.world.wrong_points = [{"a": 4, "b": True}]
    promoted = campaign.verify()
    assert promoted is not None
    found = state(bed)
    assert dict(found.candidates[promoted].settings) == {"a": 4}
    dropped = next(e for e in found.verified.values() if e["decision"] == "drop")
    assert "same_data" in dropped["reason"]


def test_nothing_faster_means_nothing_promoted(bed: Bed) -> None:
    bed.world.gain = 0.0
    assert conduct(bed) is None
    assert "your setup stays" in report(state(bed))
    assert result(state(bed))["promoted"] is False


def test_infrastructure_failures_are_repeated_at_no_charge(bed: Bed) -> None:
    bed.world.outcomes = {"trial-002": [Outcome.INFRA, Outcome.INFRA]}
    conduct(bed)
    found = state(bed)
    assert found.counted_trials == 4
    assert bed.world.launched.count("trial-002-again1") == 1
    charged = sum(e.device_s for e in found.executions if e.outcome is not Outcome.INFRA) / 3600
    assert costs_of(found).total_h == pytest.approx(charged)


def test_infrastructure_that_keeps_failing_ends_the_run(bed: Bed) -> None:
    bed.world.outcomes = {"trial-001": [Outcome.INFRA] * 5}
    with pytest.raises(ExternalError, match="3 times in a row"):
        conduct(bed)


def test_a_crash_at_exit_is_repeated_once_and_charged(bed: Bed) -> None:
    bed.world.crash_at_exit = ("ref-03-timed",)
    conduct(bed)
    found = state(bed)
    assert bed.world.launched.count("ref-03-timed-again1") == 1
    assert costs_of(found).total_h == pytest.approx(
        sum(e.device_s for e in found.executions) / 3600
    )


def test_a_second_crash_at_exit_is_the_jobs_own(bed: Bed) -> None:
    bed.world.crash_at_exit = ("ref-03-timed", "ref-03-timed-again1")
    with pytest.raises(UserError, match="the job as it is failed"):
        conduct(bed)
    assert bed.world.launched[-1] == "ref-03-timed-again1"


def test_failed_trials_count_and_are_charged_as_failed(bed: Bed) -> None:
    bed.world.outcomes = {"trial-001": [Outcome.OOM_GPU]}
    conduct(bed)
    found = result(state(bed))
    assert found["trials"] == 4
    assert found["outcomes"] == {"oom_gpu": 1, "ok": 2, "stopped": 1}
    assert found["gpu_hours"]["failed"] == pytest.approx(10 / 3600)


def test_a_refused_patch_is_no_screen_and_is_told(bed: Bed) -> None:
    bed.world.refuse = lambda point: "no hunk fits" if point["b"] else None
    conduct(bed)
    found = state(bed)
    assert found.counted_trials == 2
    assert [r["reason"] for r in found.refused] == ["no hunk fits"] * 2


def test_the_budget_of_screens_holds(bed: Bed) -> None:
    bed.budget = {"screens": 2}
    conduct(bed)
    found = state(bed)
    assert (found.counted_trials, found.stopped_by) == (2, "screens")


def test_a_reached_target_ends_the_search_and_is_still_verified(bed: Bed) -> None:
    bed.budget = {"screens": 16, "target_speedup": 1.15}
    promoted = conduct(bed)
    found = state(bed)
    assert (found.counted_trials, found.stopped_by) == (1, "target_speedup")
    assert promoted is not None
    assert found.pairs_of(promoted)


def test_the_wall_clock_ends_the_search(bed: Bed) -> None:
    bed.budget = {"screens": 16, "wall_hours": 75 / 3600}
    conduct(bed)
    assert state(bed).stopped_by == "wall_hours"
    assert state(bed).counted_trials == 2


def test_a_clearly_slower_trial_is_stopped_early(bed: Bed) -> None:
    bed.points = [{"a": 4, "b": True}, {"a": 2, "b": False}]
    conduct(bed)
    outcomes = [line.trial.outcome for line in state(bed).trials]
    assert outcomes == [Outcome.OK, Outcome.STOPPED]


def test_an_interrupted_search_goes_on_to_verification(bed: Bed) -> None:
    bed.world.interrupt_after = 8
    campaign = bed.campaign()
    campaign.doctor()
    assert campaign.search() == "interrupt"
    bed.world.acknowledge()
    assert campaign.verify() is not None
    assert state(bed).interrupted == ["search"]


def test_an_interrupt_in_the_reference_or_the_pairs_ends_the_run(bed: Bed) -> None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    bed.world.interrupt_after = len(bed.world.launched) + 3
    with pytest.raises(Interrupted):
        campaign.verify()
    assert state(bed).finished is None


@pytest.mark.parametrize("cut", [1, 3, 6, 7, 9, 11, 14, 17, 20])
def test_a_run_that_was_cut_off_anywhere_ends_like_an_uninterrupted_one(
    bed: Bed, tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    from infrarsi.runs import RunDirectory

    other = Bed(World(), bed.root, RunDirectory.create(tmp_path_factory.mktemp("o"), now=0.0))
    expected = conduct(other)

    class Cut(Exception):
        pass

    execute = bed.world.execute

    def dies(request):  # type: ignore[no-untyped-def]
        if len(bed.world.launched) >= cut:
            raise Cut
        return execute(request)

    bed.world.execute = dies  # type: ignore[method-assign]
    with pytest.raises(Cut):
        conduct(bed)
    bed.world.execute = execute  # type: ignore[method-assign]
    assert conduct(bed) == expected
    ours, theirs = state(bed), state(other)
    assert [t.trial.point for t in ours.trials] == [t.trial.point for t in theirs.trials]
    assert ours.counted_trials == theirs.counted_trials
    assert len(ours.pairs) == len(theirs.pairs)


def test_a_reference_that_fails_is_the_users_to_repair(bed: Bed) -> None:
    bed.world.outcomes = {"ref-01-timed": [Outcome.USER_ERROR]}
    with pytest.raises(UserError, match="the job as it is failed: as the test wants it") as caught:
        conduct(bed)
    assert "stdout.log" in caught.value.what


def test_the_report_and_the_result_say_what_the_journal_says(bed: Bed) -> None:
    conduct(bed)
    found = state(bed)
    text, data = report(found), json.loads(json.dumps(result(found)))
    assert "Verified: 1.650x faster" in text
    assert data["speedup"] == pytest.approx(1.65)
    assert data["settings"] == {"a": 4, "b": True}
    assert data["overhead_per_trial_s"] == pytest.approx(1.0)
    assert {"mfu_reference", "llm", "coverage", "stopped_by"} <= data.keys()
    for line in found.trials:
        assert f"| {line.trial.number} |" in text


def test_a_reference_that_was_measured_is_not_measured_again(bed: Bed) -> None:
    bed.campaign().doctor(full=False)
    launched = list(bed.world.launched)
    bed.campaign().doctor(full=True)
    assert bed.world.launched == launched


def test_a_search_that_was_interrupted_goes_on_unless_it_is_ended(bed: Bed) -> None:
    bed.world.interrupt_after = 8
    campaign = bed.campaign()
    campaign.doctor()
    assert campaign.search() == "interrupt"
    bed.world.acknowledge()
    assert state(bed).stopped_by is None
    assert bed.campaign().search() != "interrupt"
    bed.campaign().end_search("interrupt")
    assert state(bed).stopped_by != "interrupt", "it had come to its own end"


def test_a_pair_in_which_the_job_as_it_is_fails_is_not_held_against_the_candidate(bed: Bed) -> None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    best = campaign.ranking()[0]
    candidate = next(c for c, point in campaign.state.points.items() if point == best)
    bed.world.outcomes = {f"pair-{candidate}-01A": [Outcome.OOM_HOST]}
    campaign.verify()
    told = state(bed).verified[candidate]
    assert told["decision"] == "drop"
    assert told["reason"].startswith("the job as it is could not be timed in a re-run: it ran out")
    assert "same job" not in told["reason"]


def test_what_a_pair_showed_counts_also_if_the_process_dies_right_after_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    best = campaign.ranking()[0]
    candidate = next(c for c, point in campaign.state.points.items() if point == best)
    append = Journal.append

    class Died(Exception):
        pass

    def dies(journal: Journal, event: str, **fields: object) -> object:
        if event == "verified":
            raise Died
        if event == "audit":
            bed.world.wrong_points = [dict(best)]  # a cheat that spares the audit
        return append(journal, event, **fields)

    monkeypatch.setattr(Journal, "append", dies)
    with pytest.raises(Died):
        campaign.verify()
    monkeypatch.undo()
    bed.world.wrong_points = []
    bed.campaign().verify()
    told = state(bed).verified[candidate]
    assert told["decision"] == "drop"
    assert "same_data" in told["reason"]


def test_infrastructure_failures_do_not_spend_the_budget_of_gpu_hours(bed: Bed) -> None:
    bed.budget = {"screens": 16, "gpu_hours": 95 / 3600}
    conduct(bed)
    expected = state(bed).counted_trials
    other = Bed(World(), bed.root, bed.run.create(bed.run.path.parent, now=9.0))
    other.budget = bed.budget
    other.world.outcomes = {"trial-001": [Outcome.INFRA, Outcome.INFRA]}
    conduct(other)
    assert state(other).counted_trials == expected > 0


def test_a_reference_that_wrote_outside_its_copy_stays_refused_when_resumed(bed: Bed) -> None:
    execute = bed.world.execute
    rank = RankRecord(0, 1, 1, True, outside_writes=("/home/me/model.pt",))

    def writes(request: ExecutionRequest) -> ExecutionResult:
        return replace(execute(request), ranks=(rank,))

    bed.world.execute = writes  # type: ignore[method-assign]
    with pytest.raises(UserError, match="wrote outside its own copy: /home/me"):
        bed.campaign().doctor()
    bed.world.execute = execute  # type: ignore[method-assign]
    with pytest.raises(UserError, match="wrote outside its own copy: /home/me"):
        bed.campaign().doctor()


def test_a_reference_that_changes_what_the_next_run_reads_is_refused(bed: Bed) -> None:
    execute = bed.world.execute

    def changes(request: ExecutionRequest) -> ExecutionResult:
        return replace(execute(request), frozen_changed=("data/train.bin",))

    bed.world.execute = changes  # type: ignore[method-assign]
    with pytest.raises(UserError, match="changed files that every run reads: data/train"):
        bed.campaign().doctor()
    assert bed.world.launched == ["ref-01-timed"]


def test_a_crash_at_exit_does_not_count_as_a_failure_of_the_infrastructure(bed: Bed) -> None:
    bed.world.outcomes = {"ref-03-timed": [Outcome.INFRA, Outcome.INFRA]}
    bed.world.crash_at_exit = ("ref-03-timed-again2",)
    conduct(bed)
    assert bed.world.launched.count("ref-03-timed-again3") == 1
