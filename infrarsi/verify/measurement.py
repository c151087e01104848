"""What one execution took, on the harness's clock alone.

The job's own clock and printed step times take no part: `timing_consistent` only compares them.
An update has ended when the slowest rank has ended it, so the durations of one run add up to its
whole window, and nothing can be left out between two of them.
"""

from dataclasses import dataclass

from infrarsi.contract import ExecutionResult
from infrarsi.stats import SteadyState, steady
from infrarsi.verify.joined import Joined, join

MAX_COMPILING = 4
"""Updates whose compile time is a one-off: the first, one for each of evaluation and two changes of
shape."""


@dataclass(frozen=True)
class Measurement:
    """Times of one run.

    `step_time_s` is the median steady update without close looks; `mean_step_s` the mean of the
    same updates, recurring slow ones (evaluation, checkpoints, collection) included; `tail_s` what
    lies between the two. `first_steady` is the index of the first steady update. `one_off_s` is
    what the run pays once: the time from the command's start to the first steady update, less what
    that many updates take at the steady mean; in a job that ends by itself also the time after its
    last full update, less one update, and what torch's compiler took after the first steady update
    (an evaluation that is compiled when it first comes). `start_s` is when the first update began.
    """

    step_time_s: float
    mean_step_s: float
    tail_s: float
    steady: SteadyState
    first_steady: int
    one_off_s: float
    start_s: float
    window_s: float
    command_s: float
    peak_bytes: int | None
    durations: tuple[tuple[int, float], ...]


def durations(run: Joined, *, close_looks: bool = False) -> tuple[tuple[int, float], ...]:
    """(index, seconds) of each update that has a beginning; close looks are left out by default.

    An update whose predecessor is missing has no duration, nor has the last one of a job that ends
    by itself, which lasts to the end of the process. Compiling is taken off where it is a one-off
    (`compiled`).
    """
    found = []
    once = compiled(run)
    for update in run.updates[:-1] if run.ended_by_job else run.updates:
        before = run.by_index.get(update.index - 1)
        begin = before.end_s if before else (run.start_s if update.index == 0 else None)
        if begin is not None and (close_looks or not update.close_look):
            seconds = update.end_s - begin - once.get(update.index, 0.0)
            found.append((update.index, max(seconds, 1e-9)))
    return tuple(found)


def compiled(run: Joined) -> dict[int, float]:
    """Seconds of compiling by update, for the few updates that may call it a one-off.

    At most `MAX_COMPILING` updates, those with most of it: a job that compiles again and again has
    recurring time, whatever it is called.
    """
    most = sorted(run.updates, key=lambda update: -update.compile_s)[:MAX_COMPILING]
    return {update.index: update.compile_s for update in most if update.compile_s > 0}


def measure(result: ExecutionResult) -> Measurement | None:
    """The times of a run; None where no update has a duration.

    In a run whose every step is a close look (an audit) these count; such times are never compared
    with those of a timed run.
    """
    run = join(result)
    kept = durations(run) or durations(run, close_looks=True)
    if not kept:
        return None
    state = steady([seconds for _, seconds in kept])
    first = kept[state.first][0]
    before = run.by_index.get(first - 1)
    begin = before.end_s if before else (run.start_s or 0.0)
    one_off = begin - first * state.mean_s
    one_off += sum(s for index, s in compiled(run).items() if index >= first)
    if run.ended_by_job:
        last = run.by_index[kept[-1][0]]
        left = len(run.updates) - 1 - run.updates.index(last)
        one_off += max(0.0, result.command_s - last.end_s - left * state.mean_s)
    start = run.start_s if run.start_s is not None else run.updates[0].end_s
    return Measurement(
        step_time_s=state.median_s,
        mean_step_s=state.mean_s,
        tail_s=state.mean_s - state.median_s,
        steady=state,
        first_steady=first,
        one_off_s=max(0.0, one_off),
        start_s=start,
        window_s=run.updates[-1].end_s - start,
        command_s=result.command_s,
        peak_bytes=result.peak_bytes,
        durations=kept,
    )
