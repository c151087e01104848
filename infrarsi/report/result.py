"""result.json: the outcome of a run for programs."""

from collections import Counter
from typing import Any

from infrarsi.runs import RunState, calibration_of, costs_of, within

SCHEMA = "infrarsi-result-v1"


def result(state: RunState) -> dict[str, Any]:
    """The result of a run as far as its journal goes; every key is always there."""
    promoted = state.promoted_id
    winner = state.verified.get(promoted or "", {})
    candidate = state.candidates.get(promoted or "")
    costs = costs_of(state)
    reference_s = state.reference.get("step_time_s")
    speedup = winner.get("speedup")
    mfu = state.reference.get("mfu")
    llm = state.started.get("llm", {})
    return {
        "schema": SCHEMA,
        "run_id": state.started.get("run_id"),
        "name": state.started.get("name"),
        "stack": state.started.get("stack"),
        "promoted": promoted is not None,
        "speedup": speedup,
        "speedup_low": winner.get("low"),
        "speedup_high": winner.get("high"),
        "confidence": state.started.get("confidence"),
        "net_speedup": winner.get("net_speedup"),
        "break_even_step": winner.get("break_even_step"),
        "reference_step_s": reference_s,
        "candidate_step_s": reference_s / speedup if reference_s and speedup else None,
        "mfu_reference": mfu,
        "mfu_candidate": mfu * speedup if mfu and speedup else None,  # the same work per update
        "settings": dict(candidate.settings) if candidate else {},
        "patches": list(candidate.patch_names) if candidate else [],
        "trials": state.counted_trials,
        "outcomes": dict(
            Counter(str(line.trial.outcome) for line in state.trials if line.trial.device_s)
        ),
        "pairs": len(state.pairs_of(promoted)) if promoted else len(state.pairs),
        "gpu_hours": {
            "total": costs.total_h,
            "reference": costs.reference_h,
            "search": costs.search_h,
            "failed": costs.failed_h,
            "verification": costs.verification_h,
        },
        "wall_s": state.wall_s,
        "overhead_per_trial_s": costs.overhead_per_trial_s,
        "llm": {"model": llm.get("backend", "none"), "calls": 0, "tokens": 0, "usd": None},
        "calibration": _calibration(state),
        "coverage": dict(state.reference.get("coverage", {})),
        "stopped_by": state.stopped_by,
    }


def _calibration(state: RunState) -> dict[str, Any]:
    """How many of the searcher's predictions were measured, and how far they were right."""
    found = calibration_of(state)
    speed, peak = list(found.speed.values()), list(found.peak.values())
    return {
        "trials": len(speed),
        "in_80": within(speed, 0.8),
        "in_95": within(speed, 0.95),
        "log_bias": found.log_bias,
        "peak_trials": len(peak),
        "peak_in_80": within(peak, 0.8),
        "peak_in_95": within(peak, 0.95),
        "fits_brier": found.fits_brier,
    }
