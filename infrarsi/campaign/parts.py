"""What a campaign is put together from; `infrarsi.cli.assembly` fills it in.

The campaign knows ports and contract types only. Everything here is used by the driver process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from infrarsi.contract import (
    Candidate,
    CheckResult,
    ExecutionResult,
    Learned,
    Overlay,
    Point,
    Proposal,
    SnapshotRef,
    Space,
    Trial,
    Verdict,
)
from infrarsi.ports import Bench, Clock, Progress, Proposer, SearchLoop


@dataclass(frozen=True)
class Refused:
    """A candidate that cannot be built, and why (outcome `patch_failed`, nothing launched)."""

    reason: str


@dataclass(frozen=True)
class Measured:
    """What one execution says about speed and memory, on the harness's clock.

    `step_time_s` is the median of the steady steps, `mean_step_s` their mean, recurring slow ones
    included.
    """

    step_time_s: float | None
    one_off_s: float | None
    peak_bytes: int | None
    mean_step_s: float | None = None


@dataclass(frozen=True)
class ReferenceFacts:
    """The reference, measured: figures that the search, the pairs and the report start from.

    `step_log_sd` is the standard deviation of the log step time between launches; `resolvable_gain`
    the smallest gain that `max_pairs` pairs can resolve. `coverage` maps each check to "covered" or
    to the reason why it is not. `phases_s`: mean seconds of a steady step by phase, on the rank
    where each is most; `data` is waiting for a DataLoader. `mfu`: model FLOPs utilization, None
    where the GPU or the size of the linear layers is not known. `has_uneven_rows`: the rows of one
    update differ in length, so that another micro-batch pads them otherwise and is other work.
    `num_parameters` of all trained models, on one rank; `versions` of torch and CUDA, where seen.
    """

    step_time_s: float
    step_log_sd: float
    one_off_s: float
    command_s: float
    peak_bytes: int | None
    samples_per_update: int | None
    elements_per_update: Mapping[str, int]
    resolvable_gain: float
    max_pairs: int
    coverage: Mapping[str, str]
    phases_s: Mapping[str, float] = field(default_factory=dict)
    mfu: float | None = None
    has_uneven_rows: bool = False
    num_parameters: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PairTimes:
    """Step times and one-off costs of one pair, in seconds."""

    reference_step_s: float
    candidate_step_s: float
    reference_one_off_s: float
    candidate_one_off_s: float
    reference_mean_s: float | None = None
    candidate_mean_s: float | None = None


@dataclass(frozen=True)
class Standing:
    """Where a paired comparison stands: `decision` is promote, drop or continue.

    Speed-ups are reference over candidate; `low` and `high` at `verify.confidence`.
    """

    decision: str
    reason: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    net_speedup: float | None = None
    break_even_step: int | None = None
    check: CheckResult | None = None


class Judge(Protocol):
    """One campaign's judge, made from the reference's executions."""

    @property
    def facts(self) -> ReferenceFacts:
        """The reference, measured."""
        ...

    def verdict(self, result: ExecutionResult, beside: ExecutionResult | None = None) -> Verdict:
        """All 16 checks of one execution against the reference.

        `beside` is the untouched job's run of the same pair.
        """
        ...

    def hopeless(self, progress: Progress, best_s: float, rivals: int) -> bool:
        """Whether a running trial cannot become the best, whose steps take `best_s` seconds.

        `rivals` are the same-job trials that the best one was chosen from.
        """
        ...

    def without_effect(self, result: ExecutionResult, variables: Mapping[str, str]) -> str:
        """What of a trial's settings did not take effect, as a sentence; "" where nothing is known.

        For a trial that is the same job; `variables` are those that its overlay set.
        """
        ...

    def standing(
        self, pairs: Sequence[PairTimes], *, candidates: int, cold_one_off_s: float | None
    ) -> Standing:
        """What the pairs so far say; a pure function of its arguments.

        `candidates` shares the false-promotion rate; `cold_one_off_s` is the one-off cost that
        was measured with cold caches, where it was.
        """
        ...

    def checkpoint(self, result: ExecutionResult) -> str | None:
        """The checkpoint of an audit run that a resumed run is given, None where there is none."""
        ...

    def resumed(self, reference: ExecutionResult, candidate: ExecutionResult) -> CheckResult:
        """`resume_continues` of two runs of the untouched job, one from each side's checkpoint."""
        ...

    def longer(
        self, reference: ExecutionResult, candidate: ExecutionResult, optimizer_steps: int
    ) -> Verdict:
        """All 16 checks of a longer run against the reference's of the same length."""
        ...


class Searcher(Proposer, Protocol):
    """A proposer that can also say what to recommend."""

    def ranking(self, history: Sequence[Trial]) -> list[Point]:
        """At most three points to verify, best first, settings without effect left out."""
        ...

    def learned(self, history: Sequence[Trial]) -> Learned:
        """What the trials say of single settings, for other campaigns."""
        ...


class Interrupts(Protocol):
    """Signals so far; a second one ends the process by itself."""

    @property
    def requested(self) -> bool:
        """Whether an interrupt came that was not acknowledged."""
        ...

    def acknowledge(self) -> None:
        """Go on after a first interrupt (to verify what was found)."""
        ...


@dataclass(frozen=True)
class RecipeReport:
    """What became of one recipe: `status` is offered, declined, failed_check or not_allowed."""

    name: str
    family: str
    title: str
    status: str
    reason: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """The search space of this job, and which recipes are in it."""

    space: Space
    recipes: tuple[RecipeReport, ...]


def _show_nothing(text: str) -> None:
    return


def _cannot_resume(snapshot: SnapshotRef) -> Overlay | Refused:
    return Refused("nothing says how this job resumes")


def _no_tests(snapshot: SnapshotRef) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Parts:
    """Everything that a campaign calls.

    `bench` holds the nodes for a series; `loop` runs the search; `prepare` tries the recipes, or
    takes what an interrupted run found of them, and builds the space; `assemble` turns a point
    into a candidate; `overlay` into what a node needs; `judge` makes the judge from the
    reference's executions (raises UserError when the reference itself is not sound); `measure`
    reads one execution; `searcher` makes the strategy; `say` prints one progress line, a
    milestone or (False) a detail; `status` shows what is happening now, until the next line,
    where there is a terminal to show it on. `resume` is the untouched job told to go on from a
    checkpoint (`verify.resume`); `test_files` are the digests of the project's tests.
    """

    bench: Callable[[], Bench]
    loop: Callable[[], SearchLoop]
    snapshot: Callable[[], SnapshotRef]
    prepare: Callable[[SnapshotRef, ReferenceFacts, Sequence[RecipeReport]], Prepared]
    assemble: Callable[[SnapshotRef, Point], Candidate | Refused]
    overlay: Callable[[SnapshotRef, Candidate], Overlay | Refused]
    judge: Callable[[Sequence[ExecutionResult]], Judge]
    measure: Callable[[ExecutionResult], Measured]
    searcher: Callable[[Space, ReferenceFacts], Searcher]
    interrupts: Interrupts
    clock: Clock
    say: Callable[[str, bool], None]
    status: Callable[[str], None] = _show_nothing
    resume: Callable[[SnapshotRef], Overlay | Refused] = _cannot_resume
    test_files: Callable[[SnapshotRef], Mapping[str, str]] = _no_tests


@dataclass(frozen=True)
class Flight:
    """A proposal under way."""

    number: int
    proposal: Proposal
    candidate: Candidate
    execution_id: str
    tries: int = 1
