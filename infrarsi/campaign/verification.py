"""Verification: the best candidates against the untouched reference, back to back."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from infrarsi.campaign.execution import Desk, Variation
from infrarsi.campaign.longer import confirm
from infrarsi.campaign.parts import Judge, PairTimes, Refused, Standing
from infrarsi.campaign.resumption import combined, keeps_checkpoints, resume_check
from infrarsi.campaign.user_tests import run_on_candidate
from infrarsi.contract import (
    CHECKS,
    Candidate,
    CheckResult,
    ExecutionResult,
    Outcome,
    Overlay,
    Point,
    Purpose,
    RunKind,
    Status,
    Verdict,
)
from infrarsi.contract.wording import counted, duration, spread
from infrarsi.errors import Interrupted
from infrarsi.ports import Bench
from infrarsi.runs import Pair, RunState

_ALLOWANCE_S = 300.0
_WIDE = 2.0  # an interval wider than this factor is no figure to show


@dataclass(frozen=True)
class Contender:
    """A candidate that is verified."""

    candidate: Candidate
    point: Point
    overlay: Overlay


class Verification:
    """At most three candidates, one after the other, until one is promoted.

    Each passes an audit run and the user's tests first, then runs in ABBA order with the reference
    until the paired test has decided. One that would be promoted must also be resumed from, where
    the contract says how, and stay the same job in a longer run. What the journal holds already is
    not run again.
    """

    def __init__(self, desk: Desk, judge: Judge, state: RunState) -> None:
        self._desk = desk
        self._judge = judge
        self._state = state
        self._say = desk.parts.say

    def run(self, points: Sequence[Point]) -> str | None:
        """The promoted candidate's id, None if none is; what was found is in the journal."""
        contenders = self._contenders(points)
        if not contenders:
            return None
        facts = self._judge.facts
        self._say(
            f"Verification: {counted(len(contenders), 'candidate')} against the job as it is, "
            f"each in up to {counted(facts.max_pairs, 'pair')} of runs.",
            True,
        )
        self._say(
            f"  A pair takes about {duration(2 * facts.command_s)}; gains below "
            f"{spread(facts.resolvable_gain)} cannot be told from noise here.",
            True,
        )
        if not self._state.verification:
            self._desk.journal.append(
                "verify_started",
                candidates=[
                    {"candidate": c.candidate.to_dict(), "point": c.point} for c in contenders
                ],
                max_pairs=facts.max_pairs,
                resolvable_gain=facts.resolvable_gain,
            )
        with self._desk.parts.bench() as bench:
            for contender in contenders:
                done = self._state.verified.get(contender.candidate.id)
                decision = done["decision"] if done else self._verify(bench, contender, contenders)
                if decision == "promote":
                    return contender.candidate.id
        return None

    def _contenders(self, points: Sequence[Point]) -> list[Contender]:
        contenders: list[Contender] = []
        for point in points:
            candidate = self._desk.parts.assemble(self._desk.snapshot, point)
            if isinstance(candidate, Refused) or candidate.is_reference:
                continue
            overlay = self._desk.overlay(candidate)
            if isinstance(overlay, Refused):
                continue
            if all(candidate.id != other.candidate.id for other in contenders):
                contenders.append(Contender(candidate, dict(point), overlay))
        for contender in contenders:
            patch = contender.candidate.patch
            self._desk.run.write_candidate(
                contender.candidate.id,
                {"settings": dict(contender.candidate.settings), "point": contender.point},
                patch.diff if patch else "",
            )
        return contenders

    def _verify(self, bench: Bench, contender: Contender, all_: Sequence[Contender]) -> str:
        self._say(f"  {contender.candidate.describe()}", True)
        reference = self._desk.overlay(Candidate.of())
        assert isinstance(reference, Overlay)
        verdict = self._audit(bench, contender)
        known = self._state.pairs_of(contender.candidate.id)
        for judged in (pair.verdict for pair in known if pair.verdict is not None):
            verdict = _merge(verdict, judged)
        if not verdict.same_job:
            return self._close(contender, verdict, None, "is not the same job")
        if self._desk.project.verify.user_tests:
            tested = run_on_candidate(self._desk, bench, contender.candidate, contender.overlay)
            verdict = verdict.with_result(tested)
            if tested.status is Status.FAILED:
                return self._close(contender, verdict, None, "does not pass your tests")
        pairs = [_times(pair) for pair in known]
        cold = self._cold_one_off(contender.candidate)
        while True:
            standing = self._judge.standing(pairs, candidates=len(all_), cold_one_off_s=cold)
            if pairs and len(pairs) % 2 == 0:
                self._say(f"    {len(pairs)} pairs: {_speedup(standing)}; {standing.reason}", False)
            if standing.decision != "continue":
                break
            pair, judged = self._pair(bench, contender, reference, len(pairs))
            verdict = _merge(verdict, judged)
            if not verdict.same_job:
                return self._close(contender, verdict, standing, "is not the same job in a re-run")
            if isinstance(pair, str):
                return self._close(contender, verdict, standing, pair)
            pairs.append(pair)
        if standing.check is not None:
            verdict = verdict.with_result(standing.check)
        if standing.decision != "promote" or not verdict.same_job:
            return self._close(contender, verdict, standing, standing.reason)
        return self._last_questions(bench, contender, reference, pairs, verdict, standing)

    def _last_questions(
        self,
        bench: Bench,
        contender: Contender,
        reference: Overlay,
        pairs: list[PairTimes],
        verdict: Verdict,
        standing: Standing,
    ) -> str:
        """What is asked of a candidate that is fast enough: its checkpoint, and a longer run."""
        resumed = resume_check(
            self._desk, self._judge, bench, contender.candidate, _audit_name(contender)
        )
        if resumed is not None:
            verdict = verdict.with_result(combined(verdict[resumed.check], resumed))
            if resumed.status is Status.FAILED:
                return self._close(contender, verdict, standing, "its checkpoint is not the job's")
        overlays = (reference, contender.overlay)
        longer = confirm(self._desk, self._judge, bench, contender.candidate, overlays, pairs)
        if longer.status is Status.FAILED and longer.verdict is not None:
            why = f"is not the same job over {longer.steps} steps"
            return self._close(contender, _merge(verdict, longer.verdict), standing, why)
        shown = f", {longer.speedup:.3f}x faster" if longer.speedup else ""
        told = "not run: " if longer.status is Status.NOT_COVERED else ""
        self._say(f"    longer run: {told}{longer.reason}{shown}", False)
        return self._close(contender, verdict, standing, standing.reason)

    def _audit(self, bench: Bench, contender: Contender) -> Verdict:
        known = self._state.audits.get(contender.candidate.id)
        if known is not None:
            return known
        self._desk.parts.status("    a run that is looked at closely")
        keep = keeps_checkpoints(self._desk.project)
        result = self._run(
            bench,
            contender,
            _audit_name(contender),
            RunKind.AUDIT,
            Variation(keep_checkpoints=keep),
        )
        verdict = self._judge.verdict(result)
        self._desk.journal.append(
            "audit",
            candidate_id=contender.candidate.id,
            execution_id=result.execution_id,
            verdict=verdict.to_dict(),
        )
        return verdict

    def _run(
        self,
        bench: Bench,
        contender: Contender,
        name: str,
        kind: RunKind,
        variation: Variation = Variation(),  # noqa: B008  # frozen
    ) -> ExecutionResult:
        timeout_s = min(
            self._desk.project.launch.timeout_s,
            4 * self._judge.facts.command_s + _ALLOWANCE_S,
        )
        result, _ = self._desk.run_on(
            bench,
            name,
            kind,
            contender.overlay,
            Purpose.VERIFICATION,
            contender.candidate.id,
            timeout_s=timeout_s,
            variation=variation,
        )
        return result

    def _pair(
        self, bench: Bench, contender: Contender, reference: Overlay, index: int
    ) -> tuple[PairTimes | str, Verdict]:
        """The times of one more pair, or why it has none; the verdict on the candidate's run."""
        order = "AB" if index % 2 == 0 else "BA"
        baseline = Contender(Candidate.of(), {}, reference)
        results: dict[str, ExecutionResult] = {}
        for arm in order:
            if self._desk.parts.interrupts.requested:
                raise Interrupted
            who = baseline if arm == "A" else contender
            what = "the job as it is" if arm == "A" else "the candidate"
            self._desk.parts.status(f"    pair {index + 1}: {what} is running")
            name = f"pair-{contender.candidate.id}-{index + 1:02d}{arm}"
            results[arm] = self._run(bench, who, name, RunKind.TIMED)
        ran = results["A"].outcome is Outcome.OK
        verdict = self._judge.verdict(results["B"], results["A"] if ran else None)
        for arm, name in (("A", "the job as it is"), ("B", "the candidate")):
            if results[arm].outcome is not Outcome.OK:
                what = f"{results[arm].outcome.sentence}: {results[arm].reason}"
                return f"{name} could not be timed in a re-run: it {what}", verdict
        a, b = (self._desk.parts.measure(results[arm]) for arm in "AB")
        if a.step_time_s is None or b.step_time_s is None:
            return "no steady step was seen in a re-run", verdict
        times = PairTimes(
            a.step_time_s,
            b.step_time_s,
            a.one_off_s or 0.0,
            b.one_off_s or 0.0,
            a.mean_step_s,
            b.mean_step_s,
        )
        self._desk.journal.append(
            "pair",
            candidate_id=contender.candidate.id,
            index=index,
            order=order,
            verdict=verdict.to_dict(),
            **asdict(times),
        )
        return times, verdict

    def _cold_one_off(self, candidate: Candidate) -> float | None:
        """The largest one-off cost that any trial with this candidate's recipes had."""
        wanted = set(candidate.patch_names)
        costs = [
            line.trial.one_off_s
            for line in self._state.trials
            if line.trial.one_off_s is not None
            and (known := self._state.candidates.get(line.candidate_id)) is not None
            and set(known.patch_names) & wanted
            and set(known.patch_names) <= wanted
        ]
        return max(costs) if costs else None

    def _close(
        self, contender: Contender, verdict: Verdict, standing: Standing | None, reason: str
    ) -> str:
        promoted = standing is not None and standing.decision == "promote" and verdict.same_job
        decision = "promote" if promoted else "drop"
        failed = "; ".join(f"{r.check}: {r.reason}" for r in verdict.failed)
        self._desk.journal.append(
            "verified",
            candidate_id=contender.candidate.id,
            decision=decision,
            reason=f"{reason}: {failed}" if failed else reason,
            speedup=standing.speedup if standing else None,
            low=standing.low if standing else None,
            high=standing.high if standing else None,
            net_speedup=standing.net_speedup if standing else None,
            break_even_step=standing.break_even_step if standing else None,
            verdict=verdict.to_dict(),
        )
        figures = _speedup(standing) if standing and standing.speedup else ""
        if promoted:
            self._say(f"    verified: {figures}", True)
            self._say(f"    {reason}", False)
        else:
            why = f"{reason}{': ' + failed if failed else ''}"
            self._say(f"    not recommended: {figures}{'; ' if figures else ''}{why}", True)
        return decision


def _audit_name(contender: Contender) -> str:
    return f"audit-{contender.candidate.id}"


def _times(pair: Pair) -> PairTimes:
    return PairTimes(
        pair.reference_step_s,
        pair.candidate_step_s,
        pair.reference_one_off_s or 0.0,
        pair.candidate_one_off_s or 0.0,
        pair.reference_mean_s,
        pair.candidate_mean_s,
    )


def _speedup(standing: Standing) -> str:
    if standing.speedup is None or standing.low is None or standing.high is None:
        return "-"
    if standing.high > _WIDE * standing.low:
        return f"about {standing.speedup:.2g}x so far"
    return f"{standing.speedup:.3f}x [{standing.low:.3f}, {standing.high:.3f}]"


def _merge(first: Verdict, second: Verdict) -> Verdict:
    """Failed where either failed, passed where either passed, else not covered."""
    merged: list[CheckResult] = []
    for check in CHECKS:
        a, b = first[check], second[check]
        order = (Status.FAILED, Status.PASSED, Status.NOT_COVERED)
        merged.append(min((a, b), key=lambda r: order.index(r.status)))
    return Verdict(tuple(merged))
