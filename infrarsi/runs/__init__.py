"""Run directories and journals: the only room that knows file names."""

from infrarsi.runs.costs import Costs, costs_of
from infrarsi.runs.directory import DEFAULT_ROOT, RunDirectory, write_atomically
from infrarsi.runs.journal import Event, Journal, JournalText, read
from infrarsi.runs.state import ExecutionSummary, Pair, RunState, TrialLine

__all__ = [
    "DEFAULT_ROOT",
    "Costs",
    "Event",
    "ExecutionSummary",
    "Journal",
    "JournalText",
    "Pair",
    "RunDirectory",
    "RunState",
    "TrialLine",
    "costs_of",
    "read",
    "write_atomically",
]
