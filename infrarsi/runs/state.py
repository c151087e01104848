"""The state of a campaign, folded from its journal.

The campaign, the report and `finish` all read a run through this; nothing else is remembered.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infrarsi.contract import Candidate, Outcome, Proposal, Purpose, RunKind, Trial, Verdict


@dataclass(frozen=True)
class ExecutionSummary:
    """The journal's line about one execution; its receipt holds the rest."""

    execution_id: str
    purpose: Purpose
    kind: RunKind
    candidate_id: str
    outcome: Outcome
    reason: str = ""
    number: int | None = None
    command_s: float = 0.0
    wall_s: float = 0.0
    device_s: float = 0.0
    started_at: float = 0.0
    step_time_s: float | None = None
    one_off_s: float | None = None
    peak_bytes: int | None = None
    nodes: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> "ExecutionSummary":
        """From an `execution` event."""
        names = cls.__dataclass_fields__
        fields = {name: value for name, value in event.items() if name in names}
        fields["purpose"] = Purpose(fields["purpose"])
        fields["kind"] = RunKind(fields["kind"])
        fields["outcome"] = Outcome(fields["outcome"])
        fields["nodes"] = tuple(fields.get("nodes", ()))
        return cls(**fields)


@dataclass(frozen=True)
class TrialLine:
    """One finished search trial: what ran, what was found, and what its proposal had expected."""

    trial: Trial
    candidate_id: str
    execution_id: str
    why: str
    verdict: Verdict | None
    expected: Proposal | None = None


@dataclass(frozen=True)
class Pair:
    """One back-to-back pair: step times of the reference and the candidate, in seconds.

    `verdict` is that on the candidate's run of it.
    """

    candidate_id: str
    index: int
    order: str  # "AB" or "BA"
    reference_step_s: float
    candidate_step_s: float
    reference_one_off_s: float | None = None
    candidate_one_off_s: float | None = None
    reference_mean_s: float | None = None
    candidate_mean_s: float | None = None
    verdict: Verdict | None = None


@dataclass
class RunState:
    """Everything that the journal says, in order."""

    started: dict[str, Any] = field(default_factory=dict)
    executions: list[ExecutionSummary] = field(default_factory=list)
    reference: dict[str, Any] = field(default_factory=dict)
    recipes: list[dict[str, Any]] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    points: dict[str, dict[str, Any]] = field(default_factory=dict)
    open_proposals: dict[int, dict[str, Any]] = field(default_factory=dict)
    trials: list[TrialLine] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)
    stopped_by: str | None = None
    ranking: list[str] = field(default_factory=list)
    learned: dict[str, Any] | None = None
    verification: dict[str, Any] = field(default_factory=dict)
    audits: dict[str, Verdict] = field(default_factory=dict)
    pairs: list[Pair] = field(default_factory=list)
    long_runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    verified: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished: dict[str, Any] | None = None
    applied: list[dict[str, Any]] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    failed: dict[str, Any] = field(default_factory=dict)
    """The error that ended the last process: `what`, `where`, `fix`; empty where none did."""
    wall_s: float = 0.0
    """Time that processes worked on the run, from the first event of each to its last."""
    last_t: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> "RunState":
        """Fold a journal; events of unknown names are passed over (a newer version wrote them)."""
        state = cls()
        for event in events:
            now = float(event.get("t", 0.0))
            if event["event"] not in ("run_started", "resumed", "applied"):
                state.wall_s += max(0.0, now - state.last_t)
            state.last_t = now
            handler = _HANDLERS.get(event["event"])
            if handler is not None:
                handler(state, event)
        return state

    @property
    def counted_trials(self) -> int:
        """How many screens the search has spent."""
        return sum(
            line.trial.device_s > 0 and line.trial.outcome.counts_as_screen for line in self.trials
        )

    def pairs_of(self, candidate_id: str) -> list[Pair]:
        """The pairs of one candidate, in order."""
        return [pair for pair in self.pairs if pair.candidate_id == candidate_id]

    @property
    def promoted_id(self) -> str | None:
        """The promoted candidate, None if there is none (yet)."""
        return self.finished.get("promoted") if self.finished else None


def _plain(event: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in event.items() if k not in ("n", "t", "event")}


def _candidate(state: RunState, event: Mapping[str, Any]) -> None:
    candidate = Candidate.from_dict(event["candidate"])
    state.candidates[candidate.id] = candidate
    state.points[candidate.id] = dict(event["point"])


def _proposal(state: RunState, event: Mapping[str, Any]) -> None:
    _candidate(state, event)
    state.open_proposals[event["number"]] = _plain(event)


def _refused(state: RunState, event: Mapping[str, Any]) -> None:
    state.refused.append(_plain(event))
    state.trials.append(
        TrialLine(Trial.from_dict(event["trial"]), "", "", event.get("why", ""), None)
    )


def _trial(state: RunState, event: Mapping[str, Any]) -> None:
    trial = Trial.from_dict(event["trial"])
    verdict = event.get("verdict")
    proposal = state.open_proposals.pop(trial.number, {})
    state.trials.append(
        TrialLine(
            trial,
            event["candidate_id"],
            event["execution_id"],
            proposal.get("why", ""),
            Verdict.from_dict(verdict) if verdict else None,
            Proposal(**proposal["proposal"]) if proposal.get("proposal") else None,
        )
    )


def _verify_started(state: RunState, event: Mapping[str, Any]) -> None:
    state.verification = _plain(event)
    state.ranking = []
    for entry in event["candidates"]:
        _candidate(state, entry)
        state.ranking.append(Candidate.from_dict(entry["candidate"]).id)


def _pair(state: RunState, event: Mapping[str, Any]) -> None:
    fields = {k: v for k, v in event.items() if k in Pair.__dataclass_fields__}
    if fields.get("verdict"):
        fields["verdict"] = Verdict.from_dict(fields["verdict"])
    state.pairs.append(Pair(**fields))


def _audit(state: RunState, event: Mapping[str, Any]) -> None:
    state.audits[event["candidate_id"]] = Verdict.from_dict(event["verdict"])


_HANDLERS: dict[str, Callable[[RunState, Mapping[str, Any]], None]] = {
    "run_started": lambda s, e: s.started.update(_plain(e)),
    "execution": lambda s, e: s.executions.append(ExecutionSummary.from_event(e)),
    "reference_done": lambda s, e: s.reference.update(_plain(e)),
    "recipe": lambda s, e: s.recipes.append(_plain(e)),
    "space": lambda s, e: s.space.update(_plain(e)),
    "proposal": _proposal,
    "refused": _refused,
    "trial": _trial,
    "search_ended": lambda s, e: setattr(s, "stopped_by", e["stopped_by"]),
    "learned": lambda s, e: setattr(s, "learned", _plain(e)),
    "verify_started": _verify_started,
    "audit": _audit,
    "pair": _pair,
    "long_run": lambda s, e: s.long_runs.update({e["candidate_id"]: _plain(e)}),
    "verified": lambda s, e: s.verified.update({e["candidate_id"]: _plain(e)}),
    "finished": lambda s, e: setattr(s, "finished", _plain(e)),
    "applied": lambda s, e: s.applied.append(_plain(e)),
    "interrupted": lambda s, e: s.interrupted.append(e["stage"]),
    "failed": lambda s, e: s.failed.update(_plain(e)),
    "resumed": lambda s, e: s.failed.clear(),
}
