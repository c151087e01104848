"""The search: what is proposed, what came of it, and when it is over."""

from collections.abc import Mapping
from dataclasses import replace

from infrarsi.campaign.execution import INFRA_TRIES, Desk
from infrarsi.campaign.parts import Flight, Judge, Refused, Searcher
from infrarsi.contract import (
    ActiveTrial,
    Budget,
    Candidate,
    ExecutionRequest,
    ExecutionResult,
    Exhausted,
    NotYet,
    Outcome,
    Proposal,
    Purpose,
    RunKind,
    Space,
    Trial,
    Verdict,
)
from infrarsi.contract.wording import why_stopped
from infrarsi.errors import ExternalError
from infrarsi.ports import Progress
from infrarsi.runs import RunState

_MAX_REFUSALS = 200
_COMPILE_ALLOWANCE_S = 300.0


class SearchSession:
    """One search over one space; the callbacks of `ports.SearchLoop`.

    Everything that it decides follows from the journal, so a session made from the journal of an
    interrupted run goes on as that run would have.
    """

    def __init__(
        self, desk: Desk, judge: Judge, space: Space, searcher: Searcher, state: RunState
    ) -> None:
        self._desk = desk
        self._judge = judge
        self._space = space
        self._searcher = searcher
        self._budget: Budget = desk.project.search.budget
        self._flights: dict[str, Flight] = {}
        self._variables: dict[str, Mapping[str, str]] = {}
        self._again: list[Flight] = []
        self._by_candidate: dict[str, Trial] = {}
        self._too_slow: set[str] = set()
        self._charged_s = sum(
            e.device_s for e in state.executions if e.outcome is not Outcome.INFRA
        )
        self._started = desk.parts.clock.monotonic() - state.wall_s
        self._infra_in_a_row = 0
        self.stopped_by: str | None = state.stopped_by
        self.history: list[Trial] = [
            self._reference_trial(e.step_time_s, e.one_off_s, e.peak_bytes)
            for e in state.executions
            if e.purpose is Purpose.REFERENCE
            and e.kind is RunKind.TIMED
            and e.outcome is Outcome.OK
        ]
        for line in state.trials:
            self.history.append(line.trial)
            if line.candidate_id:
                self._by_candidate[line.candidate_id] = line.trial
        self._next_number = max((t.number for t in self.history), default=0) + 1
        for number, event in sorted(state.open_proposals.items()):
            self._resume(number, event)

    def _reference_trial(
        self, step_s: float | None, one_off_s: float | None, peak: int | None
    ) -> Trial:
        return Trial(
            0,
            self._space.reference,
            Outcome.OK,
            True,
            step_time_s=step_s,
            one_off_s=one_off_s,
            peak_bytes=peak,
        )

    def _resume(self, number: int, event: dict[str, object]) -> None:
        proposal = Proposal(**event["proposal"])  # type: ignore[arg-type]  # our own journal
        candidate = Candidate.from_dict(event["candidate"])  # type: ignore[arg-type]
        execution_id = self._desk.run.free_name(f"trial-{number:03d}")
        self._again.append(Flight(number, proposal, candidate, execution_id))
        self._next_number = max(self._next_number, number + 1)

    @property
    def screens(self) -> int:
        """Finished trials that count against the budget: launched, whatever came of them."""
        return sum(
            t.number > 0 and t.device_s > 0 and t.outcome.counts_as_screen for t in self.history
        )

    @property
    def best(self) -> Trial | None:
        """The fastest trial that is the same job, the reference included."""
        good = [t for t in self.history if t.step_time_s and t.same_job and t.outcome == "ok"]
        return min(good, key=lambda t: t.step_time_s or 0.0, default=None)

    # ---- callbacks of the loop

    def is_over(self) -> bool:
        """Whether nothing more shall run; sets `stopped_by` once."""
        if self.stopped_by is None:
            self.stopped_by = self._reason_to_stop()
        if self.stopped_by in ("screens", "space_exhausted", "no_gain_expected"):
            return not self._flights and not self._again
        return self.stopped_by is not None

    def _reason_to_stop(self) -> str | None:
        budget, reference_s = self._budget, self._judge.facts.step_time_s
        elapsed_h = (self._desk.parts.clock.monotonic() - self._started) / 3600
        if self._desk.parts.interrupts.requested:
            return "interrupt"
        if budget.wall_hours is not None and elapsed_h >= budget.wall_hours:
            return "wall_hours"
        if budget.gpu_hours is not None and self._charged_s / 3600 >= budget.gpu_hours:
            return "gpu_hours"
        best_s = self.best.step_time_s if self.best else None
        if budget.target_speedup and best_s and reference_s / best_s >= budget.target_speedup:
            return "target_speedup"
        if self.screens >= budget.screens:
            return "screens"
        return None

    def suggest(self) -> ExecutionRequest | None:
        """The next execution, None while there is none."""
        if self.is_over() or self.stopped_by == "interrupt":
            return None
        if self._again:
            flight = self._again.pop(0)
            request = self._request(flight)
            if request is not None:
                return request
        if self.stopped_by is not None:
            return None
        if self.screens + len(self._flights) >= self._budget.screens:
            return None
        for _ in range(_MAX_REFUSALS):
            active = [ActiveTrial(f.number, f.proposal.point) for f in self._flights.values()]
            proposal = self._searcher.propose(self.history, active)
            if isinstance(proposal, NotYet):
                return None
            if isinstance(proposal, Exhausted):
                self.stopped_by = proposal.stopped_by
                return None
            request = self._launchable(proposal)
            if request is not None:
                return request
        self.stopped_by = "space_exhausted"
        return None

    def _launchable(self, proposal: Proposal) -> ExecutionRequest | None:
        number = self._next_number
        self._next_number += 1
        candidate = self._desk.parts.assemble(self._desk.snapshot, proposal.point)
        if isinstance(candidate, Refused):
            self._refuse(number, proposal, candidate.reason)
            return None
        earlier = self._by_candidate.get(candidate.id)
        if candidate.is_reference:
            earlier = self.history[0]
        if earlier is not None:
            self._refuse(number, proposal, f"the same job as trial {earlier.number}", earlier)
            return None
        flight = Flight(
            number, proposal, candidate, self._desk.run.free_name(f"trial-{number:03d}")
        )
        self._desk.run.write_candidate(
            candidate.id,
            {"settings": dict(candidate.settings), "point": proposal.point},
            candidate.patch.diff if candidate.patch else "",
        )
        self._desk.journal.append(
            "proposal",
            number=number,
            execution_id=flight.execution_id,
            point=proposal.point,
            candidate=candidate.to_dict(),
            candidate_id=candidate.id,
            why=proposal.why,
            proposal=proposal.to_dict(),
        )
        return self._request(flight)

    def _request(self, flight: Flight) -> ExecutionRequest | None:
        overlay = self._desk.overlay(flight.candidate)
        if isinstance(overlay, Refused):
            self._refuse(flight.number, flight.proposal, overlay.reason)
            return None
        self._flights[flight.execution_id] = flight
        self._variables[flight.execution_id] = overlay.env
        self._desk.parts.status(f"  {self._now(flight)}")
        self._desk.parts.say(f"  trial {flight.number:2d}    try {flight.proposal.why}", False)
        timeout_s = min(
            self._desk.project.launch.timeout_s,
            4 * self._judge.facts.command_s + _COMPILE_ALLOWANCE_S,
        )
        return self._desk.request(flight.execution_id, RunKind.TIMED, overlay, timeout_s=timeout_s)

    def _refuse(
        self, number: int, proposal: Proposal, reason: str, like: Trial | None = None
    ) -> None:
        trial = Trial(number, proposal.point, Outcome.PATCH_FAILED, reason=reason)
        if like is not None:  # known already, at no cost
            trial = replace(
                like, number=number, point=proposal.point, wall_s=0.0, device_s=0.0, reason=reason
            )
        self.history.append(trial)
        self._desk.journal.append(
            "refused", number=number, trial=trial.to_dict(), why=proposal.why, reason=reason
        )
        self._desk.parts.say(f"  trial {number:2d}    not run: {reason}", False)

    def on_progress(self, execution_id: str, progress: Progress) -> bool:
        """Whether to go on: not with a trial that is clearly slower than the best so far."""
        self._show(execution_id, progress)
        best = self.best
        if best is None or best.step_time_s is None or progress.step_time_s is None:
            return True
        rivals = sum(t.outcome is Outcome.OK and bool(t.same_job) for t in self.history)
        if not self._judge.hopeless(progress, best.step_time_s, rivals):
            return True
        self._too_slow.add(execution_id)
        return False

    def on_result(self, result: ExecutionResult) -> None:
        """Judge one result and write it down."""
        flight = self._flights.pop(result.execution_id)
        variables = self._variables.pop(result.execution_id, {})
        measured = self._desk.record(
            result, Purpose.SEARCH, flight.candidate.id, number=flight.number
        )
        if result.outcome is Outcome.INFRA:
            self._retry(flight, result)
            return
        self._charged_s += result.device_s
        self._infra_in_a_row = 0
        if result.outcome is Outcome.STOPPED and self._goes_on_later(result.execution_id):
            return  # its proposal stays open: a resumed run runs it again
        verdict = self._judge.verdict(result) if result.outcome is Outcome.OK else None
        trial = Trial(
            flight.number,
            flight.proposal.point,
            result.outcome,
            same_job=verdict.same_job if verdict else None,
            step_time_s=measured.step_time_s,
            one_off_s=measured.one_off_s,
            peak_bytes=measured.peak_bytes,
            peak_at_least_bytes=result.peak_at_least_bytes,
            node_ids=tuple(node.node_id for node in result.nodes),
            wall_s=result.wall_s,
            device_s=result.device_s,
            reason=self._why(result, verdict, variables),
        )
        self.history.append(trial)
        self._by_candidate[flight.candidate.id] = trial
        self._desk.journal.append(
            "trial",
            trial=trial.to_dict(),
            candidate_id=flight.candidate.id,
            execution_id=result.execution_id,
            verdict=verdict.to_dict() if verdict else None,
        )
        self._desk.parts.say(self._line(flight, trial), True)

    def _goes_on_later(self, execution_id: str) -> bool:
        return execution_id not in self._too_slow and self.stopped_by in (None, "interrupt")

    def _why(
        self, result: ExecutionResult, verdict: Verdict | None, variables: Mapping[str, str]
    ) -> str:
        if verdict is not None:
            failed = "; ".join(f"{r.check}: {r.reason}" for r in verdict.failed)
            if failed or not verdict.same_job:
                return failed
            return self._judge.without_effect(result, variables)
        if result.outcome is Outcome.STOPPED:
            if result.execution_id in self._too_slow:
                return "clearly slower than the best so far"
            return f"cut short: {why_stopped(self.stopped_by or '', self._budget.model_dump())}"
        return result.reason

    def _retry(self, flight: Flight, result: ExecutionResult) -> None:
        self._infra_in_a_row += 1
        if self._infra_in_a_row >= INFRA_TRIES:
            raise ExternalError(
                f"the infrastructure failed {INFRA_TRIES} times in a row: {result.reason}",
                where=str(self._desk.run.receipt(result.execution_id)),
                fix="look at the log there, then continue with `infrarsi run --resume`",
            )
        self._desk.parts.say(
            f"  trial {flight.number:2d}    again, not charged: {result.reason}", True
        )
        again = self._desk.run.free_name(f"trial-{flight.number:03d}")
        self._again.append(
            Flight(flight.number, flight.proposal, flight.candidate, again, flight.tries + 1)
        )

    def _show(self, execution_id: str, progress: Progress) -> None:
        flight = self._flights.get(execution_id)
        if flight is not None:
            done = f"step {progress.steps} of {self._desk.project.workload.optimizer_steps}"
            self._desk.parts.status(f"  {self._now(flight)}: {done}")

    def _now(self, flight: Flight) -> str:
        return (
            f"trial {flight.number:2d} is running ({self.screens} of {self._budget.screens} done): "
            f"{flight.candidate.describe()}"
        )

    def _line(self, flight: Flight, trial: Trial) -> str:
        head, change = f"  trial {trial.number:2d}  ", flight.candidate.describe()
        if trial.outcome is not Outcome.OK:
            return f"{head}  {trial.outcome}: {change}\n             {trial.reason}"
        speedup = self._judge.facts.step_time_s / (trial.step_time_s or float("inf"))
        head += f"{speedup:6.3f}x  {change}"
        if not trial.same_job:
            return f"{head}\n             not the same job: {trial.reason}"
        return f"{head}\n             {trial.reason}" if trial.reason else head
