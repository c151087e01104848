"""The journal of a made-up run, up to any of its stages."""

from typing import Any

from infrarsi.contract import (
    CHECKS,
    Candidate,
    CheckResult,
    Outcome,
    Patch,
    Status,
    Trial,
    Verdict,
)
from infrarsi.runs import RunState

STAGES = ("begun", "measured", "searched", "promoted", "dropped")
STEP_S = 0.2
NODE = {"node_id": "n1", "hostname": "box", "cpus": 2, "gpus": [], "gpu_name": None}
DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-slow()\n+fast()\n"
WINNER = Candidate.of({"micro_batch": 4}, Patch(("fused_optimizer",), DIFF))
COVERAGE = dict.fromkeys(CHECKS, "covered") | {"memory_cap": "not judged | yet"}
SAME = Verdict(
    tuple(
        CheckResult(
            check,
            Status.NOT_COVERED if check == "memory_cap" else Status.PASSED,
            "not judged | yet" if check == "memory_cap" else "as it was",
        )
        for check in CHECKS
    )
)


class Log:
    """Collects events as a journal has them, one second apart."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def add(self, event: str, **fields: Any) -> None:
        """One event more."""
        number = len(self.events)
        self.events.append({"n": number, "t": 1000.0 + number, "event": event, **fields})


def execution(log: Log, name: str, purpose: str, at_s: float, **fields: Any) -> None:
    """One execution of 10 s on one node, 3 s after the one before in the search."""
    log.add(
        "execution",
        **{
            "execution_id": name,
            "purpose": purpose,
            "kind": "timed",
            "candidate_id": "reference" if purpose == "reference" else WINNER.id,
            "outcome": "ok",
            "command_s": 9.0,
            "wall_s": 10.0,
            "device_s": 36.0,
            "started_at": at_s,
            "step_time_s": STEP_S,
            "one_off_s": 2.0,
            "peak_bytes": 3 << 30,
            "nodes": [NODE],
            **fields,
        },
    )


def begun(log: Log) -> None:
    """The run's first line."""
    log.add(
        "run_started",
        run_id="20260101-000000-aaaa",
        name="job",
        stack="native-ddp",
        command="bash train.sh",
        contract_hash="0" * 64,
        project_root="/nowhere/job",
        snapshot="sha256:" + "a" * 64,
        snapshot_root="/nowhere/snapshot",
        optimizer_steps=20,
        planned_steps=5000,
        budget={"screens": 3},
        llm={"backend": "none"},
        confidence=0.95,
        version="0.1.0",
    )


def measured(log: Log) -> None:
    """The reference."""
    for number in range(2):
        execution(log, f"ref-0{number}-timed", "reference", 12.0 * number)
    log.add(
        "reference_done",
        step_time_s=STEP_S,
        step_log_sd=0.004,
        one_off_s=2.0,
        command_s=9.0,
        peak_bytes=3 << 30,
        samples_per_update=16,
        elements_per_update={"x:int64": 4096},
        resolvable_gain=0.011,
        max_pairs=12,
        coverage=COVERAGE,
        phases_s={},
    )


def searched(log: Log) -> None:
    """A winner, one that ran out of memory, and one that was not launched."""
    log.add(
        "recipe",
        name="fused_optimizer",
        family="optimizer",
        title="one kernel for all parameters",
        status="offered",
        reason="local check passed",
        notes=[],
    )
    log.add(
        "space",
        size=6,
        dimensions=[
            {"name": "micro_batch", "family": "micro_batch", "kind": "knob", "values": [1, 2, 4],
             "reference": 1},
            {"name": "fused_optimizer", "family": "optimizer", "kind": "recipe",
             "values": [False, True], "reference": False},
        ],
    )  # fmt: skip
    points = [
        ({"micro_batch": 4, "fused_optimizer": True}, "ok", True, 0.1, ""),
        ({"micro_batch": 2, "fused_optimizer": False}, "oom_host", None, None, "no memory | left"),
    ]
    for number, (point, outcome, same, step_s, reason) in enumerate(points, start=1):
        candidate = WINNER if number == 1 else Candidate.of({"micro_batch": 2})
        name = f"trial-00{number}"
        log.add(
            "proposal",
            number=number,
            execution_id=name,
            point=point,
            candidate=candidate.to_dict(),
            candidate_id=candidate.id,
            why="it is expected to help",
            proposal={
                "point": point,
                "why": "it is expected to help",
                "expected_log_time": -0.6,
                "expected_log_time_sd": 0.1,
                "fits": 0.9,
                "runs": 1.0,
                "expected_peak_bytes": 4.0 * (1 << 30),
                "expected_peak_sd_bytes": 0.5 * (1 << 30),
            },
        )
        execution(log, name, "search", 100.0 + 12 * number, outcome=outcome)
        log.add(
            "trial",
            trial=_trial(number, point, outcome, same, step_s, reason),
            candidate_id=candidate.id,
            execution_id=name,
            verdict=SAME.to_dict() if same else None,
        )
    refused = {"micro_batch": 1, "fused_optimizer": True}
    log.add(
        "refused",
        number=3,
        trial=_trial(3, refused, "patch_failed", None, None, "it does not apply", launched=False),
        why="it is expected to help",
        reason="it does not apply",
    )
    log.add("search_ended", stopped_by="screens")


def verified(log: Log, *, promoted: bool = True) -> None:
    """Four pairs and the decision."""
    log.add(
        "verify_started",
        candidates=[
            {
                "candidate": WINNER.to_dict(),
                "point": {"micro_batch": 4, "fused_optimizer": True},
            }
        ],
        max_pairs=12,
        resolvable_gain=0.011,
    )
    for index in range(4):
        for arm in "AB":
            execution(log, f"pair-{index}{arm}", "verification", 200.0 + 20 * index)
        log.add(
            "pair",
            candidate_id=WINNER.id,
            index=index,
            order="AB" if index % 2 == 0 else "BA",
            reference_step_s=STEP_S,
            candidate_step_s=STEP_S / 2,
            reference_one_off_s=2.0,
            candidate_one_off_s=3.0,
        )
    log.add(
        "verified",
        candidate_id=WINNER.id,
        decision="promote" if promoted else "drop",
        reason="after 4 pairs the gain is clear" if promoted else "the gain is too small",
        speedup=2.0,
        low=1.9,
        high=2.1,
        net_speedup=1.95,
        break_even_step=10,
        verdict=SAME.to_dict(),
    )
    log.add("finished", promoted=WINNER.id if promoted else None)


def _trial(
    number: int,
    point: dict[str, Any],
    outcome: str,
    same: bool | None,
    step_s: float | None,
    reason: str,
    *,
    launched: bool = True,
) -> dict[str, Any]:
    return Trial(
        number,
        point,
        Outcome(outcome),
        same_job=same,
        step_time_s=step_s,
        one_off_s=2.0 if step_s else None,
        peak_bytes=2 << 30 if step_s else None,
        wall_s=10.0 if launched else 0.0,
        device_s=36.0 if launched else 0.0,
        reason=reason,
    ).to_dict()


def state_at(stage: str) -> RunState:
    """The state of a run that ended after a stage."""
    return RunState.of(events_at(stage))


def events_at(stage: str) -> list[dict[str, Any]]:
    """The journal of a run that ended after a stage."""
    log = Log()
    begun(log)
    if stage != "begun":
        measured(log)
    if stage not in ("begun", "measured"):
        searched(log)
    if stage in ("promoted", "dropped"):
        verified(log, promoted=stage == "promoted")
    return log.events
