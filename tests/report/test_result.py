"""result.json: the keys that programs rely on, and where their values come from."""

import json

import pytest
from finished_journal import COVERAGE, STEP_S

from infrarsi.contract import CHECKS
from infrarsi.report import result
from infrarsi.runs import RunState

PROMISED = (
    *("schema", "run_id", "stack", "promoted", "speedup", "speedup_low", "speedup_high"),
    *("reference_step_s", "candidate_step_s", "mfu_reference", "mfu_candidate", "settings"),
    *("patches", "trials", "outcomes", "pairs", "gpu_hours", "wall_s", "overhead_per_trial_s"),
    *("llm", "coverage", "stopped_by"),
)
OURS = ("name", "confidence", "net_speedup", "break_even_step", "calibration")


def test_every_key_is_there_however_far_the_run_got(at_any_stage: RunState) -> None:
    found = result(at_any_stage)
    assert sorted(found) == sorted((*PROMISED, *OURS))
    assert json.loads(json.dumps(found)) == found
    assert sorted(found["gpu_hours"]) == [
        "failed",
        "reference",
        "search",
        "total",
        "verification",
    ]
    assert sorted(found["llm"]) == ["calls", "model", "tokens", "usd"]
    assert found["promoted"] is (found["speedup"] is not None)


def test_what_is_not_known_is_null(promoted: RunState) -> None:
    found = result(promoted)
    assert found["mfu_reference"] is None
    assert found["mfu_candidate"] is None
    assert found["llm"] == {"model": "none", "calls": 0, "tokens": 0, "usd": None}


def test_the_speedup_is_the_verified_one(promoted: RunState) -> None:
    found = result(promoted)
    assert (found["speedup"], found["speedup_low"], found["speedup_high"]) == (2.0, 1.9, 2.1)
    assert found["reference_step_s"] == STEP_S
    assert found["candidate_step_s"] == STEP_S / 2
    assert (found["net_speedup"], found["break_even_step"], found["pairs"]) == (1.95, 10, 4)
    assert found["settings"] == {"micro_batch": 4}
    assert found["patches"] == ["fused_optimizer"]


def test_only_launched_trials_count(promoted: RunState) -> None:
    found = result(promoted)
    assert found["trials"] == 2
    assert found["outcomes"] == {"ok": 1, "oom_host": 1}
    assert found["stopped_by"] == "screens"


def test_hours_are_split_by_use_and_add_up(promoted: RunState) -> None:
    hours = result(promoted)["gpu_hours"]
    executions = {"reference": 2, "search": 1, "failed": 1, "verification": 8}
    for use, count in executions.items():
        assert hours[use] == pytest.approx(count * 36 / 3600)
    assert hours["total"] == pytest.approx(sum(hours[use] for use in executions))


def test_the_overhead_is_the_gap_between_two_trials_commands(promoted: RunState) -> None:
    assert result(promoted)["overhead_per_trial_s"] == pytest.approx(12.0 - 9.0)


def test_the_coverage_names_every_check(promoted: RunState) -> None:
    assert list(result(promoted)["coverage"]) == list(CHECKS)
    assert result(promoted)["coverage"] == COVERAGE


def test_utilization_grows_with_the_verified_speedup(promoted: RunState) -> None:
    promoted.reference["mfu"] = 0.21
    found = result(promoted)
    assert (found["mfu_reference"], found["mfu_candidate"]) == (0.21, 0.42)


def test_predictions_are_held_against_measurements(promoted: RunState) -> None:
    found = result(promoted)["calibration"]
    # log 2 = 0.693 where 0.6 +- 0.1 was expected; a peak of 2 GiB where 4 +- 0.5 was
    assert (found["trials"], found["in_80"], found["in_95"]) == (1, 1, 1)
    assert found["log_bias"] == pytest.approx(0.0931, abs=1e-4)
    assert (found["peak_trials"], found["peak_in_80"], found["peak_in_95"]) == (1, 0, 0)
    # one of two fitted, both with 0.9
    assert found["fits_brier"] == pytest.approx((0.1**2 + 0.9**2) / 2)
