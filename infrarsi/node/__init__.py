"""Everything that runs on the node of an execution; importable without ray, torch or scipy."""

from infrarsi.node.execute import LocalJob, start
from infrarsi.node.inventory import local_node
from infrarsi.node.patience import Rules

__all__ = ["LocalJob", "Rules", "local_node", "start"]
