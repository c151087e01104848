"""What a candidate is asked beside its speed: the user's tests, its checkpoint, a longer run."""

from pathlib import Path

import pytest
from simulated_world import Bed, World

from infrarsi.contract import Outcome, RunKind
from infrarsi.errors import UserError
from infrarsi.report import report
from infrarsi.runs import RunDirectory, RunState, costs_of

RESUME = {"set": {"flag:--resume": "@CHECKPOINT@"}}
BEST = {"a": 4, "b": True}
SECOND = {"a": 4}


def conduct(bed: Bed) -> str | None:
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    promoted: str | None = campaign.verify()
    return promoted


def state(bed: Bed) -> RunState:
    return bed.campaign().state


def promoted_settings(bed: Bed) -> dict[str, object]:
    promoted = conduct(bed)
    assert promoted is not None
    return dict(state(bed).candidates[promoted].settings)


def launched(bed: Bed, prefix: str) -> list[str]:
    return [name for name in bed.world.launched if name.startswith(prefix)]


# ---- the user's tests


def test_tests_run_once_on_the_reference_and_on_each_candidate_before_its_pairs(bed: Bed) -> None:
    bed.verify = {"user_tests": ["pytest -q", "python check.py"]}
    promoted = conduct(bed)
    reference = ["tests-reference-1", "tests-reference-2"]
    assert launched(bed, "tests-") == [*reference, f"tests-{promoted}-1", f"tests-{promoted}-2"]
    assert bed.world.launched[:2] == reference, "before anything is charged to the search"
    assert bed.world.launched.index(f"tests-{promoted}-2") < bed.world.launched.index(
        f"pair-{promoted}-01A"
    )
    asked = [r for r in bed.world.requests if r.execution_id.startswith("tests-")]
    assert [r.overlay.command for r in asked[:2]] == ["pytest -q", "python check.py"]
    assert {r.kind for r in asked} == {RunKind.PLAIN}
    assert all(dict(r.frozen) == {"tests/test_a.py": "sha256:0"} for r in asked)
    assert state(bed).reference["coverage"]["user_tests"] == "covered"
    assert "2 commands passed on the changed code" in report(state(bed))


def test_a_test_that_fails_on_the_code_as_it_is_is_the_users_to_repair(bed: Bed) -> None:
    bed.verify = {"user_tests": ["pytest -q"]}
    bed.world.outcomes = {"tests-reference-1": [Outcome.USER_ERROR]}
    with pytest.raises(UserError, match="your test `pytest -q` does not pass") as caught:
        conduct(bed)
    assert bed.world.launched == ["tests-reference-1"]
    assert "    | pytest -q" in caught.value.what, "the end of its output is shown"
    with pytest.raises(UserError, match="does not pass on the code as it is"):
        conduct(bed)


def test_a_candidate_that_fails_a_test_is_dropped_before_its_pairs(bed: Bed) -> None:
    bed.verify = {"user_tests": ["pytest -q"]}
    campaign = bed.campaign()
    campaign.doctor()
    campaign.search()
    best = next(c for c in state(bed).candidates.values() if dict(c.settings) == BEST)
    bed.world.outcomes = {f"tests-{best.id}-1": [Outcome.USER_ERROR]}
    promoted = campaign.verify()
    found = state(bed)
    assert dict(found.candidates[str(promoted)].settings) == SECOND
    assert found.pairs_of(best.id) == []
    assert (
        "does not pass your tests: user_tests: `pytest -q` failed"
        in found.verified[best.id]["reason"]
    )


# ---- resuming


def test_the_untouched_code_resumes_from_both_checkpoints_before_a_promotion(bed: Bed) -> None:
    bed.verify = {"resume": {**RESUME, "steps": 5}}
    promoted = conduct(bed)
    assert launched(bed, "resume-") == ["resume-reference", f"resume-{promoted}"]
    asked = [r for r in bed.world.requests if r.execution_id.startswith("resume-")]
    assert [Path(r.resume_from or "").parent.name for r in asked] == [
        "ref-02-audit",
        f"audit-{promoted}",
    ]
    assert {(r.checkpoint, r.optimizer_steps, r.ends_by, r.kind) for r in asked} == {
        ("out/last.pt", 5, "witness", RunKind.AUDIT)
    }
    check = next(
        r
        for r in state(bed).verified[str(promoted)]["verdict"]["results"]
        if r["check"] == "resume_continues"
    )
    assert check["reason"] == "by decree; by decree, resumed"
    assert not list(bed.run.path.glob("receipts/*/checkpoints")), "nothing kept is left"


def test_a_checkpoint_that_is_put_back_where_it_lay_needs_no_name(bed: Bed) -> None:
    bed.verify = {"resume": {"set": {"flag:--resume": True}}}
    conduct(bed)
    asked = [r for r in bed.world.requests if r.execution_id.startswith("resume-")]
    assert [r.checkpoint for r in asked] == [None, None]


def test_a_candidate_whose_checkpoint_is_not_the_jobs_gives_way_to_the_next(bed: Bed) -> None:
    bed.verify = {"resume": RESUME}
    bed.world.bad_checkpoints = [BEST]
    assert promoted_settings(bed) == SECOND
    assert launched(bed, "resume-reference") == ["resume-reference"], "made once"
    dropped = next(e for e in state(bed).verified.values() if e["decision"] == "drop")
    assert dropped["reason"].startswith("its checkpoint is not the job's: resume_continues: ")


@pytest.mark.parametrize(
    "verify", [{}, {"resume": RESUME, "resume_check": False}], ids=["not said how", "switched off"]
)
def test_nothing_is_kept_or_resumed_unless_the_contract_says_how(
    bed: Bed, verify: dict[str, object]
) -> None:
    bed.verify = verify
    assert conduct(bed) is not None
    assert launched(bed, "resume-") == []
    assert not any(r.keep_checkpoints for r in bed.world.requests)


def test_a_resume_check_that_must_be_made_needs_to_know_how() -> None:
    from infrarsi.contract.project import Verify

    with pytest.raises(ValueError, match="`resume_check: true` needs `resume`"):
        Verify(resume_check=True)


# ---- the longer run


def test_the_winner_is_confirmed_in_a_longer_run_that_leaves_the_figure_as_it_is(bed: Bed) -> None:
    bed.verify = {"long_steps": 160}
    promoted = conduct(bed)
    assert launched(bed, "long-") == ["long-reference-160", f"long-{promoted}-160"]
    asked = [r for r in bed.world.requests if r.execution_id.startswith("long-")]
    assert [r.optimizer_steps for r in asked] == [160, 160]
    found = state(bed)
    line = found.long_runs[str(promoted)]
    assert (line["status"], line["steps"]) == ("passed", 160)
    assert line["speedup"] == pytest.approx(1.65)
    assert "160 steps" in report(found)
    assert costs_of(found).verification_h == pytest.approx((1 + 8 + 2) * 10 / 3600)


def test_auto_takes_at_most_twice_the_time_of_the_pairs(bed: Bed) -> None:
    promoted = conduct(bed)
    steps = state(bed).long_runs[str(promoted)]["steps"]
    per_step_s = 1.0 + 1.0 / 1.65
    spent_s = 8 * 9.0
    assert 40 < steps <= 160
    assert steps * per_step_s + 2 * 2.0 <= 2 * spent_s


def test_a_candidate_that_parts_later_gives_way_to_the_next(bed: Bed) -> None:
    bed.verify = {"long_steps": 160}
    bed.world.wrong_later = [BEST]
    assert promoted_settings(bed) == SECOND
    assert len(launched(bed, "long-reference")) == 1, "the reference's run serves both"
    dropped = next(e for e in state(bed).verified.values() if e["decision"] == "drop")
    assert dropped["reason"] == (
        "is not the same job over 160 steps: loss_within_tolerance: it parts later"
    )


@pytest.mark.parametrize(
    ("verify", "workload", "why"),
    [
        ({"long_steps": 0}, {}, "switched off"),
        ({}, {"ends_by": "job"}, "the job ends by itself after 40 steps"),
    ],
    ids=["off", "own end"],
)
def test_there_is_no_longer_run_where_it_is_off_or_would_change_the_job(
    bed: Bed, verify: dict[str, object], workload: dict[str, object], why: str
) -> None:
    bed.verify, bed.workload = verify, workload
    promoted = conduct(bed)
    assert launched(bed, "long-") == []
    line = state(bed).long_runs[str(promoted)]
    assert line["status"] == "not_covered"
    assert line["reason"].startswith(why)
    assert f"not covered: {why}" in report(state(bed))


def test_a_reference_that_cannot_run_longer_is_not_held_against_the_candidate(bed: Bed) -> None:
    bed.verify = {"long_steps": 160}
    bed.world.outcomes = {"long-reference-160": [Outcome.USER_ERROR]}
    promoted = conduct(bed)
    assert promoted is not None
    assert state(bed).long_runs[promoted]["status"] == "not_covered"


@pytest.mark.parametrize("cut", [17, 19, 21, 23, 25, 28])
def test_a_run_that_is_cut_off_among_them_ends_like_an_uninterrupted_one(
    bed: Bed, tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    verify = {"resume": RESUME, "user_tests": ["pytest -q", "ruff ."], "long_steps": 100}
    other = Bed(World(), bed.root, RunDirectory.create(tmp_path_factory.mktemp("o"), now=0.0))
    other.verify = bed.verify = dict(verify)
    other.world.wrong_later = bed.world.wrong_later = [BEST]
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
    assert {k: v["decision"] for k, v in ours.verified.items()} == {
        k: v["decision"] for k, v in theirs.verified.items()
    }
    done = {name.split("-again")[0] for name in bed.world.launched}
    assert done == set(other.world.launched)
    assert ours.long_runs == theirs.long_runs
