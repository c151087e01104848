"""What every check gets: a run, the reference run of its kind, and what both were asked to do."""

from dataclasses import dataclass
from functools import cached_property

from infrarsi.contract import CheckResult, ExecutionResult, Project, RunKind, Status
from infrarsi.verify.chaos import Chaos, chaos_of
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.fingerprints import model_lines
from infrarsi.verify.floors import FINE, FLOORS
from infrarsi.verify.gradients import split_names
from infrarsi.verify.joined import Joined, Update, join
from infrarsi.verify.numerics import (
    losses,
    lowest_precision,
    precision,
    relative_losses,
)
from infrarsi.verify.precisions import allowed_names, lower_of

_MODULUS = 2**64
_SAME_MASKS = 1e-5
"""Relative, of losses: fp32 rounding stays below it (README.md), other masks move more."""


@dataclass(frozen=True)
class Comparison:
    """One run against the reference.

    `reference_result` is of the same kind where there is one (`same_kind`), else a timed run: work
    and data are comparable across kinds, losses and times are not. `beside` is the untouched job's
    run of the same pair.
    """

    evidence: Evidence
    result: ExecutionResult
    project: Project
    beside: ExecutionResult | None = None

    @property
    def same_kind(self) -> bool:
        """Whether the reference was run in the same kind of run."""
        return self.evidence.like(self.result.kind) is not None

    @property
    def reference_result(self) -> ExecutionResult:
        """The reference run to compare with."""
        return self.evidence.like(self.result.kind) or self.evidence.timed[0]

    @cached_property
    def untouched(self) -> tuple[tuple[ExecutionResult, Joined], ...]:
        """Every timed run of the untouched job, joined over ranks."""
        known = zip(self.evidence.timed, self.evidence.timed_runs, strict=True)
        return (*known, *([(self.beside, join(self.beside))] if self.beside else []))

    @cached_property
    def reference(self) -> Joined:
        """That run, joined over ranks."""
        return join(self.reference_result)

    @cached_property
    def candidate(self) -> Joined:
        """The judged run, joined over ranks."""
        return join(self.result)

    @cached_property
    def updates(self) -> tuple[tuple[Update, Update], ...]:
        """(reference, candidate) for each update that both made."""
        theirs = self.candidate.by_index
        return tuple((u, theirs[u.index]) for u in self.reference.updates if u.index in theirs)

    @cached_property
    def close_updates(self) -> tuple[tuple[Update, Update], ...]:
        """Those of them that both looked at closely."""
        return tuple((a, b) for a, b in self.updates if a.digests and b.digests)

    @cached_property
    def per_forward_inputs(self) -> frozenset[str]:
        """Inputs without a batch dimension: the same tensor at every forward (masks, positions).

        Their counts and digests grow with the number of forwards, so another micro-batch changes
        them honestly. Told by content: over every shared close look the two digests are the same
        multiple of the number of forwards, and one shape alone ever came. Real batches differ from
        each other and never pass. Never all inputs, and none where nothing was looked at closely.
        """
        if not self.close_updates:
            return frozenset()
        names = set(self.reference.updates[0].elements)
        found = {name for name in names if all(_repeats(a, b, name) for a, b in self.close_updates)}
        return frozenset(found) if found != names else frozenset()

    @cached_property
    def split_names(self) -> frozenset[str]:
        """Parameters of which each rank holds a part, in either run."""
        return split_names(self.reference, self.reference_result, self.result)

    @cached_property
    def chaos(self) -> Chaos:
        """How much the job amplifies rounding; see `chaos.py`."""
        return chaos_of(self.evidence, self.split_names)

    @property
    def bitwise(self) -> bool:
        """Whether the contract asks for equality instead of bands."""
        return self.project.bitwise

    @property
    def lowest_precision(self) -> str:
        """The lowest precision that both may compute in: its floors apply.

        The reference's; where `allow` names a lower one and the run uses it, that.
        """
        reference = lowest_precision(self.evidence)
        return lower_of(reference, precision([self.result]), allowed_names(self.project))

    @property
    def has_dropout(self) -> bool:
        """Whether random masks are active that the run may draw otherwise, and so differ honestly.

        Audit runs switch dropout off. In timed runs it is active where the reference's record names
        a probability; or, for records that do not, and for dropout in scripted or compiled code, if
        its first loss, from the same weights and the same data, is not the audit run's. A run that
        draws the reference's own masks is held to its numbers all the same.
        """
        if self.result.kind is not RunKind.TIMED or self._same_masks:
            return False
        runs = [r for r in (*self.evidence.timed, self.evidence.audit) if r]
        if any(dropout_probabilities(run) for run in runs):
            return True
        audit = self.evidence.audit_run
        if audit is None:
            return False
        first = relative_losses(losses(audit), losses(self.evidence.timed_runs[0])).get(0, 0.0)
        return first > FLOORS[precision(self.evidence.timed)].loss

    @cached_property
    def _same_masks(self) -> bool:
        """Whether the run draws as the reference does, in fp32: the same random state after the
        forwards of every close look, for inputs of the same shapes, and the same first losses.

        The state alone does not say so: another memory format puts the same numbers elsewhere.
        """
        pairs = self.updates
        if self.lowest_precision not in FINE or len(pairs) < 2:
            return False
        if any((a.forwards, a.shapes) != (b.forwards, b.shapes) for a, b in pairs):
            return False
        drawn = [(_drawn(a), _drawn(b)) for a, b in pairs if a.digests and b.digests]
        if not drawn or any(not ours or ours != theirs for ours, theirs in drawn):
            return False
        off = relative_losses(losses(self.reference), losses(self.candidate))
        return all(off.get(a.index, 1.0) <= _SAME_MASKS for a, _ in pairs[:2])


def _drawn(update: Update) -> list[dict[str, float]]:
    """Where the forwards left each rank's generators; empty where a record does not tell."""
    found = [dict(step.random) for step in update.ranks]
    told = all(one and one.get("cpu", 0.0) != 1.0 for one in found)
    return found if told and any(any(one.values()) for one in found) else []


def dropout_probabilities(result: ExecutionResult) -> frozenset[str]:
    """The probabilities above zero that the run's dropouts have, as the record writes them."""
    found: set[str] = set()
    for rank in result.ranks:
        for line in model_lines(rank):
            found |= {str(p) for p in line.get("dropout") or ()}
        for step in rank.steps:
            found |= {str(p) for p in step.dropout_calls}
    return frozenset(p for p in found if positive(p))


def positive(text: str) -> bool:
    """Whether a recorded probability is above zero; what is no number counts as one that is."""
    try:
        return float(text) > 0.0
    except ValueError:
        return True


def _repeats(ours: Update, theirs: Update, name: str) -> bool:
    """Whether both runs fed one fixed tensor under this name, at another number of forwards."""
    shapes = set(ours.shapes.get(name, {})) | set(theirs.shapes.get(name, {}))
    if ours.forwards == theirs.forwards or len(shapes) != 1:
        return False
    a, b = ours.digests.get(name), theirs.digests.get(name)
    if a is None or b is None:
        return False
    return all(
        (x * theirs.forwards - y * ours.forwards) % _MODULUS == 0 for x, y in zip(a, b, strict=True)
    )


def passed(check: str, reason: str) -> CheckResult:
    """The check holds; `reason` has the figures."""
    return CheckResult(check, Status.PASSED, reason)


def failed(check: str, reason: str) -> CheckResult:
    """The check does not hold; `reason` has place, value found and value allowed."""
    return CheckResult(check, Status.FAILED, reason)


def uncovered(check: str, reason: str) -> CheckResult:
    """The check cannot be judged; `reason` says why."""
    return CheckResult(check, Status.NOT_COVERED, reason)
