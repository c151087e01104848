"""Obligations between rooms, without code."""

from infrarsi.ports.clock import Clock
from infrarsi.ports.launcher import Bench, Progress, RunningJob, SearchLoop
from infrarsi.ports.proposer import Proposer

__all__ = ["Bench", "Clock", "Progress", "Proposer", "RunningJob", "SearchLoop"]
