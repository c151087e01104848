"""The search loop: Ray Tune runs one execution a trial, in its own placement groups."""

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from infrarsi.contract import ExecutionRequest, ExecutionResult
from infrarsi.errors import ExternalError
from infrarsi.node.wire import RunnerSettings
from infrarsi.ports import Progress
from launchers.flights import Flights
from launchers.nodes import Lease, NodePool

_HEAD = {"node:__internal_head__": 0.001}
_MAX_TUNERS = 3  # a crash of Tune itself is an infrastructure failure; a new one works


class MakeSearcher(Protocol):
    """What makes the `ray.tune.search.Searcher`: `searchers.hypothesis.HypothesisSearcher`."""

    def __call__(
        self,
        suggest: Callable[[], Mapping[str, object] | None],
        is_over: Callable[[], bool],
        on_complete: Callable[[str, Mapping[str, object] | None, bool], None],
    ) -> Any: ...


class TuneLoop:
    """The port SearchLoop by `ray.tune.Tuner` with reused actors.

    Every trial takes `nodes` whole nodes; as many trials run at once as disjoint leases are idle
    when `run` is called, `parallel` at most. Ray must be running (`RaySession`).
    """

    def __init__(
        self,
        make_searcher: MakeSearcher,
        pool: NodePool,
        *,
        nodes: int = 1,
        gpus_per_node: int = 0,
        parallel: int | None = None,
        settings: RunnerSettings = RunnerSettings(),  # noqa: B008  # frozen
        scratch: Path | None = None,
    ) -> None:
        """`scratch` holds what Tune writes; the session's own goes with a killed process."""
        self._scratch = scratch
        self._make_searcher = make_searcher
        self._pool = pool
        self._nodes = nodes
        self._gpus_per_node = gpus_per_node
        self._parallel = parallel
        self._settings = settings.for_driver(os.getpid())

    def run(
        self,
        *,
        suggest: Callable[[], ExecutionRequest | None],
        is_over: Callable[[], bool],
        on_result: Callable[[ExecutionResult], None],
        on_progress: Callable[[str, Progress], bool],
    ) -> None:
        """Run until `is_over()`; see the port.

        Raises ExternalError if Tune crashes repeatedly, and what one of the four calls raised.
        """
        leases = self._leases()
        flights = Flights(
            suggest,
            is_over,
            on_result,
            on_progress,
            extra={
                "settings": self._settings.to_text(),
                "bundles": leases[0].bundles(),
            },
        )
        try:
            for attempt in range(1, _MAX_TUNERS + 1):
                fault = self._fit(flights, leases)
                flights.land_lost(fault)
                if flights.fault is not None:
                    raise flights.fault
                if fault is None or is_over():
                    return
                if attempt == _MAX_TUNERS:
                    raise ExternalError(
                        f"Ray Tune crashed {attempt} times: {fault}",
                        fix="continue with `infrarsi run --resume`",
                    )
        finally:
            for lease in leases:
                self._pool.release(lease)

    def _leases(self) -> list[Lease]:
        """Disjoint leases; all must be alike, since Tune asks for the same bundles each time."""
        leases = [self._pool.lease(self._nodes, gpus_per_node=self._gpus_per_node)]
        while self._parallel is None or len(leases) < self._parallel:
            try:
                more = self._pool.lease(self._nodes, gpus_per_node=self._gpus_per_node)
            except ExternalError:
                break
            if more.bundles() != leases[0].bundles():
                self._pool.release(more)
                break
            leases.append(more)
        return leases

    def _fit(self, flights: Flights, leases: list[Lease]) -> str | None:
        """One Tuner; returns what crashed it, None if it came to its end."""
        from ray import tune
        from ray.exceptions import RayError

        from infrarsi.node.trainable import ExecutionTrainable
        from launchers.tune_hooks import FlightCallback, FlightStopper

        folder = tempfile.mkdtemp(prefix="infrarsi-tune-", dir=self._scratch)
        resources = tune.PlacementGroupFactory([_HEAD, *leases[0].bundles()], strategy="SPREAD")
        tuner = tune.Tuner(
            tune.with_resources(ExecutionTrainable, resources),
            tune_config=tune.TuneConfig(
                search_alg=self._make_searcher(
                    suggest=flights.suggest,
                    is_over=flights.is_over,
                    on_complete=flights.on_complete,
                ),
                num_samples=-1,
                max_concurrent_trials=len(leases),
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="search",
                storage_path=folder,
                verbose=0,
                stop=FlightStopper(flights),
                callbacks=[FlightCallback(flights)],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        try:
            with _quiet():
                tuner.fit()
        except (RayError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return None


@contextlib.contextmanager
def _quiet() -> Any:
    """Tune logs the failures of trials; they are outcomes here, and reported as such."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
