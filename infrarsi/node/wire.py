"""How requests and results travel through Ray: one text each.

Tune flattens, copies and stores nested dictionaries; a text passes unchanged, and compressed it
stays small in Tune's own state.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from infrarsi.contract import ExecutionRequest, ExecutionResult, NodeInfo, Outcome
from infrarsi.node.patience import Rules


@dataclass(frozen=True)
class RunnerSettings:
    """What every node runner of a session is told: its rules, and the user's own values of the
    variables that Ray changes (None on a cluster, where they are not known)."""

    rules: Rules = field(default_factory=Rules)
    own: Mapping[str, str | None] | None = None

    def to_text(self) -> str:
        """A JSON text."""
        return json.dumps({"rules": asdict(self.rules), "own": self.own})

    @classmethod
    def from_text(cls, text: str) -> "RunnerSettings":
        """The inverse of `to_text`."""
        data = json.loads(text)
        return cls(Rules(**data["rules"]), data["own"])

    def for_driver(self, pid: int) -> "RunnerSettings":
        """The same with the driver watched, where the runners are on its own machine."""
        if self.own is None:
            return self
        return replace(self, rules=replace(self.rules, watch=pid))


def pack_request(request: ExecutionRequest) -> str:
    """A request as text; begins with its `execution_id` in clear."""
    return f"{request.execution_id} {_pack(request.to_dict())}"


def unpack_request(text: str) -> ExecutionRequest:
    """The inverse of `pack_request`."""
    return ExecutionRequest.from_dict(_unpack(text.rpartition(" ")[2]))


def execution_id_of(text: str) -> str:
    """The id in a packed request."""
    return text.rpartition(" ")[0]


def pack_result(result: ExecutionResult) -> str:
    """A result as text."""
    return _pack(result.to_dict())


def unpack_result(text: str) -> ExecutionResult:
    """The inverse of `pack_result`."""
    return ExecutionResult.from_dict(_unpack(text))


def lost(
    execution_id: str,
    outcome: Outcome,
    reason: str,
    *,
    wall_s: float,
    nodes: tuple[NodeInfo, ...] = (),
) -> ExecutionResult:
    """The result of an execution whose own one never came."""
    return ExecutionResult(execution_id, outcome, reason, wall_s=wall_s, nodes=nodes)


def _pack(data: Mapping[str, Any]) -> str:
    return base64.b85encode(zlib.compress(json.dumps(data).encode(), 1)).decode()


def _unpack(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b85decode(text)))
    return data
