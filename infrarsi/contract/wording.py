"""Figures and reasons as a person reads them, the same in the terminal and in the report."""

from collections.abc import Mapping
from typing import Any


def duration(seconds: float) -> str:
    """A length of time in the unit that fits: `40 ms`, `12 s`, `3 min`, `1.5 h`."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def step_time(seconds: float | None) -> str:
    """A step time, precise enough to compare two of them."""
    if seconds is None:
        return "-"
    return f"{1000 * seconds:.1f} ms a step" if seconds < 1 else f"{seconds:.3f} s a step"


def spread(log_sd: float) -> str:
    """A standard deviation of log step times as a percentage."""
    return f"{100 * log_sd:.1f} %"


def counted(number: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def why_stopped(stopped_by: str, budget: Mapping[str, Any]) -> str:
    """The reason for the end of a search, as the end of a sentence."""
    match stopped_by:
        case "screens":
            return f"the budget of {counted(budget['screens'], 'trial')} is spent"
        case "target_speedup":
            return f"the target of {budget['target_speedup']:g}x was reached"
        case "wall_hours":
            return f"the time of {duration(3600 * budget['wall_hours'])} is spent"
        case "gpu_hours":
            return f"the budget of {budget['gpu_hours']:g} GPU-hours is spent"
        case "space_exhausted":
            return "everything there is to try has been tried"
        case "no_gain_expected":
            return "nothing that is left promises a gain worth its trial"
        case "interrupt":
            return "you asked to stop"
        case "cut_off":
            return "it was cut off"
    return stopped_by
