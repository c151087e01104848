"""Run directories and journals: the only room that knows file names."""

from infrarsi.runs.calibration import Calibration, Expectation, calibration_of, within
from infrarsi.runs.costs import Costs, costs_of
from infrarsi.runs.directory import DEFAULT_ROOT, RunDirectory, write_atomically
from infrarsi.runs.journal import Event, Journal, JournalText, read
from infrarsi.runs.state import ExecutionSummary, Pair, RunState, TrialLine

__all__ = [
    "DEFAULT_ROOT",
    "Calibration",
    "Costs",
    "Event",
    "ExecutionSummary",
    "Expectation",
    "Journal",
    "JournalText",
    "Pair",
    "RunDirectory",
    "RunState",
    "TrialLine",
    "calibration_of",
    "costs_of",
    "read",
    "within",
    "write_atomically",
]
