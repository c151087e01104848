"""The figures of a log beside those of the record: which agree, which do not, which cannot be told.

A log is only corroboration. What it leaves open (`infrarsi.node.figures`) the record may settle: of
several readings of a number the one counts that agrees with what was measured, if one alone does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from infrarsi.contract import ExecutionResult
from infrarsi.node.figure_names import Metric
from infrarsi.node.figures import Figure, LogFigures
from infrarsi.verify.hardware import mfu, rows_per_update
from infrarsi.verify.joined import Joined, join
from infrarsi.verify.measurement import measure

_NEAR = {Metric.LOSS: 0.005, Metric.MEMORY: 0.02, Metric.MFU: 0.15}
_NEAR_OTHER = 0.10


@dataclass(frozen=True)
class Logged:
    """One figure of a log: what it says, what the record has (None: nothing), whether they agree.

    `agrees` is None where one of the two is missing. `printed` is the reading that agrees where the
    log leaves several.
    """

    metric: Metric
    label: str
    printed: float | None
    recorded: float | None
    agrees: bool | None
    note: str = ""


def logged_beside_record(
    found: LogFigures, result: ExecutionResult, tokens_per_update: int | None = None
) -> list[Logged]:
    """Every figure of the log of this run that the record has too, and those it cannot judge."""
    run = join(result)
    return [
        _judged(figure, list(_recorded(figure, result, run, tokens_per_update)))
        for figure in found.figures.values()
    ]


def _judged(figure: Figure, recorded: list[float]) -> Logged:
    readings = [figure.value] if figure.value is not None else list(figure.readings)
    if not recorded or not readings:
        note = figure.note or "the record has no such figure"
        first = recorded[0] if recorded else None
        return Logged(figure.metric, figure.label, figure.value, first, None, note)
    near = _NEAR.get(figure.metric, _NEAR_OTHER)
    pairs = [
        (reading, known)
        for reading in readings
        for known in recorded
        if abs(reading - known) <= near * abs(known)
    ]
    fitting = sorted({reading for reading, _ in pairs})
    if len(fitting) == 1:
        return Logged(figure.metric, figure.label, *pairs[0], True, figure.note)
    note = figure.note if figure.value is None else ""
    agrees = False if figure.value is not None else None
    return Logged(figure.metric, figure.label, figure.value, recorded[0], agrees, note)


def _recorded(
    figure: Figure, result: ExecutionResult, run: Joined, tokens: int | None
) -> Iterator[float]:
    """What the record has of a figure, in each way in which a log may mean it."""
    times = measure(result)
    if times is None:
        return
    update = run.updates[-1]
    step_s, ranks = times.step_time_s, max(1, run.ranks)
    micro_batches = max(1, round(median(u.backwards for u in run.updates) / ranks))
    if figure.metric is Metric.STEP_TIME:
        yield step_s
        if figure.window == "bar":
            yield step_s / micro_batches
    elif figure.metric is Metric.MEMORY and result.peak_bytes:
        yield float(result.peak_bytes)
    elif figure.metric is Metric.MFU:
        share = mfu(result, run, step_s)
        if share is not None:
            yield share
    elif figure.metric in (Metric.TOKENS, Metric.SAMPLES):
        rows = rows_per_update(result, update)
        counted = tokens or (rows if rows > update.samples else None)
        work = update.samples if figure.metric is Metric.SAMPLES else counted
        if work:
            yield from (work / step_s, work / step_s / ranks)
    elif figure.metric is Metric.LOSS:
        yield from _losses(figure, result, run, micro_batches)


def _losses(
    figure: Figure, result: ExecutionResult, run: Joined, micro_batches: int
) -> Iterator[float]:
    """The losses of the update that the log's last line is about: rank 0's and the mean."""
    step = figure.points[-1].step if figure.points else None
    if step is None or step != int(step):
        return
    first = min(result.ranks, key=lambda rank: rank.rank)
    own = {one.index: one.loss for one in first.steps}
    for index in (int(step) - 1, int(step)):
        update = run.by_index.get(index)
        for loss in (own.get(index), update.loss if update else None):
            if loss is not None:
                yield from (loss, loss / micro_batches, loss * micro_batches)
