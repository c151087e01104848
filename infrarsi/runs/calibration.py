"""What the searcher expected of its trials, held against what they measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from infrarsi.contract import Outcome
from infrarsi.runs.state import RunState, TrialLine

_MEASURED = (Outcome.OK, Outcome.STOPPED)
_OUT_OF_MEMORY = (Outcome.OOM_GPU, Outcome.OOM_HOST)
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Expectation:
    """One trial's expected and measured figure; `low` and `high` are the 80 % interval.

    Speed-ups over the reference, or bytes of peak memory. `surprise` is the deviation of what was
    measured in standard deviations of what was expected.
    """

    expected: float
    low: float
    high: float
    measured: float
    surprise: float


@dataclass(frozen=True)
class Calibration:
    """How far a run's predictions were right.

    `speed` and `peak` map trials' numbers to their figures. `log_bias` is the mean of measured less
    expected log speed-up; positive means that trials came out faster. `fits_brier` is the mean
    squared error of the probabilities of fitting, over trials that ran or ran out of memory.
    """

    speed: dict[int, Expectation]
    peak: dict[int, Expectation]
    log_bias: float | None
    fits_brier: float | None


def within(found: Sequence[Expectation], confidence: float) -> int:
    """How many were measured inside their central interval at that confidence."""
    limit = _NORMAL.inv_cdf(0.5 + confidence / 2)
    return sum(abs(each.surprise) <= limit for each in found)


def calibration_of(state: RunState) -> Calibration:
    """Compare every launched trial with its proposal; empty where a searcher predicts nothing."""
    base = state.reference.get("step_time_s")
    noise = state.reference.get("step_log_sd") or 0.0
    speed: dict[int, Expectation] = {}
    peak: dict[int, Expectation] = {}
    errors = []
    for line in state.trials:
        trial, expected = line.trial, line.expected
        if expected is None:
            continue
        if base and (found := _speed(line, base, noise)):
            speed[trial.number] = found
        if found := _peak(line):
            peak[trial.number] = found
        if expected.fits is not None and trial.outcome in (*_MEASURED, *_OUT_OF_MEMORY):
            errors.append((expected.fits - (trial.outcome in _MEASURED)) ** 2)
    biases = [math.log(each.measured / each.expected) for each in speed.values()]
    return Calibration(
        speed, peak, fmean(biases) if biases else None, fmean(errors) if errors else None
    )


def _speed(line: TrialLine, base: float, noise: float) -> Expectation | None:
    trial, expected = line.trial, line.expected
    if trial.step_time_s is None or trial.outcome not in _MEASURED or expected is None:
        return None
    if expected.expected_log_time is None or expected.expected_log_time_sd is None:
        return None
    # The measurement has its own noise, and so has the reference's.
    sd = math.sqrt(expected.expected_log_time_sd**2 + 2 * noise**2)
    mean, reach = -expected.expected_log_time, _NORMAL.inv_cdf(0.9) * sd
    measured = math.log(base / trial.step_time_s)
    return Expectation(
        math.exp(mean),
        math.exp(mean - reach),
        math.exp(mean + reach),
        math.exp(measured),
        (measured - mean) / sd if sd else 0.0,
    )


def _peak(line: TrialLine) -> Expectation | None:
    trial, expected = line.trial, line.expected
    if trial.peak_bytes is None or trial.outcome not in _MEASURED or expected is None:
        return None
    mean, sd = expected.expected_peak_bytes, expected.expected_peak_sd_bytes
    if mean is None or not sd:
        return None
    reach = _NORMAL.inv_cdf(0.9) * sd
    surprise = (trial.peak_bytes - mean) / sd
    return Expectation(mean, max(mean - reach, 0.0), mean + reach, trial.peak_bytes, surprise)
