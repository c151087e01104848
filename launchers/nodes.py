"""Leases: whole nodes, each to one holder at a time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.errors import ExternalError

_LAG_S = 3.0  # Ray's view of a node's free resources lags behind; measured: up to 1 s
_HEAD = "node:__internal_head__"


@dataclass(frozen=True)
class ClusterNode:
    """One node as Ray knows it; `is_idle` if nothing holds a GPU (without GPUs: a CPU) of it."""

    node_id: str
    hostname: str
    cpus: float
    gpus: float
    is_head: bool
    is_idle: bool


@dataclass(frozen=True)
class Lease:
    """Whole nodes in rank order; `is_pinned` if the holder must get exactly these."""

    nodes: tuple[ClusterNode, ...]
    is_pinned: bool

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Ray's ids, in rank order."""
        return tuple(node.node_id for node in self.nodes)

    def bundles(self) -> list[dict[str, float]]:
        """Resources that take each node whole: all its GPUs, or all its CPUs if it has none."""
        return [
            {"GPU": node.gpus, "CPU": min(1.0, node.cpus)} if node.gpus else {"CPU": node.cpus}
            for node in self.nodes
        ]

    def selectors(self) -> list[dict[str, str]]:
        """Labels that pin each bundle to its node, empty where it makes no difference."""
        return [{"ray.io/node-id": node.node_id} if self.is_pinned else {} for node in self.nodes]


class NodePool:
    """The nodes of the running Ray, and which of them this process has given away."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def nodes(self) -> tuple[ClusterNode, ...]:
        """All living nodes, those with most GPUs first, then by id."""
        import ray

        # Ray 2.60 has no public call for what is free on each node.
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
        found = []
        for node in ray.nodes():
            if not node["Alive"]:
                continue
            has, node_id = node["Resources"], node["NodeID"]
            left = free.get(node_id, {})
            kind = "GPU" if has.get("GPU") else "CPU"
            found.append(
                ClusterNode(
                    node_id=node_id,
                    hostname=node["NodeManagerHostname"],
                    cpus=has.get("CPU", 0.0),
                    gpus=has.get("GPU", 0.0),
                    is_head=_HEAD in has,
                    is_idle=left.get(kind, 0.0) >= has.get(kind, 0.0) > 0,
                )
            )
        return tuple(sorted(found, key=lambda node: (-node.gpus, node.node_id)))

    def idle(self, gpus_per_node: int = 0) -> tuple[ClusterNode, ...]:
        """Nodes that nobody holds and that have the GPUs."""
        return tuple(node for node in self._free(gpus_per_node) if node.is_idle)

    def lease(
        self, count: int = 1, *, gpus_per_node: int = 0, node_ids: Sequence[str] = ()
    ) -> Lease:
        """`count` idle nodes, or exactly `node_ids`; raises ExternalError naming what there is."""
        wanted = set(node_ids)
        idle = self._settled(len(wanted) or count, gpus_per_node, wanted)
        if node_ids:
            by_id = {node.node_id: node for node in idle}
            missing = [node_id for node_id in node_ids if node_id not in by_id]
            if missing:
                raise ExternalError(
                    f"node {missing[0]} is not idle or not alive any more; idle are "
                    f"{sorted(by_id) or 'none'}",
                    fix="look at `ray status` for what holds it",
                )
            chosen = tuple(by_id[node_id] for node_id in node_ids)
        else:
            chosen = idle[:count]
            if len(chosen) < count:
                raise ExternalError(
                    f"{count} idle nodes with at least {gpus_per_node} GPUs are needed, but there "
                    f"are {len(idle)} of {len(self.nodes())}",
                    fix="wait for nodes to become free, or lower `launch.nodes`",
                )
        self._taken.update(node.node_id for node in chosen)
        return Lease(chosen, is_pinned=len(self.nodes()) > 1)

    def _free(self, gpus_per_node: int) -> list[ClusterNode]:
        """Nodes with the GPUs that this process has not given away."""
        return [
            node
            for node in self.nodes()
            if node.node_id not in self._taken and node.gpus >= gpus_per_node
        ]

    def _settled(self, count: int, gpus_per_node: int, wanted: set[str]) -> tuple[ClusterNode, ...]:
        """The idle nodes, given time to become so while that could still serve the request."""
        deadline = time.monotonic() + _LAG_S
        while True:
            free = [n for n in self._free(gpus_per_node) if not wanted or n.node_id in wanted]
            idle = tuple(node for node in free if node.is_idle)
            if len(idle) >= count or len(free) < count or time.monotonic() > deadline:
                return idle
            time.sleep(0.05)

    def release(self, lease: Lease) -> None:
        """Give the nodes of a lease back; its holder must have freed them in Ray."""
        self._taken.difference_update(lease.node_ids)
