"""Making requests, running them on held nodes, and writing down what came back."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from infrarsi.campaign.parts import Measured, Parts, Refused
from infrarsi.contract import (
    Candidate,
    ExecutionRequest,
    ExecutionResult,
    Outcome,
    Overlay,
    Project,
    Purpose,
    RunKind,
    SnapshotRef,
)
from infrarsi.errors import ExternalError, Interrupted
from infrarsi.ports import Bench
from infrarsi.runs import Journal, RunDirectory, RunState, write_atomically

INFRA_TRIES = 3
_POLL_S = 0.5
_STOP_GRACE_S = 30.0
_AGAIN = re.compile(r"-again\d+$")


@dataclass(frozen=True)
class Variation:
    """In what an execution differs from a plain one of the project; None leaves a field as it is.

    See `ExecutionRequest` for their meaning.
    """

    optimizer_steps: int | None = None
    ends_by: str | None = None
    keep_checkpoints: bool | None = None
    resume_from: str | None = None
    checkpoint: str | None = None
    frozen: Mapping[str, str] | None = None

    def of(self, request: ExecutionRequest) -> ExecutionRequest:
        """The request with the fields that are set."""
        return replace(request, **{k: v for k, v in vars(self).items() if v is not None})


@dataclass(frozen=True)
class Desk:
    """What every stage of one campaign shares."""

    project: Project
    run: RunDirectory
    journal: Journal
    snapshot: SnapshotRef
    witness_key: str
    parts: Parts

    @property
    def state(self) -> RunState:
        """The state as the journal has it now."""
        return RunState.of(self.journal.events)

    def earlier(self, execution_id: str) -> ExecutionResult | None:
        """The result of an execution that has already ended by itself, None if none has.

        Nor is there one after a first crash at exit, which is repeated.
        """
        ended = [
            line.execution_id
            for line in self.state.executions
            if line.outcome not in (Outcome.INFRA, Outcome.STOPPED)
            and _AGAIN.sub("", line.execution_id) == execution_id
        ]
        if not ended:
            return None
        result = self.receipt(ended[-1])
        return None if result.crashed_at_exit and len(ended) == 1 else result

    def request(
        self,
        execution_id: str,
        kind: RunKind,
        overlay: Overlay,
        *,
        timeout_s: float | None = None,
    ) -> ExecutionRequest:
        """The request for one execution of an overlay, with its own receipt folder."""
        launch, workload = self.project.launch, self.project.workload
        return ExecutionRequest(
            execution_id=execution_id,
            kind=kind,
            snapshot=self.snapshot,
            overlay=overlay,
            receipt_dir=str(self.run.receipt(execution_id)),
            cache_dir=str(self.run.path / "cache"),
            optimizer_steps=workload.optimizer_steps,
            ends_by=workload.ends_by,
            witness_key=self.witness_key,
            nodes=launch.nodes,
            gpus_per_node=launch.gpus_per_node,
            start_timeout_s=launch.start_timeout_s,
            timeout_s=timeout_s or launch.timeout_s,
            frozen=dict(self.project.frozen),
            env_pass=tuple(launch.env_pass),
        )

    def overlay(self, candidate: Candidate) -> Overlay | Refused:
        """How the candidate's copy differs from the snapshot."""
        return self.parts.overlay(self.snapshot, candidate)

    def record(
        self,
        result: ExecutionResult,
        purpose: Purpose,
        candidate_id: str,
        number: int | None = None,
    ) -> Measured:
        """Write the receipt and the journal's line; returns the measurement."""
        measured = self.parts.measure(result)
        receipt = self.run.receipt(result.execution_id) / "receipt.json"
        write_atomically(receipt, json.dumps(result.to_dict()) + "\n")
        self.journal.append(
            "execution",
            execution_id=result.execution_id,
            purpose=purpose,
            kind=result.kind,
            candidate_id=candidate_id,
            number=number,
            outcome=result.outcome,
            reason=result.reason,
            command_s=round(result.command_s, 4),
            wall_s=round(result.wall_s, 4),
            device_s=round(result.device_s, 4),
            started_at=round(result.started_at, 4),
            step_time_s=measured.step_time_s,
            one_off_s=measured.one_off_s,
            peak_bytes=measured.peak_bytes,
            nodes=[node.__dict__ for node in result.nodes],
        )
        return measured

    def receipt(self, execution_id: str) -> ExecutionResult:
        """The full result of an earlier execution of this run."""
        return self.run.read_receipt(execution_id)

    def run_on(
        self,
        bench: Bench,
        execution_id: str,
        kind: RunKind,
        overlay: Overlay,
        purpose: Purpose,
        candidate_id: str,
        *,
        timeout_s: float | None = None,
        variation: Variation = Variation(),  # frozen
    ) -> tuple[ExecutionResult, Measured]:
        """Run once on held nodes, again after infrastructure failures, and write it down.

        A run that crashed at exit, its records sealed, is repeated once, and charged.

        Raises Interrupted when the user asked to stop, after the job has ended, and ExternalError
        when the infrastructure failed three times.
        """
        reason, name, failures, has_crashed = "", execution_id, 0, False
        while failures < INFRA_TRIES:
            name = self.run.free_name(execution_id)
            job = bench.start(variation.of(self.request(name, kind, overlay, timeout_s=timeout_s)))
            result = None
            while result is None:
                result = job.wait(_POLL_S)
                if result is None and self.parts.interrupts.requested:
                    job.stop()
                    result = job.wait(_STOP_GRACE_S)
                    if result is not None:
                        self.record(result, purpose, candidate_id)
                    raise Interrupted
            measured = self.record(result, purpose, candidate_id)
            if result.crashed_at_exit and not has_crashed:
                has_crashed = True
                self.parts.say(f"  Repeated once, after a crash at exit: {result.reason}", True)
                continue
            if result.outcome is not Outcome.INFRA:
                return result, measured
            failures, reason = failures + 1, result.reason
            self.parts.say(f"  Repeated, not charged: {reason}", True)
        raise ExternalError(
            f"the infrastructure failed {INFRA_TRIES} times in a row: {reason}",
            where=str(self.run.receipt(name)),
            fix="look at the log there, then continue with `infrarsi run --resume`",
        )
