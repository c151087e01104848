"""A run directory with receipts of a made-up job, as a finished search leaves it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from infrarsi.contract import (
    Candidate,
    ExecutionResult,
    NodeInfo,
    Outcome,
    RankRecord,
    RunKind,
    StepRecord,
    Trial,
    Verdict,
)
from infrarsi.contract.files import load
from infrarsi.runs import RunDirectory
from infrarsi.verify import judge, judge_longer, reference_evidence

STEPS, TOKENS, STEP_S = 20, 1024, 0.1
CONTRACT = f"""schema: infrarsi-project-v1
name: job
launch: {{command: bash train.sh}}
workload: {{optimizer_steps: {STEPS}}}
"""
CANDIDATE = Candidate.of({"num_workers": 2})


def loss(index: int) -> float:
    return 3.0 + 2.0 * math.exp(-0.05 * index)


def result(name: str, kind: RunKind = RunKind.TIMED, step_s: float = STEP_S) -> ExecutionResult:
    """One run; a little slower every second step."""
    ends = [2.0 + step_s * (index + 1) * 1.0 for index in range(STEPS)]
    steps = tuple(
        StepRecord(
            index=index,
            close_look=kind is not RunKind.TIMED or index < 2,
            harness_s=end + 0.001 * (index % 2),
            witness_s=end - 2.0,
            loss=loss(index) * (1 + 1e-7 * (kind is RunKind.PERTURBED)),
            forwards=2,
            backwards=2,
            samples=16,
            elements={"x": TOKENS},
            shapes={"x:int64:8x64": 2},
            digests={"x": (index, 7 * index)} if kind is not RunKind.TIMED or index < 2 else {},
            optimizer_calls={"0:AdamW": 1},
            learning_rates=(1e-3,),
        )
        for index, end in enumerate(ends)
    )
    rank = RankRecord(
        rank=0,
        world_size=1,
        pid=9,
        sealed=True,
        head={"at": 2.0},
        model={"dtypes": ["float32"]},
        steps=steps,
        end={"how": "witness", "peak_bytes": 2**30},
    )
    return ExecutionResult(
        execution_id=name,
        outcome=Outcome.OK,
        reason="",
        kind=kind,
        exit_code=0,
        ranks=(rank,),
        nodes=(NodeInfo("n", "box", 2, memory_bytes=8 * 2**30),),
        command_s=ends[-1] + 0.2,
        wall_s=ends[-1] + 0.5,
    )


REFERENCE = [
    result("ref-01-timed"),
    result("ref-02-audit", RunKind.AUDIT),
    result("ref-03-timed"),
    result("ref-04-perturbed", RunKind.PERTURBED),
]


class StoredRun:
    """Writes the run directory; `judged` adds a receipt and the journal's verdict on it."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.events: list[dict[str, Any]] = []
        (path / "contract.yaml").write_text(CONTRACT)
        self.project = load(path / "contract.yaml").project
        self.evidence = reference_evidence(REFERENCE, optimizer_steps=STEPS)
        self._add("run_started", run_id=path.name, name="job", version="0.0.1", budget={})
        for one in REFERENCE:
            self.receipt(one, "reference", "reference")
        self._add("reference_done", step_time_s=STEP_S, coverage={})

    def receipt(self, result: ExecutionResult, purpose: str, candidate_id: str) -> None:
        """Store a receipt and its line."""
        folder = self.path / "receipts" / result.execution_id
        folder.mkdir(parents=True)
        (folder / "receipt.json").write_text(json.dumps(result.to_dict()))
        self._add(
            "execution",
            execution_id=result.execution_id,
            purpose=purpose,
            kind=result.kind,
            candidate_id=candidate_id,
            outcome=result.outcome,
        )

    def trial(self, number: int, result: ExecutionResult) -> Verdict:
        """A judged trial."""
        self.receipt(result, "search", CANDIDATE.id)
        verdict = judge(self.evidence, result, self.project)
        trial = Trial(number, {"num_workers": 2}, Outcome.OK, same_job=verdict.same_job)
        self._add(
            "trial",
            trial=trial.to_dict(),
            candidate_id=CANDIDATE.id,
            execution_id=result.execution_id,
            verdict=verdict.to_dict(),
        )
        return verdict

    def audit(self, result: ExecutionResult) -> None:
        """A judged audit."""
        self.receipt(result, "verification", CANDIDATE.id)
        verdict = judge(self.evidence, result, self.project)
        self._add(
            "audit",
            candidate_id=CANDIDATE.id,
            execution_id=result.execution_id,
            verdict=verdict.to_dict(),
        )

    def pair(self, index: int, step_s: float) -> None:
        """A judged pair."""
        name = f"pair-{CANDIDATE.id}-{index + 1:02d}"
        ours, theirs = result(f"{name}A"), result(f"{name}B", step_s=step_s)
        for one, who in ((ours, "reference"), (theirs, CANDIDATE.id)):
            self.receipt(one, "verification", who)
        self._add(
            "pair",
            candidate_id=CANDIDATE.id,
            index=index,
            order="AB",
            reference_step_s=STEP_S,
            candidate_step_s=step_s,
            verdict=judge(self.evidence, theirs, self.project).to_dict(),
        )

    def long_run(self, steps: int, status: str, *, with_verdict: bool = False) -> None:
        """A judged longer run; `result` has the length of a trial, which is long enough here."""
        ours = result(f"long-reference-{steps}")
        theirs = result(f"long-{CANDIDATE.id}-{steps}", step_s=0.08)
        for one, who in ((ours, "reference"), (theirs, CANDIDATE.id)):
            self.receipt(one, "verification", who)
        judged = judge_longer(self.evidence, ours, theirs, self.project, steps)
        verdict = judged.to_dict() if with_verdict else None
        fields = {"candidate_id": CANDIDATE.id, "status": status, "steps": steps}
        self._add("long_run", **fields, verdict=verdict)

    def _add(self, event: str, **fields: Any) -> None:
        number = len(self.events)
        self.events.append({"n": number, "t": 1000.0 + number, "event": event, **fields})
        lines = [json.dumps(event) + "\n" for event in self.events]
        (self.path / "journal.jsonl").write_text("".join(lines))

    def directory(self) -> RunDirectory:
        """The same as the commands see it."""
        return RunDirectory.open(self.path)


def finished(path: Path) -> StoredRun:
    """A run with a good trial, a bad one, an audit and a pair."""
    run = StoredRun(path)
    run.trial(1, result("trial-001", step_s=0.08))
    bad = result("trial-002", step_s=0.05)
    steps = tuple(replace(step, samples=8) for step in bad.ranks[0].steps)
    run.trial(2, replace(bad, ranks=(replace(bad.ranks[0], steps=steps),)))
    run.audit(result(f"audit-{CANDIDATE.id}", RunKind.AUDIT))
    run.pair(0, 0.08)
    return run
