"""The Ray actor that holds nodes for a series of executions. Imports ray only when it is used."""

import time
from collections.abc import Sequence
from typing import Any

from infrarsi.contract import NodeInfo
from infrarsi.errors import ExternalError
from infrarsi.node.runner import Polled, place_runners, remove_runners


class NodeHolder:
    """Keeps one placement group and its node runners; nobody else gets the nodes meanwhile.

    If this actor dies, Ray removes the group and its runners, and their supervisors clear up.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._runners: list[tuple[str, Any, NodeInfo]] = []

    def hold(
        self,
        bundles: Sequence[dict[str, float]],
        selectors: Sequence[dict[str, str]],
        settings: str,
        timeout_s: float,
    ) -> tuple[NodeInfo, ...]:
        """Reserve the nodes and start their runners; raises ExternalError if that takes longer."""
        import ray

        began = time.monotonic()
        options: dict[str, Any] = {"strategy": "STRICT_SPREAD" if len(bundles) > 1 else "PACK"}
        if any(selectors):
            options["bundle_label_selector"] = [dict(selector) for selector in selectors]
        self._group = ray.util.placement_group([dict(bundle) for bundle in bundles], **options)
        if not self._group.wait(timeout_s):
            self.release()
            raise ExternalError(
                f"the nodes did not become free within {time.monotonic() - began:.0f} s",
                fix="look at `ray status` for what holds them",
            )
        self._runners = place_runners(self._group, range(len(bundles)), bundles, settings)
        return tuple(node for _, _, node in self._runners)

    def start(self, request: str) -> None:
        """Start a packed request on the held nodes."""
        import ray

        ray.get(self._runners[0][1].start.remote(request))

    def poll(self, timeout_s: float) -> Polled:
        """What the first node's runner says; see `NodeRunner.poll`."""
        import ray

        polled: Polled = ray.get(self._runners[0][1].poll.remote(timeout_s))
        return polled

    def stop(self) -> None:
        """Ask the execution under way to end."""
        for _, runner, _ in self._runners:
            runner.stop.remote()

    def release(self) -> None:
        """End what runs and free the nodes."""
        import ray

        remove_runners([runner for _, runner, _ in self._runners])
        self._runners = []
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None
