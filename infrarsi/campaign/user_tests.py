"""The user's own commands (`verify.user_tests`): on the untouched project, then on candidates.

Each runs in its own copy of the tree. Files of tests are frozen meanwhile, whatever a patch does.
"""

from dataclasses import replace

from infrarsi.campaign.execution import Desk, Variation
from infrarsi.campaign.parts import Refused
from infrarsi.contract import (
    Candidate,
    CheckResult,
    ExecutionResult,
    Outcome,
    Overlay,
    Purpose,
    RunKind,
    Status,
)
from infrarsi.contract.wording import counted
from infrarsi.errors import UserError
from infrarsi.ports import Bench

CHECK = "user_tests"
_LINES = 12


def insist_on_reference(desk: Desk) -> None:
    """Run each command on the untouched project, once in a run.

    Raises UserError with the end of its output for one that fails there.
    """
    commands = desk.project.verify.user_tests
    if not commands:
        return
    names = [_name("reference", number) for number in range(1, len(commands) + 1)]
    results = [desk.earlier(name) for name in names]
    if any(result is None for result in results):
        overlay = desk.overlay(Candidate.of())
        if isinstance(overlay, Refused):
            raise UserError(f"the job cannot be started as it is: {overlay.reason}")
        desk.parts.say(
            f"Your tests ({counted(len(commands), 'command')}) on the code as it is.", True
        )
        with desk.parts.bench() as bench:
            for index, name in enumerate(names):
                result = results[index] or _run(
                    desk, bench, overlay, index, name, Purpose.REFERENCE, "reference"
                )
                _insist(desk, result, index)
        return
    for index, known in enumerate(results):
        assert known is not None
        _insist(desk, known, index)


def run_on_candidate(
    desk: Desk, bench: Bench, candidate: Candidate, overlay: Overlay
) -> CheckResult:
    """Run each command on the candidate's tree until one fails; what ran before is not repeated."""
    commands = desk.project.verify.user_tests
    for index in range(len(commands)):
        name = _name(candidate.id, index + 1)
        result = desk.earlier(name) or _run(
            desk, bench, overlay, index, name, Purpose.VERIFICATION, candidate.id
        )
        reason = _fault(result)
        if reason:
            tail = " | ".join(_tail(result)[-3:])
            ending = f"; its output ends with: {tail}" if tail else ""
            return CheckResult(CHECK, Status.FAILED, f"`{commands[index]}` {reason}{ending}")
    return CheckResult(
        CHECK, Status.PASSED, f"{counted(len(commands), 'command')} passed on the changed code"
    )


def _name(who: str, number: int) -> str:
    return f"tests-{who}-{number}"


def _run(
    desk: Desk,
    bench: Bench,
    overlay: Overlay,
    index: int,
    name: str,
    purpose: Purpose,
    candidate_id: str,
) -> ExecutionResult:
    command = desk.project.verify.user_tests[index]
    desk.parts.status(f"  `{command}` is running")
    result, _ = desk.run_on(
        bench,
        name,
        RunKind.PLAIN,
        replace(overlay, command=command),
        purpose,
        candidate_id,
        variation=Variation(frozen=dict(desk.parts.test_files(desk.snapshot))),
    )
    return result


def _fault(result: ExecutionResult) -> str:
    if result.outcome is not Outcome.OK:
        return f"failed: {result.reason}"
    if result.frozen_changed:
        return f"changed a test file: {result.frozen_changed[0]}"
    return ""


def _insist(desk: Desk, result: ExecutionResult, index: int) -> None:
    reason = _fault(result)
    if not reason:
        return
    command = desk.project.verify.user_tests[index]
    log = desk.run.receipt(result.execution_id) / "stdout.log"
    tail = "\n".join(f"    | {line}" for line in _tail(result)[-_LINES:])
    raise UserError(
        f"your test `{command}` does not pass on the code as it is: {reason}"
        + (f"\n  the end of its output (all of it: {log}):\n{tail}" if tail else ""),
        where="infrarsi.yaml, `verify.user_tests`",
        fix="repair it, or take it out of `verify.user_tests`",
    )


def _tail(result: ExecutionResult) -> list[str]:
    return [line.rstrip() for line in result.log_tail.strip().splitlines() if line.strip()]
