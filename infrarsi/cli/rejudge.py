"""`infrarsi report --rejudge`: all stored receipts of a run judged again, from the records alone.

Nothing is run and nothing is written: the reference's receipts make the evidence, and every receipt
that was judged in the run is judged once more by this version of the checks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infrarsi import __version__
from infrarsi.cli.receipts import reference_results
from infrarsi.contract import CheckResult, Outcome, Project, Status, Verdict
from infrarsi.errors import ExternalError, UserError
from infrarsi.runs import RunDirectory, RunState

if TYPE_CHECKING:
    from infrarsi.verify import Evidence


@dataclass(frozen=True)
class Judged:
    """One receipt: what it was for, its verdict in the run (None: none is kept) and today's.

    `same_then`: whether it was the same job in the run, where the journal has no more than that.
    """

    what: str
    kind: str
    then: Verdict | None
    now: Verdict
    same_then: bool | None = None

    @property
    def is_compared(self) -> bool:
        """Whether the journal says what it was in the run."""
        return self.then is not None or self.same_then is not None

    @property
    def differences(self) -> list[str]:
        """The checks whose result is another one today, each as a line; `gained` left out."""
        if self.same_then is not None and self.same_then is not self.now.same_job:
            return [f"{_same(self.same_then)} in the run, now {_said(self.now)}"]
        return [
            f"{was.check}: {_word(was.status)} ({was.reason}), "
            f"now {_word(is_.status)} ({is_.reason})"
            for was, is_ in self._both()
            if was.status is not is_.status and was.check not in self.gained
        ]

    @property
    def gained(self) -> list[str]:
        """Checks that could not be judged in the run and pass today."""
        return [
            was.check
            for was, is_ in self._both()
            if (was.status, is_.status) == (Status.NOT_COVERED, Status.PASSED)
        ]

    def _both(self) -> list[tuple[CheckResult, CheckResult]]:
        return [(was, self.now[was.check]) for was in self.then.results] if self.then else []


def rejudge(run: RunDirectory, events: tuple[Mapping[str, Any], ...]) -> list[Judged]:
    """Every judged receipt of a run, in the order of its journal.

    Raises UserError for a run that has no reference yet, ExternalError for a receipt that is gone.
    """
    from infrarsi.contract.files import load
    from infrarsi.verify import judge, reference_evidence

    state = RunState.of(events)
    if not state.reference:
        raise UserError(
            "the reference of this run was not measured, so nothing can be judged",
            where=str(run.path),
            fix="go on with `infrarsi run --resume`",
        )
    project = load(run.contract).project
    results = reference_results(run, state)
    evidence = reference_evidence(results, optimizer_steps=project.workload.optimizer_steps)
    judged = [
        Judged(result.execution_id, str(result.kind), None, judge(evidence, result, project))
        for result in results
        if evidence.like(result.kind) is not None and result is not evidence.perturbed
    ]
    for execution_id, beside_id, then in _verdicts(events):
        result = run.read_receipt(execution_id)
        beside = run.read_receipt(beside_id) if beside_id else None
        now = judge(evidence, result, project, beside)
        judged.append(Judged(execution_id, str(result.kind), then, now))
    return judged + _longer(run, events, evidence, project)


def _longer(
    run: RunDirectory, events: tuple[Mapping[str, Any], ...], evidence: "Evidence", project: Project
) -> list[Judged]:
    """The longer runs, each against the reference's of its length."""
    from infrarsi.verify import judge_longer

    found = []
    for event in events:
        if event["event"] != "long_run" or event["status"] not in ("passed", "failed"):
            continue
        steps = event["steps"]
        names = [f"long-{who}-{steps}" for who in ("reference", event["candidate_id"])]
        ours, theirs = (run.read_receipt(_last_of(name, events)) for name in names)
        now = judge_longer(evidence, ours, theirs, project, steps)
        then = Verdict.from_dict(event["verdict"]) if event.get("verdict") else None
        same = None if then else event["status"] == "passed"
        found.append(Judged(theirs.execution_id, f"{theirs.kind}, longer", then, now, same))
    return found


def _last_of(name: str, events: tuple[Mapping[str, Any], ...]) -> str:
    """The last execution of this name that counted; an infrastructure failure was repeated."""
    ran = [
        event["execution_id"]
        for event in events
        if event["event"] == "execution"
        and event["execution_id"].startswith(name)
        and event["outcome"] != Outcome.INFRA
    ]
    if not ran:
        raise ExternalError(
            f"the journal has no execution {name!r} for what it judges",
            fix="restore journal.jsonl from a copy",
        )
    return str(ran[-1])


def _verdicts(events: tuple[Mapping[str, Any], ...]) -> Iterator[tuple[str, str | None, Verdict]]:
    """Every trial, audit and pair that the journal has a verdict of.

    (execution, the untouched job's run of the same pair, verdict)
    """
    for event in events:
        if event["event"] not in ("trial", "audit", "pair") or not event.get("verdict"):
            continue
        verdict = Verdict.from_dict(event["verdict"])
        if event.get("execution_id"):
            yield str(event["execution_id"]), None, verdict
            continue
        pair = f"pair-{event['candidate_id']}-{event['index'] + 1:02d}"
        yield _last_of(f"{pair}B", events), _last_of(f"{pair}A", events), verdict


def shown(judged: list[Judged], state: RunState) -> str:
    """The table, and `same verdicts` or what differs."""
    rows = [("execution", "kind", "then", "now")]
    rows += [(one.what, one.kind, _then(one), _said(one.now)) for one in judged]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    compared = [one for one in judged if one.is_compared]
    differing = [one for one in compared if one.differences]
    lines.append("")
    if not differing:
        lines.append(f"same verdicts ({len(compared)} judged again)")
    gained = sorted({check for one in compared for check in one.gained})
    if gained:
        lines.append(f"not judged in the run, passed now: {', '.join(gained)}")
    for one in differing:
        lines.append(f"{one.what}:")
        lines += [f"  {line}" for line in one.differences]
    versions = f"judged by InfraRSI {state.started.get('version', '?')}, now by {__version__}"
    return "\n".join([*lines, versions])


def insist_on_same(judged: list[Judged], run: RunDirectory) -> None:
    """Raise UserError where a verdict differs from the one in the journal."""
    compared = [one for one in judged if one.is_compared]
    differing = [one for one in compared if one.differences]
    if differing:
        raise UserError(
            f"{len(differing)} of {len(compared)} verdicts differ from those in the journal",
            where=str(run.path),
            fix="the table names the checks: the records were changed, or this version judges "
            "otherwise than the one that ran",
        )


def _then(one: Judged) -> str:
    return _same(one.same_then) if one.same_then is not None else _said(one.then)


def _same(same: bool) -> str:
    return "same job" if same else "not the same job"


def _said(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    passed = f"{verdict.passed} of {len(verdict.results)}"
    if verdict.same_job:
        return f"same job, {passed}"
    return f"no: {', '.join(result.check for result in verdict.failed)}"


def _word(status: Status) -> str:
    return str(status).replace("_", " ")
