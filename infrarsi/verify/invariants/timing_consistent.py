"""Three clocks tell the same story, and no time was moved out of sight.

Why: step times are the score, so they are what is forged: a patched `time.perf_counter` or
`cuda.synchronize`, printed step times, work moved into a step that the median does not see, or into
evaluation, logging and collection between steps.
Speed is read off the harness's clock in another process; here the rest is held against it.

- *Clocks.* For each rank, the offset between the arrival of each boundary at the harness and the
  same boundary on the job's own clock may not drift over the window: the medians of its first and
  last thirds agree within 1 % of the window plus 20 ms. Medians, because a busy harness receives
  single lines late. A clock patched to run slow, or to stand still during evaluation, drifts.
- *Events.* Where CUDA events were recorded (at close looks), the time between the first and last of
  them agrees with the harness's within 5 % plus 50 ms: the host may run ahead of the device, but
  not by a share of the window.
- *Hidden time.* Recurring time beyond the median, per step, in seconds, may not exceed the largest
  that the reference's runs have by more than 5 % of the reference's step time, plus the range of
  the reference's own runs and three standard errors of the mean. The candidate's single slowest
  step is left out of this (any process is interrupted now and then); with it, the limit is a
  quarter of a step's time. What is moved from most steps into a few, or out of the steps
  altogether, turns up here, since the durations add up to the window. What stays below the limit
  gains nothing: in promotion the net speed-up counts the mean of all steps, over all pairs.
- *Behind the last step.* The time from the last step to the end of the command, compiling left out,
  may grow against the reference's runs by 5 % of all steps, a quarter of itself, the range of those
  runs and `AFTER_S`: an evaluation, a checkpoint or a collection moved there would else be seen by
  nobody. Where the run compiled and the reference did not, what its processes take longer to exit
  once their records are sealed may be up to `COMPILED_EXIT_S` on top: the compiler's workers, one
  for each core, are joined there.
  A process that had to be killed afterwards, where the reference left none, did work on the side.
- *Close looks* are left out of the median, so slow work could hide in them: their own median may
  lie above the others' by as much as the reference's, 30 % of a step and 20 ms.
- *Before the first step.* What a run does more there (activations or batches computed in advance)
  is charged to the planned run as a one-off; the reason names it.
- *Hardware.* A step that needs more operations than the GPUs can do in its time was not done
  (`infrarsi.verify.hardware`).
- *The log.* Printed times that flatter the harness's clock, and lines that the reference prints and
  this run does not (`infrarsi.verify.printed_times`).
- *Problems.* Whatever the witness noted about a replaced clock or hook is a failure.

"The reference's runs" are those before the search and, for a run of a pair, the untouched job's of
the same pair: other work on the machine stretches starts, ends and single steps of both.

Steps that were looked at closely are left out, as in the measurement. Audit runs are never timed:
their clocks are compared, their durations are not. One-off time (start, compile, warm-up) is
measured apart and charged to the planned run; a job that ends early is the business of `completes`.
"""

import itertools
import math

import numpy as np

from infrarsi.contract import CheckResult, ExecutionResult, RankRecord, RunKind, Status
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.hardware import gpu_of, lowest_dtype, mfu
from infrarsi.verify.joined import Joined
from infrarsi.verify.measurement import Measurement, durations, measure
from infrarsi.verify.printed_times import printed_lines_missing, printed_times_disagree

CHECK = "timing_consistent"
_CLOCK_SHARE, _CLOCK_S = 0.01, 0.02
_EVENT_SHARE, _EVENT_S = 0.05, 0.05
_HIDDEN_SHARE, _HIDDEN_WITH_WORST = 0.05, 0.25
AFTER_S = 0.5
"""Exits differ by this much honestly: workers of the compiler and of DataLoaders are joined."""
AFTER_SHARE = 1.25
"""Other work on the machine stretches the end of every process alike."""
COMPILED_EXIT_S, _COMPILED_S = 2.0, 5.0
"""1.5 s more were seen on 32 cores after 26 s of compiling (two H200)."""
_LOOK_SHARE, _LOOK_S = 0.30, 0.02
_START_S = 1.0
_HELPERS = ("compile_worker", "resource_tracker", "shared memory")
_TAMPER_WORDS = ("clock", "tamper", "replaced", "patched")


def judge(comparison: Comparison) -> CheckResult:
    """Whether the clocks agree and no recurring time was hidden."""
    result = comparison.result
    for rank in result.ranks:
        for problem in rank.problems:
            known = any(problem.split(" (")[0] in p for p in _known_problems(comparison))
            if not known and any(word in problem.lower() for word in _TAMPER_WORDS):
                return failed(CHECK, f"rank {rank.rank}: {problem}")
    if len(comparison.candidate.updates) < 3:
        return uncovered(CHECK, "fewer than three updates were recorded")
    for rank in result.ranks:
        difference = _clock_drift(rank) or _event_difference(rank)
        if difference:
            return failed(CHECK, f"rank {rank.rank}: {difference}")
    missing = printed_lines_missing(comparison)
    if missing:
        return failed(CHECK, missing)
    if result.kind is not RunKind.TIMED:
        return passed(CHECK, "the clocks agree; an audit run is not timed")
    return _timed(comparison)


def _timed(comparison: Comparison) -> CheckResult:
    ours, theirs = _untouched_times(comparison), measure(comparison.result)
    if not ours or theirs is None:
        return uncovered(CHECK, "no step has a duration")
    found = (
        _left_running(comparison)
        or _impossible(comparison, theirs)
        or _behind_the_last_step(comparison)
        or _in_close_looks(comparison, theirs)
        or printed_times_disagree(comparison)
    )
    if found:
        return failed(CHECK, found)
    hidden = _hidden(comparison, theirs)
    later = theirs.start_s - max(m.start_s for m in ours)
    if hidden.status is Status.PASSED and later > _START_S:
        note = f"; its first step begins {later:.1f} s later, which is charged as a one-off"
        return passed(CHECK, hidden.reason + note)
    return hidden


def _untouched_times(comparison: Comparison) -> tuple[Measurement, ...]:
    beside = measure(comparison.beside) if comparison.beside else None
    return (*comparison.evidence.measurements, *([beside] if beside else []))


def _known_problems(comparison: Comparison) -> list[str]:
    runs = (*comparison.evidence.timed, comparison.reference_result)
    return [problem for run in runs for rank in run.ranks for problem in rank.problems]


def _clock_drift(rank: RankRecord) -> str:
    harness = np.asarray([step.harness_s for step in rank.steps])
    own = np.asarray([step.witness_s for step in rank.steps])
    if np.any(np.diff(harness) < 0) or np.any(np.diff(own) < 0):
        return "a clock went backwards"
    offsets = harness - own
    third = max(1, len(offsets) // 3)
    drift = float(np.median(offsets[-third:]) - np.median(offsets[:third]))
    window = float(harness[-1] - harness[0])
    allowed = _CLOCK_SHARE * window + _CLOCK_S
    if abs(drift) > allowed:
        return (
            f"the job's clock drifts by {drift:+.3f} s against the harness's over a window of "
            f"{window:.3f} s ({allowed:.3f} s is allowed)"
        )
    return ""


def _event_difference(rank: RankRecord) -> str:
    """Steps with an event say the device's time since the one before them that has one."""
    marked = [step for step in rank.steps if step.event_s is not None]
    pairs = [
        (after.event_s or 0.0, after.harness_s - before.harness_s)
        for before, after in itertools.pairwise(marked)
    ]
    if len(pairs) < 3:
        return ""
    events, harness = math.fsum(e for e, _ in pairs), math.fsum(h for _, h in pairs)
    allowed = _EVENT_SHARE * harness + _EVENT_S
    if abs(events - harness) > allowed:
        return (
            f"CUDA events add up to {events:.3f} s, the harness's clock to {harness:.3f} s "
            f"({allowed:.3f} s apart is allowed)"
        )
    return ""


def _left_running(comparison: Comparison) -> str:
    known = {_program(name) for run in comparison.evidence.timed for name in run.leftover}
    for name in comparison.result.leftover:
        if not any(helper in name for helper in _HELPERS) and _program(name) not in known:
            return f"a process still ran when the command had ended: {name}"
    return ""


def _program(name: str) -> str:
    return name.rpartition(" (pid ")[0]


def _impossible(comparison: Comparison, theirs: Measurement) -> str:
    result, evidence = comparison.result, comparison.evidence
    share = mfu(result, comparison.candidate, theirs.step_time_s)
    own = mfu(comparison.reference_result, comparison.reference, evidence.step_time_s)
    gpu = gpu_of(result)
    if share is None or gpu is None or share <= 1.0 or (own or 0.0) > 1.0:
        return ""  # where the reference exceeds it as well, the bound is wrong for this job
    return (
        f"{1e3 * theirs.step_time_s:.2f} ms a step need {share:.2f} times the peak of this "
        f"{gpu.name} in {lowest_dtype(result)}: the work cannot have been done"
    )


def _behind_the_last_step(comparison: Comparison) -> str:
    evidence, run = comparison.evidence, comparison.candidate
    found = _after_s(comparison.result, run)
    known = [_after_s(result, joined) for result, joined in comparison.untouched]
    ours = [seconds for seconds in known if seconds is not None]
    if found is None or not ours:
        return ""
    allowed = AFTER_SHARE * max(ours) + (max(ours) - min(ours)) + AFTER_S
    allowed += _HIDDEN_SHARE * evidence.step_time_s * len(run.updates)
    allowed += _compiled_exit_s(comparison)
    if found <= allowed:
        return ""
    return (
        f"{found:.2f} s pass between the last step and the end of the command, {allowed:.2f} s are "
        f"allowed by the reference's {max(ours):.2f} s"
    )


def _compiled_exit_s(comparison: Comparison) -> float:
    """How much longer than the reference's a run's processes may take to exit for its compiler."""
    untouched = comparison.untouched
    compiled = _compile_s(comparison.candidate) - max(_compile_s(run) for _, run in untouched)
    if compiled < _COMPILED_S:
        return 0.0
    more = _exit_s(comparison.result) - max(_exit_s(result) for result, _ in untouched)
    return min(max(0.0, more), COMPILED_EXIT_S)


def _compile_s(run: Joined) -> float:
    return math.fsum(update.compile_s for update in run.updates)


def _exit_s(result: ExecutionResult) -> float:
    """Seconds from the last rank's end line to the end of the command."""
    ends = [float(rank.end["at"]) for rank in result.ranks if "at" in rank.end]
    return result.command_s - max(ends) if ends else 0.0


def _after_s(result: ExecutionResult, run: Joined) -> float | None:
    """Seconds from the last step to the end of the command; the last step itself left out."""
    if len(run.updates) < 3:
        return None
    last = run.updates[-1]
    if not run.ended_by_job:
        return result.command_s - last.end_s
    steady = measure(result)
    mean_s = steady.step_time_s if steady else 0.0
    return result.command_s - run.updates[-2].end_s - mean_s - last.compile_s


def _in_close_looks(comparison: Comparison, theirs: Measurement) -> str:
    found = _look_excess_s(comparison.candidate, theirs)
    evidence = comparison.evidence
    timed = [(run, measure(result)) for result, run in comparison.untouched]
    known = [_look_excess_s(run, times) for run, times in timed if times]
    ours = [seconds for seconds in known if seconds is not None]
    if found is None or not ours:
        return ""
    allowed = max(0.0, *ours) + _LOOK_SHARE * evidence.step_time_s + _LOOK_S
    if found <= allowed:
        return ""
    return (
        f"steps that are looked at closely take {1e3 * found:.1f} ms longer than the others, "
        f"{1e3 * allowed:.1f} ms are allowed"
    )


def _look_excess_s(run: Joined, times: Measurement) -> float | None:
    """How much longer a steady close look takes than the median of the others."""
    looks = [
        seconds
        for index, seconds in durations(run, close_looks=True)
        if index >= times.first_steady and run.by_index[index].close_look
    ]
    return float(np.median(looks)) - times.step_time_s if len(looks) >= 3 else None


def _hidden(comparison: Comparison, theirs: Measurement) -> CheckResult:
    ours = _untouched_times(comparison)
    step = comparison.evidence.step_time_s
    # Not before the reference is steady: an evaluation may be cut off with its warm-up alone.
    first = max(m.first_steady for m in ours)
    begin = max(first, theirs.first_steady)
    found, whole = _tail(theirs, begin, drop_worst=True), _tail(theirs, begin, drop_worst=False)
    tails = [_tail(m, first, drop_worst=False) for m in ours]
    known = max(*tails, 0.0)
    error = 3.0 * theirs.steady.spread_log_sd * step / math.sqrt(theirs.steady.count)
    error += max(tails) - min(tails)
    allowed = known + _HIDDEN_SHARE * step + error
    allowed_whole = known + _HIDDEN_WITH_WORST * step + error
    for value, limit in ((found, allowed), (whole, allowed_whole)):
        if value > limit:
            return failed(
                CHECK,
                f"{1e3 * value:.2f} ms a step lie beyond the median step, "
                f"{1e3 * limit:.2f} ms are allowed by the reference's {1e3 * known:.2f} ms",
            )
    return passed(
        CHECK,
        f"the clocks agree; {1e3 * found:.2f} ms a step beyond the median, "
        f"{1e3 * allowed:.2f} ms are allowed",
    )


def _tail(measurement: Measurement, first: int, *, drop_worst: bool) -> float:
    """Mean steady duration less the median, in seconds; the slowest step left out if asked."""
    steady = sorted(s for index, s in measurement.durations if index >= first)
    if len(steady) < 3:
        steady = sorted(s for i, s in measurement.durations if i >= measurement.first_steady)
    kept = steady[:-1] if drop_worst and len(steady) > 2 else steady
    return math.fsum(kept) / len(kept) - measurement.step_time_s
