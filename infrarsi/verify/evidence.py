"""What the reference is: its runs, checked to be fit to judge others by."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from infrarsi.contract import ExecutionResult, Outcome, RunKind, Verdict
from infrarsi.errors import UserError
from infrarsi.stats import Noise, noise_of_runs
from infrarsi.verify.joined import Joined, join
from infrarsi.verify.measurement import Measurement, measure


@dataclass(frozen=True)
class Evidence:
    """Runs of the untouched job: several timed ones, and, where made, one audit and one perturbed.

    Build it with `reference_evidence`.
    """

    timed: tuple[ExecutionResult, ...]
    audit: ExecutionResult | None = None
    perturbed: ExecutionResult | None = None
    known: dict[tuple[RunKind, str], Verdict] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Verdicts of the reference on itself, kept by `judgement` so that they are made once."""

    @cached_property
    def timed_runs(self) -> tuple[Joined, ...]:
        """The timed runs, joined over ranks."""
        return tuple(join(result) for result in self.timed)

    @cached_property
    def audit_run(self) -> Joined | None:
        """The audit run, joined over ranks."""
        return join(self.audit) if self.audit else None

    @cached_property
    def perturbed_run(self) -> Joined | None:
        """The perturbed run, joined over ranks."""
        return join(self.perturbed) if self.perturbed else None

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """Times of the timed runs."""
        return tuple(m for m in (measure(result) for result in self.timed) if m is not None)

    @property
    def step_time_s(self) -> float:
        """Median step time over the timed runs."""
        ordered = sorted(m.step_time_s for m in self.measurements)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2

    def noise(self) -> Noise | None:
        """Noise within runs and between launches; None with fewer than two timed runs."""
        if len(self.measurements) < 2:
            return None
        return noise_of_runs(
            [m.step_time_s for m in self.measurements],
            [m.steady.spread_log_sd for m in self.measurements],
        )

    def like(self, kind: RunKind) -> ExecutionResult | None:
        """The reference run that a result of this kind is compared with."""
        return self.timed[0] if kind is RunKind.TIMED else self.audit


def reference_evidence(
    results: Sequence[ExecutionResult], *, optimizer_steps: int | None = None
) -> Evidence:
    """The evidence that these runs of the reference give, sorted by kind.

    Raises UserError, with what to do, for a reference that cannot be judged by: none timed, one
    that failed, no optimizer step, fewer steps than asked, or work per update that differs.
    """
    timed = tuple(result for result in results if result.kind is RunKind.TIMED)
    if not timed:
        raise UserError(
            f"the reference has no timed run among {len(results)}", fix="run `infrarsi doctor`"
        )
    for result in results:
        _check_run(result, optimizer_steps)
    evidence = Evidence(
        timed,
        next((r for r in results if r.kind is RunKind.AUDIT), None),
        next((r for r in results if r.kind is RunKind.PERTURBED), None),
    )
    _check_agreement(results)
    return evidence


def _check_run(result: ExecutionResult, optimizer_steps: int | None) -> None:
    where = f"reference run {result.execution_id}"
    run = join(result)
    if result.outcome is not Outcome.OK:
        tail = f"\n{result.log_tail}" if result.log_tail else ""
        raise UserError(
            f"the job {result.outcome.sentence} as it is: {result.reason}{tail}",
            where=where,
            fix="make the command work by itself first",
        )
    if not run.updates:
        raise UserError(
            "no optimizer step was seen in the job's processes",
            where=where,
            fix="check that the command trains with a torch.optim optimizer, and that it does not "
            "clear PYTHONPATH or start Python with -S, -I or -E",
        )
    if optimizer_steps is not None and len(run.updates) < optimizer_steps:
        raise UserError(
            f"`workload.optimizer_steps` is {optimizer_steps}, but the job ended by itself after "
            f"{len(run.updates)} optimizer steps",
            where=where,
            fix=f"lower it to {len(run.updates)}, or raise the job's own number of steps",
        )
    unsealed = [rank.rank for rank in result.ranks if not rank.sealed]
    if unsealed:
        raise UserError(
            f"the record of rank {unsealed[0]} is not whole",
            where=where,
            fix="run it again; if it recurs, the job ends its processes in a way that cuts the "
            "record off (os._exit or a kill)",
        )


def _check_agreement(results: Sequence[ExecutionResult]) -> None:
    """All runs of the reference must do the same work in each update."""
    first = join(results[0])
    for result in results[1:]:
        other = join(result)
        if len(other.updates) != len(first.updates):
            raise UserError(
                f"two runs of the same job made {len(first.updates)} and {len(other.updates)} "
                f"optimizer steps",
                where=f"reference run {result.execution_id}",
                fix="make the job end after a fixed number of steps, or set "
                "`workload.ends_by: witness`",
            )
        for a, b in zip(first.updates, other.updates, strict=True):
            if (a.samples, sorted(a.elements.values())) != (b.samples, sorted(b.elements.values())):
                raise UserError(
                    f"two runs of the same job consume different work in update {a.index}: "
                    f"{a.samples} samples, {sum(a.elements.values())} elements against "
                    f"{b.samples} and {sum(b.elements.values())}",
                    where=f"reference run {result.execution_id}",
                    fix="fix the job's random seed, so that every run reads the same batches",
                )
