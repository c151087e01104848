"""A bench on this machine alone, without Ray."""

from collections.abc import Mapping

from infrarsi.contract import ExecutionRequest, NodeInfo
from infrarsi.node.execute import LocalJob, start
from infrarsi.node.inventory import local_node
from infrarsi.node.patience import Rules

_END_S = 5.0


class LocalBench:
    """The port Bench over `execute`: this machine is its one node, nothing reserves it."""

    def __init__(
        self,
        *,
        base: Mapping[str, str] | None = None,
        rules: Rules = Rules(),  # noqa: B008  # frozen
        node: NodeInfo | None = None,
    ) -> None:
        """`base` is the user's environment, by default this process's."""
        self._base = base
        self._rules = rules
        self._node = node or local_node()
        self._job: LocalJob | None = None

    @property
    def node_ids(self) -> tuple[str, ...]:
        """This machine."""
        return (self._node.node_id,)

    def start(self, request: ExecutionRequest) -> LocalJob:
        """Start one execution; the one before must have ended."""
        self._job = start(request, self._node, base=self._base, rules=self._rules)
        return self._job

    def __enter__(self) -> "LocalBench":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._job is not None:
            self._job.stop()
            self._job.wait(_END_S)
