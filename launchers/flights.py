"""Executions under way in the search loop: between the campaign's calls and Tune's."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from infrarsi.contract import ExecutionRequest, ExecutionResult, Outcome
from infrarsi.node.wire import execution_id_of, lost, pack_request, unpack_result
from infrarsi.ports import Progress

Answer = TypeVar("Answer")
_PROGRESS_S = 1.0
_PATIENCE_S = 6.0
"""How long after the end of the search a stopped execution may take to report; then Tune stops
all by force. The supervisor's grace is 1 s, a poll 0.5 s."""


@dataclass
class _Flight:
    execution_id: str
    began: float
    runner: str | None = None
    told_s: float = 0.0
    stop_wanted: bool = False
    stop_sent: bool = False


class Flights:
    """Keeps the promises of `SearchLoop.run`: each result once, stops in good order.

    All methods are called by Tune in the driver's thread. What the campaign raises is kept in
    `fault` and ends the search, since Tune takes an exception of its hooks for the failure of a
    trial and goes on (Ray 2.60); the loop raises it at its end.
    """

    def __init__(
        self,
        suggest: Callable[[], ExecutionRequest | None],
        is_over: Callable[[], bool],
        on_result: Callable[[ExecutionResult], None],
        on_progress: Callable[[str, Progress], bool],
        *,
        extra: Mapping[str, Any],
    ) -> None:
        """`extra` goes into every trial's configuration."""
        self._suggest = suggest
        self._is_over = is_over
        self._on_result = on_result
        self._on_progress = on_progress
        self._extra = dict(extra)
        self._open: dict[str, _Flight] = {}
        self._over_since: float | None = None
        self.fault: Exception | None = None

    def suggest(self) -> dict[str, Any] | None:
        """A trial's configuration for the campaign's next request."""
        request = self._ask(self._suggest, None)
        if request is None:
            return None
        self._open[request.execution_id] = _Flight(request.execution_id, time.monotonic())
        return {"request": pack_request(request), **self._extra}

    def is_over(self) -> bool:
        """Whether the search is over; from then on everything is asked to stop."""
        if self._over_since is None and (self._ask(self._is_over, True) or self.fault):
            self._over_since = time.monotonic()
        if self._over_since is not None:
            for flight in self._open.values():
                self._stop(flight)
        return self._over_since is not None

    def must_force(self) -> bool:
        """Called by Tune in every turn of its loop: whether to stop all trials by force."""
        return (
            self.is_over()
            and bool(self._open)
            and time.monotonic() - (self._over_since or 0.0) > _PATIENCE_S
        )

    def on_progress(self, report: Mapping[str, Any]) -> None:
        """A live report of one trial."""
        flight = self._open.get(report["execution_id"])
        if flight is None or report.get("result") is not None:
            return
        flight.runner = report["runner"]
        now = time.monotonic()
        if now - flight.told_s >= _PROGRESS_S:
            flight.told_s = now
            progress = Progress(report["steps"], report["step_time_s"])
            if not self._ask(lambda: self._on_progress(flight.execution_id, progress), False):
                self._stop(flight)
        if flight.stop_wanted:
            self._stop(flight)

    def on_complete(self, trial_id: str, result: Mapping[str, object] | None, error: bool) -> None:
        """The end of a trial, from the searcher; one with `error` is explained by `on_error`."""
        packed = (result or {}).get("result")
        if isinstance(packed, str):
            self._land(unpack_result(packed))

    def on_error(self, request: str, cause: str) -> None:
        """The cause of a trial's error."""
        self._land_as(execution_id_of(request), Outcome.INFRA, cause)

    def land_lost(self, fault: str | None) -> None:
        """Deliver what never reported, after Tune's end; `fault` is what crashed Tune."""
        for execution_id in list(self._open):
            if fault is not None:
                self._land_as(execution_id, Outcome.INFRA, f"Ray Tune crashed: {fault}")
            else:
                self._land_as(execution_id, Outcome.STOPPED, "stopped with the search")

    def _land_as(self, execution_id: str, outcome: Outcome, reason: str) -> None:
        flight = self._open.get(execution_id)
        if flight is not None:
            wall_s = time.monotonic() - flight.began
            self._land(lost(execution_id, outcome, reason, wall_s=wall_s))

    def _land(self, result: ExecutionResult) -> None:
        if self._open.pop(result.execution_id, None) is not None:
            self._ask(lambda: self._on_result(result), None)

    def _ask(self, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return call()
        except Exception as fault:
            self.fault = self.fault or fault
            return otherwise

    def _stop(self, flight: _Flight) -> None:
        """Ask the runner itself: Tune's own stop would drop the result."""
        flight.stop_wanted = True
        if flight.stop_sent or flight.runner is None:
            return
        import ray

        flight.stop_sent = True
        try:
            ray.get_actor(flight.runner).stop.remote()
        except ValueError:
            return  # the runner is gone; its trial reports that by itself
