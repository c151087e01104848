"""The stored records of a run's executions, read and never written."""

import json

from infrarsi.contract import ExecutionResult, Outcome, Purpose, RunKind
from infrarsi.errors import ExternalError
from infrarsi.runs import RunDirectory, RunState

_JUDGED = (RunKind.TIMED, RunKind.AUDIT, RunKind.PERTURBED)


def stored(run: RunDirectory, execution_id: str) -> ExecutionResult:
    """The full result of one execution; raises ExternalError where it cannot be read."""
    path = run.receipt_file(execution_id)
    try:
        return ExecutionResult.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        what = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise ExternalError(
            f"the receipt cannot be read: {what}",
            where=str(path),
            fix="restore the file from a copy",
        ) from error


def reference_results(run: RunDirectory, state: RunState) -> list[ExecutionResult]:
    """The runs of the reference that everything was judged by, in the order in which they ran."""
    return [
        stored(run, execution.execution_id)
        for execution in state.executions
        if execution.purpose is Purpose.REFERENCE
        and execution.outcome is Outcome.OK
        and execution.kind in _JUDGED
        and execution.candidate_id == "reference"
    ]
