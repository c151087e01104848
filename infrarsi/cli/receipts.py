"""The stored records of a run's executions, read and never written."""

from infrarsi.contract import ExecutionResult, Outcome, Purpose, RunKind
from infrarsi.runs import RunDirectory, RunState

_JUDGED = (RunKind.TIMED, RunKind.AUDIT, RunKind.PERTURBED)


def reference_results(run: RunDirectory, state: RunState) -> list[ExecutionResult]:
    """The runs of the reference that everything was judged by, in the order in which they ran."""
    return [
        run.read_receipt(execution.execution_id)
        for execution in state.executions
        if execution.purpose is Purpose.REFERENCE
        and execution.outcome is Outcome.OK
        and execution.kind in _JUDGED
        and execution.candidate_id == "reference"
    ]
