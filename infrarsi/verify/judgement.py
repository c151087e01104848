"""All 16 checks of one run against the reference."""

from dataclasses import replace

from infrarsi.contract import CheckResult, ExecutionResult, Project, RunKind, Status, Verdict
from infrarsi.verify.comparison import Comparison, failed
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.invariants import INVARIANTS

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def judge(
    evidence: Evidence,
    result: ExecutionResult,
    project: Project,
    beside: ExecutionResult | None = None,
) -> Verdict:
    """The verdict on a timed or an audit run; a pure function of its arguments.

    `beside` is the untouched job's timed run of the same pair, if there is one: what other work on
    the machine does to times it did to both.

    A check that is covered for the reference and cannot be judged here fails, since a signal that
    vanished may not pass; unless the run did not complete, where the missing signals say nothing
    more than `completes` does. `speed_reproduces` is not covered until pairs exist (`promotion`).
    """
    comparison = Comparison(evidence, result, project, beside)
    results = list(_own_results(comparison))
    complete = next(r for r in results if r.check == "completes").status is Status.PASSED
    if complete and comparison.same_kind:
        known = _own_verdict(evidence, result.kind, project)
        results = [_vanished(found, known[found.check]) for found in results]
    return Verdict(tuple(results))


def coverage(evidence: Evidence, project: Project) -> dict[str, str]:
    """For each check "covered", or why it is not: over the reference's timed and audit runs."""
    verdicts = [_own_verdict(evidence, RunKind.TIMED, project)]
    if evidence.audit is not None:
        verdicts.append(_own_verdict(evidence, RunKind.AUDIT, project))
    return {check: _covered([verdict[check] for verdict in verdicts]) for check in INVARIANTS}


def _covered(results: list[CheckResult]) -> str:
    if any(result.status is not Status.NOT_COVERED for result in results):
        return "covered"
    return results[0].reason


def _own_verdict(evidence: Evidence, kind: RunKind, project: Project) -> Verdict:
    """The reference against itself: which checks can be judged at all."""
    key = kind, project.contract_hash()
    if key in evidence.known:
        return evidence.known[key]
    own = evidence.like(kind) or evidence.timed[0]
    comparison = Comparison(evidence, replace(own, kind=kind), project)
    evidence.known[key] = Verdict(_own_results(comparison))
    return evidence.known[key]


def _own_results(comparison: Comparison) -> tuple[CheckResult, ...]:
    return tuple(_judged(check, comparison) for check in INVARIANTS)


def _judged(check: str, comparison: Comparison) -> CheckResult:
    """One check; a record that it cannot read fails it, for a record is what a job has to show.

    This is a border: what a damaged or forged record holds was written by another process.
    """
    try:
        return INVARIANTS[check](comparison)
    except _UNREADABLE as error:
        name = type(error).__name__
        return failed(check, f"the record cannot be read ({name}: {error})")


def _vanished(found: CheckResult, known: CheckResult) -> CheckResult:
    if found.status is Status.NOT_COVERED and known.status is not Status.NOT_COVERED:
        return failed(
            found.check, f"covered for the reference, but not for this run: {found.reason}"
        )
    return found
