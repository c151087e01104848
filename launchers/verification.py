"""Nodes held for a series of executions: the reference's runs, and the verification's pairs."""

import contextlib
import os
import time
from types import TracebackType
from typing import Any

from infrarsi.contract import ExecutionRequest, ExecutionResult, NodeInfo, Outcome
from infrarsi.errors import ExternalError, UserError
from infrarsi.node.holder import NodeHolder
from infrarsi.node.runner import HALT_S, Polled, cause_of
from infrarsi.node.wire import RunnerSettings, lost, pack_request, unpack_result
from infrarsi.ports import Progress
from launchers.nodes import Lease, NodePool

_HOLD_S = 120.0
_SLICE_S = 2.0  # a dead holder is noticed by the call under way; short, so that signals are served


class HeldBench:
    """The port Bench over a Ray actor in a placement group on the nodes of one lease.

    Entering reserves the nodes and starts their runners (about 3 s on two cores); leaving stops
    what runs, frees the nodes and gives the lease back to the pool.
    """

    def __init__(
        self,
        pool: NodePool,
        lease: Lease,
        *,
        settings: RunnerSettings = RunnerSettings(),  # noqa: B008  # frozen
    ) -> None:
        """Takes over a lease of `pool`; nothing is started yet."""
        self._pool = pool
        self._lease = lease
        self._settings = settings.for_driver(os.getpid()).to_text()
        self._holder: Any = None
        self._group: Any = None
        self.nodes: tuple[NodeInfo, ...] = ()

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes that are held, in rank order."""
        return self._lease.node_ids

    def __enter__(self) -> "HeldBench":
        try:
            self._hold()
        except BaseException:
            self._pool.release(self._lease)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._drop()
        finally:
            self._pool.release(self._lease)

    def start(self, request: ExecutionRequest) -> "HeldJob":
        """Start one execution.

        Nodes that were lost are taken again once; raises ExternalError if they do not come back,
        UserError for a request that they cannot serve.
        """
        import ray

        for attempt in (1, 2):
            if self._holder is None:
                self._hold()
            try:
                ray.get(self._holder.start.remote(pack_request(request)))
            except ray.exceptions.RayError as error:
                fault = _own_error(error)
                if fault is not None:
                    raise fault from None
                self._drop()
                if attempt == 2:
                    raise ExternalError(
                        f"the held nodes were lost twice: {cause_of(error)}",
                        fix="look at `ray status`, then continue with `infrarsi run --resume`",
                    ) from None
            else:
                break
        return HeldJob(self, request)

    def poll(self, timeout_s: float) -> Polled:
        """What the runner says; raises ray's error if the nodes are lost, for `HeldJob`."""
        import ray

        polled: Polled = ray.get(self._holder.poll.remote(timeout_s))
        return polled

    def ask_to_stop(self) -> None:
        """Ask the execution under way to end; for `HeldJob`."""
        if self._holder is not None:
            self._holder.stop.remote()

    def lose(self) -> None:
        """Forget a holder that is dead; the next `start` makes a new one; for `HeldJob`."""
        self._drop()

    def _hold(self) -> None:
        import ray

        bundles = self._lease.bundles()
        options: dict[str, Any] = {"strategy": "STRICT_SPREAD" if len(bundles) > 1 else "PACK"}
        if self._lease.is_pinned:
            options["bundle_label_selector"] = self._lease.selectors()
        self._group = ray.util.placement_group(bundles, **options)
        self._holder = (
            ray.remote(NodeHolder)
            .options(
                num_cpus=0,
                resources={"node:__internal_head__": 0.001},
                max_concurrency=8,
                max_restarts=0,
            )
            .remote()
        )
        try:
            self._wait_for_nodes()
            hold = self._holder.hold.remote(self._group, bundles, self._settings)
            self.nodes = ray.get(hold)
        except ray.exceptions.RayError as error:
            self._drop()
            raise (
                _own_error(error)
                or ExternalError(f"the nodes could not be held: {cause_of(error)}")
            ) from None
        except BaseException:
            self._drop()
            raise

    def _wait_for_nodes(self) -> None:
        deadline = time.monotonic() + _HOLD_S
        while not self._group.wait(_SLICE_S):
            if time.monotonic() > deadline:
                raise ExternalError(
                    f"the nodes did not become free within {_HOLD_S:.0f} s: "
                    f"{', '.join(self._lease.node_ids)}",
                    fix="look at `ray status` for what holds them",
                )

    def _drop(self) -> None:
        """Free the nodes, whatever state the holder is in."""
        import ray

        holder, self._holder = self._holder, None
        group, self._group = self._group, None
        if holder is not None:
            with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
                ray.get(holder.release.remote(), timeout=HALT_S + 2.0)
            ray.kill(holder)
        if group is not None:
            ray.util.remove_placement_group(group)


class HeldJob:
    """One execution on held nodes (the port RunningJob)."""

    def __init__(self, bench: HeldBench, request: ExecutionRequest) -> None:
        self._bench = bench
        self._request = request
        self._began = time.monotonic()
        self._progress = Progress(0, None)
        self._result: ExecutionResult | None = None

    def wait(self, timeout_s: float | None = None) -> ExecutionResult | None:
        """The result, or None if `timeout_s` passed first; a lost node is outcome infra."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self._result is None:
            left = _SLICE_S if deadline is None else deadline - time.monotonic()
            self._poll(max(0.0, min(_SLICE_S, left)))
            if deadline is not None and time.monotonic() >= deadline:
                break
        return self._result

    def progress(self) -> Progress:
        """Live state as of now; one call of a few milliseconds."""
        if self._result is None:
            self._poll(0.0)
        return self._progress

    def stop(self) -> None:
        """Ask it to end; `wait` then gives outcome `stopped`. Does not block."""
        self._bench.ask_to_stop()

    def _poll(self, timeout_s: float) -> None:
        import ray

        try:
            polled = self._bench.poll(timeout_s)
        except ray.exceptions.RayError as error:
            self._result = lost(
                self._request.execution_id,
                Outcome.INFRA,
                f"the held nodes were lost: {cause_of(error)}",
                wall_s=time.monotonic() - self._began,
                nodes=self._bench.nodes,
            )
            self._bench.lose()
            return
        self._progress = Progress(polled["steps"], polled["step_time_s"])
        if polled["result"] is not None:
            self._result = unpack_result(polled["result"])


def _own_error(error: BaseException) -> UserError | None:
    """The error of ours inside what Ray raised, None if it is Ray's own."""
    seen: BaseException | None = error
    while seen is not None:
        cause = getattr(seen, "cause", None)
        if isinstance(cause, UserError) and not hasattr(cause, "cause"):
            return cause
        seen = cause if isinstance(cause, BaseException) and cause is not seen else None
    return None
