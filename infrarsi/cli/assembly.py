"""Puts a campaign's parts together: the one place that knows every room."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.campaign import (
    Judge,
    Measured,
    PairTimes,
    Parts,
    ReferenceFacts,
    Searcher,
    Standing,
)
from infrarsi.cli.console import Console, shown
from infrarsi.cli.experience import begun_with
from infrarsi.cli.workbench import Workbench
from infrarsi.contract import (
    CheckResult,
    ExecutionResult,
    Learned,
    Point,
    Project,
    SnapshotRef,
    Space,
    Trial,
    Verdict,
)
from infrarsi.errors import Interrupted
from infrarsi.ports import Clock, Progress, Proposer
from infrarsi.runs import RunDirectory

if TYPE_CHECKING:
    from infrarsi.verify import Evidence


class Assembly:
    """A context manager: Ray is running and signals are counted while it is entered."""

    def __init__(
        self, root: Path, project: Project, run: RunDirectory, console: Console, clock: Clock
    ) -> None:
        self._root = root
        self._project = project
        self._run = run
        self._console = console
        self._clock = clock
        self._stack = ExitStack()
        self._snapshot: SnapshotRef | None = None

    def __enter__(self) -> "Assembly":
        from infrarsi.node.wire import RunnerSettings
        from launchers.interrupts import Interrupts
        from launchers.nodes import NodePool
        from launchers.session import RaySession

        address = self._project.cluster.address
        is_own = address in ("auto", "local")
        session = RaySession(None if is_own else address)
        self.interrupts: Interrupts = self._stack.enter_context(Interrupts(_stopping))
        self.interrupts.before_exit(session.remove_folder)
        self.interrupts.before_exit(self._stopped_at_once)
        self._console.say(
            "Starting Ray on this machine ..." if is_own else f"Connecting to Ray at {address} ..."
        )
        try:
            self._stack.enter_context(session)
            self.interrupts.renew()  # Ray has put its own in place of that of SIGTERM
            if self.interrupts.requested:
                raise Interrupted
        except BaseException:
            self._stack.close()
            raise
        self._scratch = session.folder
        self._pool = NodePool()
        self._settings = RunnerSettings(own=session.own)
        self._console.say(f"Ray started in {session.start_s:.1f} s", False)
        self.parts = self._parts()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _stopped_at_once(self) -> None:
        run = shown(self._run.path)
        text = f"infrarsi: stopped at once; continue with `infrarsi run --resume {run}`\n"
        os.write(2, text.encode())

    def tree_digest(self) -> str:
        """The digest of the user's folder now, our own folder left out."""
        from infrarsi.workspace import tree_digest

        return tree_digest(self._root)

    def _parts(self) -> Parts:
        from launchers.tune_loop import TuneLoop
        from launchers.verification import HeldBench
        from searchers.hypothesis import HypothesisSearcher

        launch = self._project.launch

        def bench() -> HeldBench:
            lease = self._pool.lease(launch.nodes, gpus_per_node=launch.gpus_per_node)
            return HeldBench(self._pool, lease, settings=self._settings)

        def loop() -> TuneLoop:
            return TuneLoop(
                HypothesisSearcher,
                self._pool,
                nodes=launch.nodes,
                gpus_per_node=launch.gpus_per_node,
                parallel=1,
                settings=self._settings,
                scratch=self._scratch,
            )

        workbench = Workbench(self._project, self._run, self._console, self.interrupts)
        return Parts(
            bench=bench,
            loop=loop,
            snapshot=self._take_snapshot,
            prepare=workbench.prepare,
            assemble=workbench.assemble,
            overlay=workbench.overlay,
            judge=self._judge,
            measure=measured,
            searcher=self._searcher,
            interrupts=self.interrupts,
            clock=self._clock,
            say=self._console.say,
            status=self._console.status,
            resume=workbench.resume,
            test_files=workbench.test_files,
        )

    def _take_snapshot(self) -> SnapshotRef:
        from infrarsi.contract import Place, PlaceKind
        from infrarsi.workspace import notes, take

        if self._snapshot is None:
            places = [Place.parse(text) for text in self._project.sinks]
            sinks = [place.name for place in places if place.kind is PlaceKind.PATH]
            self._run.store.mkdir(exist_ok=True)
            self._snapshot = take(self._root, self._run.store, sinks=sinks)
            for note in notes(self._snapshot):
                self._console.say(f"  {note}", False)
        return self._snapshot

    def _judge(self, results: Sequence[ExecutionResult]) -> Judge:
        return ReferenceJudge(self._project, results)

    def _searcher(self, space: Space, facts: ReferenceFacts) -> Searcher:
        from searchers import HYPOTHESIS, make

        search = self._project.search
        known = None
        if search.searcher == HYPOTHESIS:
            known = begun_with(self._run, space, self._project, self._console.say).experience
        proposer = make(
            search.searcher,
            space,
            search.seed,
            noise_log_sd=max(facts.step_log_sd, 0.002),
            max_trials=search.budget.screens,
            experience=known,
        )
        return Ranked(proposer, space, max(facts.step_log_sd, 0.002), search.seed)


def _stopping() -> None:
    """Called in a signal handler, where `print` may be in the middle of a line."""
    os.write(1, b"\nStopping in good order; Ctrl-C once more ends all at once.\n")


class Ranked:
    """Any proposer, with the hypothesis searcher's model deciding what to recommend."""

    def __init__(self, proposer: Proposer, space: Space, noise: float, seed: int) -> None:
        from searchers import HypothesisProposer

        self.propose = proposer.propose
        self._reference = space.reference
        self._model: HypothesisProposer = (
            proposer
            if isinstance(proposer, HypothesisProposer)
            else HypothesisProposer(space, seed, noise_log_sd=noise, max_trials=1)
        )

    def learned(self, history: Sequence[Trial]) -> Learned:
        """What the trials say of single settings."""
        return self._model.learned(history)

    def ranking(self, history: Sequence[Trial]) -> list[Point]:
        """At most three points to verify: the best without its idle settings, then the best."""
        points: list[Point] = []
        for point in (self._model.prune(history), *self._model.ranking(history)):
            if point not in points and point != self._reference:
                points.append(point)
        return points[:3]


def _num_parameters(result: ExecutionResult) -> int | None:
    """Parameters of all models that the first rank trains, as its record has them."""
    models = result.ranks[0].models if result.ranks else ()
    return sum(int(model.get("numel") or 0) for model in models) or None


def _versions(result: ExecutionResult) -> dict[str, str]:
    """The versions of torch and CUDA that the first rank ran with."""
    head = result.ranks[0].head if result.ranks else {}
    return {name: str(head[name]) for name in ("torch", "cuda") if head.get(name)}


def measured(result: ExecutionResult) -> Measured:
    """Speed and memory of one execution."""
    from infrarsi.verify import measure

    found = measure(result)
    if found is None:
        return Measured(None, None, result.peak_bytes)
    return Measured(found.step_time_s, found.one_off_s, found.peak_bytes, found.mean_step_s)


class ReferenceJudge:
    """The verify room's judgement behind the campaign's `Judge`."""

    def __init__(self, project: Project, results: Sequence[ExecutionResult]) -> None:
        from infrarsi.verify import coverage, phase_times, promotion_rules, reference_evidence
        from infrarsi.verify.hardware import mfu

        steps = project.workload.optimizer_steps
        self._project = project
        self._evidence: Evidence = reference_evidence(results, optimizer_steps=steps)
        self._noise = self._evidence.noise()
        rules = promotion_rules(project, self._noise)
        first = self._evidence.timed_runs[0]
        update = first.updates[-1]
        times = self._evidence.measurements
        self.facts = ReferenceFacts(
            step_time_s=self._evidence.step_time_s,
            step_log_sd=self._noise.run_log_sd if self._noise else 0.0,
            one_off_s=sorted(m.one_off_s for m in times)[len(times) // 2],
            command_s=max(m.command_s for m in times),
            peak_bytes=max((m.peak_bytes for m in times if m.peak_bytes), default=None),
            samples_per_update=update.samples or None,
            elements_per_update=dict(update.elements),
            resolvable_gain=rules.resolvable_gain,
            max_pairs=rules.max_pairs,
            coverage=coverage(self._evidence, project),
            phases_s=phase_times(self._evidence),
            mfu=mfu(self._evidence.timed[0], first, self._evidence.step_time_s),
            has_uneven_rows=any(each.has_uneven_rows for each in first.updates),
            num_parameters=_num_parameters(self._evidence.timed[0]),
            versions=_versions(self._evidence.timed[0]),
        )

    def verdict(self, result: ExecutionResult, beside: ExecutionResult | None = None) -> Verdict:
        """All 16 checks of one execution against the reference."""
        from infrarsi.verify import judge

        return judge(self._evidence, result, self._project, beside)

    def hopeless(self, progress: Progress, best_s: float, rivals: int) -> bool:
        """Whether a running trial cannot become the best."""
        from infrarsi.stats import MIN_STEPS, hopeless_margin

        if progress.steps < MIN_STEPS or progress.step_time_s is None:
            return False
        margin = hopeless_margin(self._noise, rivals=rivals, steps=progress.steps)
        return math.log(progress.step_time_s / best_s) > margin

    def without_effect(self, result: ExecutionResult, variables: Mapping[str, str]) -> str:
        """What did not arrive, or that the record and the time are those of the reference."""
        from infrarsi.verify.activity import activity, not_taken

        lost = not_taken(variables, result)
        found = activity(self._evidence, result).sentence
        return "; ".join([*(f"not taken: {text}" for text in lost), *([found] if found else [])])

    def standing(
        self, pairs: Sequence[PairTimes], *, candidates: int, cold_one_off_s: float | None
    ) -> Standing:
        """What the pairs so far say."""
        from infrarsi.verify import Pair, PairedComparison, promotion_rules

        rules = promotion_rules(self._project, self._noise, candidates=candidates)
        found = PairedComparison(
            rules, tuple(Pair(**pair.__dict__) for pair in pairs), cold_one_off_s
        ).promotion
        interval = found.interval
        return Standing(
            decision=str(found.decision),
            reason=found.reason,
            speedup=interval.speedup if interval else None,
            low=interval.speedup_low if interval else None,
            high=interval.speedup_high if interval else None,
            net_speedup=found.net_speedup,
            break_even_step=found.break_even_step,
            check=found.check,
        )

    def checkpoint(self, result: ExecutionResult) -> str | None:
        """The checkpoint of an audit run that a resumed run is given."""
        from infrarsi.verify import to_resume_from

        resume = self._project.verify.resume
        return to_resume_from(result.checkpoints, resume.checkpoint if resume else None)

    def resumed(self, reference: ExecutionResult, candidate: ExecutionResult) -> CheckResult:
        """`resume_continues` of two runs of the untouched job."""
        from infrarsi.verify import judge_resumed

        return judge_resumed(self._evidence, reference, candidate, self._project)

    def longer(
        self, reference: ExecutionResult, candidate: ExecutionResult, optimizer_steps: int
    ) -> Verdict:
        """All 16 checks of a longer run."""
        from infrarsi.verify import judge_longer

        return judge_longer(self._evidence, reference, candidate, self._project, optimizer_steps)
