"""How far one run strays from the reference in each statistic of L3 and L4.

`rows` runs a job's changes for real; the table is what `pytest -m slow tests/verify` prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tiny_training import Variant, train

from infrarsi.contract import Project, RunKind
from infrarsi.verify import Evidence, judge, reference_evidence
from infrarsi.verify.fingerprints import BROKEN
from infrarsi.verify.gradients import drift, gaps, split_names
from infrarsi.verify.joined import join
from infrarsi.verify.numerics import losses, relative_losses
from infrarsi.verify.weights import quantile, renamed, state_gap, states, tensors, way_gaps

STEPS = 30
COLUMNS = ("loss", "gradient", "mean", "end", "state")


@dataclass(frozen=True)
class Row:
    """One change: its largest deviation in each statistic, and the checks that failed."""

    name: str
    figures: Mapping[str, float]
    failed: tuple[str, ...]

    def text(self) -> str:
        cells = [f"{self.figures[column]:.0e}".replace("e-0", "e-") for column in COLUMNS]
        return f"| {self.name} | " + " | ".join(cells) + f" | {', '.join(self.failed) or '-'} |"


def evidence_of(job: Variant) -> Evidence:
    """A timed, an audit and a perturbed run of the job."""
    return reference_evidence(
        [
            train(job, STEPS, RunKind.TIMED),
            train(job, STEPS, RunKind.AUDIT),
            train(replace(job, perturb=True), STEPS, RunKind.PERTURBED),
        ],
        optimizer_steps=STEPS,
    )


def row(
    evidence: Evidence, job: Variant, name: str, changes: Mapping[str, Any], project: Project
) -> Row:
    """The audit run of one change."""
    result = train(replace(job, **changes), STEPS)
    failed = tuple(check.check for check in judge(evidence, result, project).failed)
    return Row(name, figures(evidence, result), failed)


def figures(evidence: Evidence, result: Any) -> dict[str, float]:
    """The largest deviations of a run from the audit of the reference."""
    assert evidence.audit is not None
    assert evidence.audit_run is not None
    base, run = evidence.audit_run, join(result)
    split = split_names(base, evidence.audit, result)
    ours = tensors(evidence.audit)
    off = relative_losses(losses(base), losses(run))
    end = quantile(way_gaps(ours, renamed(ours, tensors(result)), "float32"), 0.8)
    found = {
        "loss": max(off.values(), default=0.0),
        "gradient": max((gap.ratio for gap in gaps(base, run, split).values()), default=0.0),
        "mean": drift(base, run, split).ratio,
        "end": end.ratio,
        "state": state_gap(states(evidence.audit), states(result)).ratio,
    }
    return {column: min(value, BROKEN) for column, value in found.items()}
