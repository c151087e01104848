"""Where executions run: Ray sessions, leases of nodes, benches and the search loop.

Driver side only; what runs on a node lives in `infrarsi.node`. Importing this imports no ray.
"""

from launchers.interrupts import Interrupts
from launchers.nodes import ClusterNode, Lease, NodePool
from launchers.session import RaySession
from launchers.tune_loop import TuneLoop
from launchers.verification import HeldBench

__all__ = [
    "ClusterNode",
    "HeldBench",
    "Interrupts",
    "Lease",
    "NodePool",
    "RaySession",
    "TuneLoop",
]
