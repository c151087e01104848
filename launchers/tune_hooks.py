"""Tune's hooks that lead to `Flights`. Importing this imports ray.tune.

Tune pickles both into its own state; a copy restored from that does nothing.
"""

import pickle
from typing import Any

from ray.tune import Callback, Stopper

from infrarsi.node.runner import cause_of
from launchers.flights import Flights


class FlightStopper(Stopper):  # type: ignore[misc]  # ray.tune is untyped here
    """Never stops one trial; stops all once stopped executions do not report."""

    def __init__(self, flights: Flights) -> None:
        self._flights: Flights | None = flights

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never: an execution is stopped through its runner, which still reports."""
        return False

    def stop_all(self) -> bool:
        """Called in every turn of Tune's loop."""
        return self._flights is not None and self._flights.must_force()

    def __getstate__(self) -> dict[str, Any]:
        return {"_flights": None}


class FlightCallback(Callback):  # type: ignore[misc]  # ray.tune is untyped here
    """Live reports, and the cause of errors, which the searcher is not told."""

    def __init__(self, flights: Flights) -> None:
        self._flights: Flights | None = flights

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A live report of one trial."""
        if self._flights is not None:
            self._flights.on_progress(result)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """An actor died or raised: always infrastructure, since a job's failure is a result."""
        if self._flights is None:
            return
        # trial.get_pickled_error() is None at this point (Ray 2.60).
        cause = "Ray Tune gave no cause"
        if trial.pickled_error_file:
            with open(trial.pickled_error_file, "rb") as file:
                cause = cause_of(pickle.load(file))
        self._flights.on_error(trial.config["request"], cause)

    def __getstate__(self) -> dict[str, Any]:
        return {"_flights": None}
