"""`doctor --baseline FILE`: figures that the user knows to be good, held against the reference.

A reference that is slower than it should be, or trains to another loss, makes every speed-up
against it worthless; who has figures of the job from before can have them checked here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from infrarsi.contract.document import Document
from infrarsi.contract.mistakes import Mistake, all_together, mistakes_of
from infrarsi.errors import UserError

if TYPE_CHECKING:
    from infrarsi.verify import Evidence

_GIB = 2**30


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Tolerances(_Model):
    """How far the reference may be from each figure, relative, either way."""

    loss: float = Field(0.02, gt=0)
    step_time: float = Field(0.05, gt=0)
    throughput: float = Field(0.05, gt=0)
    memory_peak: float = Field(0.05, gt=0)


class Baseline(_Model):
    """Known-good figures of a job; at least one.

    `loss`: by optimizer step, counted from 1, as the job logs it (the sum or the mean over
    micro-batches). `final_loss`: after the last optimizer step of a trial.
    """

    schema_: Literal["infrarsi-baseline-v1"] = Field("infrarsi-baseline-v1", alias="schema")
    loss: dict[int, float] = {}
    final_loss: float | None = None
    step_time_s: float | None = Field(None, gt=0)
    tokens_per_s: float | None = Field(None, gt=0)
    samples_per_s: float | None = Field(None, gt=0)
    memory_peak_gib: float | None = Field(None, gt=0)
    tolerances: Tolerances = Field(default_factory=Tolerances)

    @model_validator(mode="after")
    def _check(self) -> "Baseline":
        if not self.model_fields_set - {"schema_", "tolerances"}:
            raise ValueError(f"there is no figure; known are {', '.join(_FIGURES)}")
        return self


_FIGURES = (
    "loss",
    "final_loss",
    "step_time_s",
    "tokens_per_s",
    "samples_per_s",
    "memory_peak_gib",
)


@dataclass(frozen=True)
class LoadedBaseline:
    """A baseline as it stands in a file."""

    figures: Baseline
    path: Path
    document: Document

    def place(self, figure: "Figure") -> str:
        """The line of a figure, for a message."""
        return f"{self.path}:{self.document.line(figure.key)}"


@dataclass(frozen=True)
class Figure:
    """One figure: what was found (None: the reference has none), expected, and allowed."""

    name: str
    key: tuple[str | int, ...]
    found: float | None
    expected: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the reference is as it should be here."""
        if self.found is None:
            return False
        return abs(self.found - self.expected) <= self.tolerance * abs(self.expected)


def load_baseline(path: Path, *, optimizer_steps: int) -> LoadedBaseline:
    """Read a baseline in YAML or JSON; raises one UserError that lists all its mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(
            f"the baseline cannot be read: {what}",
            where=str(path),
            fix="name a YAML or JSON file with known-good figures of this job",
        ) from error
    document = Document.parse(text, where=str(path))
    mistakes = [
        Mistake(line, f"`{key}` is written twice, first in line {first}", "keep one of the two")
        for line, first, key in document.duplicates()
    ]
    figures = None
    try:
        figures = Baseline.model_validate({} if document.data is None else document.data)
    except ValidationError as error:
        mistakes += mistakes_of(error, document, Baseline)
    for step in figures.loss if figures else ():
        if not 1 <= step <= optimizer_steps:
            mistakes.append(
                Mistake(
                    document.line(("loss", step)),
                    f"`loss` has a figure for step {step}, but a trial has the optimizer steps 1 "
                    f"to {optimizer_steps}",
                    "remove it, or set `workload.optimizer_steps` to as many",
                )
            )
    if mistakes or figures is None:
        raise all_together(mistakes, path)
    return LoadedBaseline(figures, path, document)


def figures_of(baseline: Baseline, evidence: "Evidence", tokens: int | None) -> list[Figure]:
    """Every figure of the baseline with what the reference's timed runs have.

    `tokens` per update, where the contract says so; else they are counted from integer inputs.
    """
    from infrarsi.verify.hardware import rows_per_update

    allowed, step_s = baseline.tolerances, evidence.step_time_s
    found = _losses(baseline, evidence)
    update = evidence.timed_runs[0].updates[-1]
    rows = rows_per_update(evidence.timed[0], update)
    tokens = tokens or (rows if rows > update.samples else None)
    peaks = [result.peak_bytes for result in evidence.timed if result.peak_bytes]
    others: list[tuple[str, float | None, float | None, float]] = [
        ("step_time_s", step_s, baseline.step_time_s, allowed.step_time),
        (
            "tokens_per_s",
            tokens / step_s if tokens else None,
            baseline.tokens_per_s,
            allowed.throughput,
        ),
        (
            "samples_per_s",
            update.samples / step_s if update.samples else None,
            baseline.samples_per_s,
            allowed.throughput,
        ),
        (
            "memory_peak_gib",
            max(peaks) / _GIB if peaks else None,
            baseline.memory_peak_gib,
            allowed.memory_peak,
        ),
    ]
    found += [
        Figure(name, (name,), value, expected, tolerance)
        for name, value, expected, tolerance in others
        if expected is not None
    ]
    return found


def _losses(baseline: Baseline, evidence: "Evidence") -> list[Figure]:
    """Losses as they are given to backward, or per micro-batch: whichever the baseline means."""
    run = evidence.timed_runs[0]
    wanted: list[tuple[str, tuple[str | int, ...], int, float]] = [
        (f"loss at step {step}", ("loss", step), step - 1, value)
        for step, value in sorted(baseline.loss.items())
    ]
    if baseline.final_loss is not None:
        last = run.updates[-1].index
        wanted.append(("final_loss", ("final_loss",), last, baseline.final_loss))
    seen = {update.index: update.loss for update in run.updates}
    each = max(1, run.updates[0].backwards // max(1, run.ranks))
    readings = [
        [
            Figure(
                name,
                key,
                value * scale if (value := seen.get(index)) is not None else None,
                expected,
                baseline.tolerances.loss,
            )
            for name, key, index, expected in wanted
        ]
        for scale in dict.fromkeys((1.0, 1.0 / each, float(each)))
    ]
    return min(readings, key=lambda figures: sum(not figure.holds for figure in figures))


def table(figures: list[Figure]) -> str:
    """The figures for a person: found, expected, allowed."""
    rows = [("figure", "found", "expected", "allowed", "")]
    for figure in figures:
        found = "not recorded" if figure.found is None else f"{figure.found:.6g}"
        allowed = f"+-{100 * figure.tolerance:g} %"
        word = "as expected" if figure.holds else "OFF"
        rows.append((figure.name, found, f"{figure.expected:.6g}", allowed, word))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(f"  {line}".rstrip() for line in lines)


def insist(figures: list[Figure], baseline: LoadedBaseline) -> None:
    """Raise UserError naming every figure that the reference is not at."""
    off = [figure for figure in figures if not figure.holds]
    if off:
        texts = [
            f"`{figure.name}` is "
            + ("not recorded" if figure.found is None else f"{figure.found:.6g}")
            + f", {figure.expected:.6g} was expected"
            for figure in off
        ]
        raise UserError(
            f"the job as it runs here is not the one of the baseline: {'; '.join(texts)}",
            where=baseline.place(off[0]),
            fix="find out what differs from the runs that the figures are from (machine, data, "
            "settings), or correct the baseline or its `tolerances`",
        )
