"""The Ray actor that holds nodes for a series of executions. Imports ray only when it is used."""

from collections.abc import Sequence
from typing import Any

from infrarsi.contract import NodeInfo
from infrarsi.node.runner import Polled, place_runners, remove_runners


class NodeHolder:
    """Keeps the node runners of one placement group; nobody else gets its nodes meanwhile.

    The group is its owner's, since one made here would outlive this actor (Ray 2.60). If this
    actor or the owner dies, the runners go, and their supervisors clear up.
    """

    def __init__(self) -> None:
        self._runners: list[tuple[str, Any, NodeInfo]] = []

    def hold(
        self, group: Any, bundles: Sequence[dict[str, float]], settings: str
    ) -> tuple[NodeInfo, ...]:
        """Start a runner in each bundle; raises ExternalError if one does not come up."""
        self._runners = place_runners(group, range(len(bundles)), bundles, settings)
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
        """End what runs; returns when its trees are gone."""
        remove_runners([runner for _, runner, _ in self._runners])
        self._runners = []
