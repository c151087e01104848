"""A simulated world: the same ports as the real one, time that does not pass by itself."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infrarsi.campaign import (
    Campaign,
    Measured,
    PairTimes,
    Parts,
    Prepared,
    ReferenceFacts,
    Refused,
    Standing,
    Start,
)
from infrarsi.contract import (
    CHECKS,
    ActiveTrial,
    Candidate,
    CheckResult,
    Dimension,
    DimensionKind,
    Effect,
    ExecutionRequest,
    ExecutionResult,
    Exhausted,
    Learned,
    NodeInfo,
    Outcome,
    Overlay,
    Point,
    Project,
    Proposal,
    RankRecord,
    RunKind,
    SnapshotRef,
    Space,
    Status,
    Trial,
    Verdict,
)
from infrarsi.ports import Progress
from infrarsi.runs import Journal, RunDirectory

REFERENCE_S = 1.0
SPEEDUPS = {"a": {1: 1.0, 2: 1.2, 4: 1.5}, "b": {False: 1.0, True: 1.1}}


@dataclass
class World:
    """What the job does: step time by point, faults by execution id."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    crash_at_exit: tuple[str, ...] = ()
    wrong_points: list[dict[str, object]] = field(default_factory=list)
    idle_points: list[dict[str, object]] = field(default_factory=list)
    wrong_later: list[dict[str, object]] = field(default_factory=list)
    bad_checkpoints: list[dict[str, object]] = field(default_factory=list)
    requests: list[ExecutionRequest] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    now: float = 0.0
    interrupt_after: int | None = None
    interrupted: bool = False
    refuse: Callable[[Point], str | None] = lambda point: None
    gain: float = 1.0

    # Clock
    def monotonic(self) -> float:
        return self.now

    # Interrupts
    @property
    def requested(self) -> bool:
        return self.interrupted

    def acknowledge(self) -> None:
        self.interrupted = False

    def step_s(self, settings: Mapping[str, object]) -> float:
        speed = 1.0
        for name, value in settings.items():
            speed *= SPEEDUPS[name][value]  # type: ignore[index]
        return REFERENCE_S / speed**self.gain

    def execute(self, request: ExecutionRequest) -> ExecutionResult:
        self.launched.append(request.execution_id)
        self.requests.append(request)
        self.now += 10.0
        if request.keep_checkpoints:
            Path(request.receipt_dir, "checkpoints").mkdir()
        key = request.execution_id.split("-again")[0]
        faults = self.outcomes.get(key, [])
        outcome = faults.pop(0) if faults else Outcome.OK
        crashes = request.execution_id in self.crash_at_exit
        outcome = Outcome.USER_ERROR if crashes else outcome
        if self.interrupt_after is not None and len(self.launched) >= self.interrupt_after:
            self.interrupted, self.interrupt_after = True, None
        return ExecutionResult(
            request.execution_id,
            outcome,
            "as the test wants it" if outcome is not Outcome.OK else "",
            kind=request.kind,
            exit_code=int(crashes),
            ranks=(RankRecord(0, 1, 7, True),) if crashes else (),
            nodes=(NodeInfo("n0", "host", 2),),
            command_s=9.0,
            wall_s=10.0,
            started_at=self.now - 9.5,
            log_tail=request.overlay.command,
            checkpoints={"out/last.pt": {}} if request.keep_checkpoints else {},
        )


class FakeClock:
    """The world's clock as the journal wants it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def now(self) -> float:
        return 1000.0 + self._world.now


class DoneJob:
    """A job that has ended when it is asked."""

    def __init__(self, result: ExecutionResult) -> None:
        self._result = result

    def wait(self, timeout_s: float | None = None) -> ExecutionResult | None:
        return self._result

    def progress(self) -> Progress:
        return Progress(0, None)

    def stop(self) -> None:
        pass


class FakeBench:
    """Runs in the world."""

    node_ids = ("n0",)

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, request: ExecutionRequest) -> DoneJob:
        return DoneJob(self._world.execute(request))

    def __enter__(self) -> "FakeBench":
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class FakeLoop:
    """One trial at a time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(
        self,
        *,
        suggest: Callable[[], ExecutionRequest | None],
        is_over: Callable[[], bool],
        on_result: Callable[[ExecutionResult], None],
        on_progress: Callable[[str, Progress], bool],
    ) -> None:
        while not is_over():
            request = suggest()
            if request is None:
                assert is_over(), "nothing to run, and yet not over"
                return
            result = self._world.execute(request)
            settings = _settings(request.overlay.command)
            if not on_progress(request.execution_id, Progress(20, self._world.step_s(settings))):
                result = ExecutionResult(
                    **{**result.__dict__, "outcome": Outcome.STOPPED, "reason": "clearly slower"}
                )
            on_result(result)


class FakeSearcher:
    """Goes through the points in order; recommends by measured time."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points

    def propose(
        self, history: Sequence[Trial], active: Sequence[ActiveTrial]
    ) -> Proposal | Exhausted:
        tried = [t.point for t in history if t.outcome is not Outcome.INFRA]
        tried += [t.point for t in active]
        for point in self._points:
            if point not in tried:
                return Proposal(point, "next in order")
        return Exhausted("space_exhausted")

    def ranking(self, history: Sequence[Trial]) -> list[Point]:
        good = [t for t in history if t.number and t.same_job and t.step_time_s]
        return [t.point for t in sorted(good, key=lambda t: t.step_time_s or math.inf)][:3]

    def learned(self, history: Sequence[Trial]) -> Learned:
        return Learned()


def _settings(command: str) -> dict[str, object]:
    return dict(eval(command))  # the fake overlay's command is the literal of its own settings


class FakeJudge:
    """Knows which points are cheats."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.facts = ReferenceFacts(
            REFERENCE_S,
            0.01,
            2.0,
            9.0,
            None,
            8,
            {"x": 64},
            0.01,
            4,
            dict.fromkeys(CHECKS, "covered"),
        )

    def hopeless(self, progress: Progress, best_s: float, rivals: int) -> bool:
        return bool(progress.step_time_s and progress.step_time_s > 1.1 * best_s)

    def without_effect(self, result: ExecutionResult, variables: Mapping[str, str]) -> str:
        idle = _settings(result.log_tail) in self._world.idle_points
        return "without effect: as the reference" if idle else ""

    def verdict(self, result: ExecutionResult, beside: ExecutionResult | None = None) -> Verdict:
        wrong = _settings(result.log_tail) in self._world.wrong_points
        if result.outcome is not Outcome.OK:
            wrong = True
        status = Status.FAILED if wrong else Status.PASSED
        return Verdict(
            tuple(
                CheckResult(c, status if c == "same_data" else Status.PASSED, "by decree")
                for c in CHECKS
            )
        )

    def checkpoint(self, result: ExecutionResult) -> str | None:
        return next(iter(result.checkpoints), None)

    def resumed(self, reference: ExecutionResult, candidate: ExecutionResult) -> CheckResult:
        """The path of what a run resumed from has the candidate's id in it."""
        request = next(r for r in self._world.requests if r.execution_id == candidate.execution_id)
        bad = [Candidate.of(dict(p)).id for p in self._world.bad_checkpoints]
        wrong = any(candidate_id in (request.resume_from or "") for candidate_id in bad)
        status = Status.FAILED if wrong else Status.PASSED
        return CheckResult("resume_continues", status, "by decree, resumed")

    def longer(
        self, reference: ExecutionResult, candidate: ExecutionResult, optimizer_steps: int
    ) -> Verdict:
        verdict = self.verdict(candidate)
        if _settings(candidate.log_tail) in self._world.wrong_later:
            found = CheckResult("loss_within_tolerance", Status.FAILED, "it parts later")
            return verdict.with_result(found)
        return verdict

    def standing(
        self, pairs: Sequence[PairTimes], *, candidates: int, cold_one_off_s: float | None
    ) -> Standing:
        if len(pairs) < 4:
            return Standing("continue", "")
        speedup = pairs[0].reference_step_s / pairs[0].candidate_step_s
        check = CheckResult("speed_reproduces", Status.PASSED, "4 pairs")
        if speedup > 1.01:
            return Standing("promote", "clear", speedup, speedup, speedup, speedup, 1, check)
        return Standing("drop", "no gain", speedup, speedup, speedup, speedup, None, check)


SPACE = Space(
    (
        Dimension("a", "a", DimensionKind.KNOB, (1, 2, 4), 1, (Effect(),) * 3),
        Dimension("b", "b", DimensionKind.RECIPE, (False, True), False, (Effect(),) * 2),
    )
)
POINTS: list[Point] = [
    {"a": 2, "b": False},
    {"a": 4, "b": False},
    {"a": 1, "b": True},
    {"a": 4, "b": True},
]


def assemble(world: World, point: Point) -> Candidate | Refused:
    """Both dimensions as settings, so that the overlay can say them."""
    reason = world.refuse(point)
    if reason:
        return Refused(reason)
    return Candidate.of({k: v for k, v in point.items() if v != SPACE.reference[k]})


@dataclass
class Bed:
    """A campaign over the world, in a real run directory."""

    world: World
    root: Path
    run: RunDirectory
    points: list[Point] = field(default_factory=lambda: list(POINTS))
    budget: dict[str, object] = field(default_factory=lambda: {"screens": 16})
    lines: list[str] = field(default_factory=list)
    verify: dict[str, object] = field(default_factory=dict)
    workload: dict[str, object] = field(default_factory=dict)

    def project(self) -> Project:
        return Project.model_validate(
            {
                "schema": "infrarsi-project-v1",
                "name": "job",
                "launch": {"command": "bash train.sh"},
                "search": {"budget": self.budget},
                "verify": self.verify,
                "workload": self.workload,
            }
        )

    def campaign(self) -> Campaign:
        world, clock = self.world, FakeClock(self.world)

        def measure(result: ExecutionResult) -> Measured:
            is_job = result.kind is not RunKind.PLAIN
            if not is_job or result.outcome not in (Outcome.OK, Outcome.STOPPED):
                return Measured(None, None, None)
            return Measured(world.step_s(_settings(result.log_tail)), 2.0, 100)

        parts = Parts(
            bench=lambda: FakeBench(world),
            loop=lambda: FakeLoop(world),
            snapshot=lambda: SnapshotRef("d", "/snapshot", "job"),
            prepare=lambda snapshot, facts, known: Prepared(SPACE, ()),
            assemble=lambda snapshot, point: assemble(world, point),
            overlay=lambda snapshot, candidate: Overlay(repr(dict(candidate.settings))),
            judge=lambda results: FakeJudge(world),
            measure=measure,
            searcher=lambda space, facts: FakeSearcher(self.points),
            interrupts=world,
            clock=clock,
            say=lambda text, milestone: self.lines.append(text),
            resume=lambda snapshot: Overlay("{}"),
            test_files=lambda snapshot: {"tests/test_a.py": "sha256:0"},
        )
        journal = Journal(self.run.journal, clock)
        campaign = Campaign(self.project(), self.run, journal, parts, "00")
        campaign.begin(Start("/project", "digest", ("run",), "0"))
        return campaign
