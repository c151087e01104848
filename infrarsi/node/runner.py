"""The Ray actor on a node: a thin shell around `execute`. Imports ray only when it is used."""

import contextlib
import os
import uuid
from collections.abc import Sequence
from typing import Any, TypedDict

from infrarsi.contract import NodeInfo
from infrarsi.errors import ExternalError
from infrarsi.node.environment import without_ray
from infrarsi.node.execute import LocalJob, start
from infrarsi.node.inventory import local_node
from infrarsi.node.wire import RunnerSettings, pack_result, unpack_request

READY_S = 60.0
"""How long a runner may take to come up in bundles that are already reserved."""
HALT_S = 3.0


class Polled(TypedDict):
    """What `poll` returns; `result` is a packed result once the execution has ended."""

    steps: int
    step_time_s: float | None
    result: str | None


class NodeRunner:
    """Runs executions on its node, one at a time; made an actor by `place_runners`."""

    def __init__(self, settings: str) -> None:
        self._settings = RunnerSettings.from_text(settings)
        self._base = without_ray(os.environ, self._settings.own)
        self._job: LocalJob | None = None

    def info(self) -> NodeInfo:
        """This node, with the GPUs that Ray placed here."""
        import ray

        context = ray.get_runtime_context()
        gpus = tuple(str(gpu) for gpu in context.get_accelerator_ids().get("GPU", []))
        return local_node(context.get_node_id(), gpus=gpus)

    def start(self, request: str) -> None:
        """Start a packed request; the one before must have ended."""
        self._job = start(
            unpack_request(request), self.info(), base=self._base, rules=self._settings.rules
        )

    def poll(self, timeout_s: float) -> Polled:
        """Progress, and the result if it came within `timeout_s`."""
        assert self._job is not None
        result = self._job.wait(timeout_s)
        progress = self._job.progress()
        return Polled(
            steps=progress.steps,
            step_time_s=progress.step_time_s,
            result=None if result is None else pack_result(result),
        )

    def stop(self) -> None:
        """Ask the execution under way to end."""
        if self._job is not None:
            self._job.stop()

    def halt(self) -> None:
        """End the execution under way and wait until its tree is gone, HALT_S at most."""
        if self._job is not None:
            self._job.stop()
            self._job.wait(HALT_S)


def place_runners(
    group: Any, bundles: Sequence[int], specs: Sequence[dict[str, float]], settings: str
) -> list[tuple[str, Any, NodeInfo]]:
    """One runner in each of those bundles of a placement group: name, handle and node.

    `specs` are the bundles' resources, which the runner takes whole. Raises ExternalError if one
    does not come up within READY_S.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    made: list[tuple[str, Any]] = []
    for index, spec in zip(bundles, specs, strict=True):
        name = f"infrarsi-runner-{uuid.uuid4().hex[:12]}"
        actor = ray.remote(NodeRunner).options(
            name=name,
            num_cpus=spec.get("CPU", 0),
            num_gpus=spec.get("GPU", 0),
            max_concurrency=4,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=index
            ),
        )
        made.append((name, actor.remote(settings)))
    try:
        nodes = ray.get([handle.info.remote() for _, handle in made], timeout=READY_S)
    except (ray.exceptions.RayError, TimeoutError) as error:
        remove_runners([handle for _, handle in made])
        raise ExternalError(f"a node runner did not start: {cause_of(error)}") from error
    return [(name, handle, node) for (name, handle), node in zip(made, nodes, strict=True)]


def remove_runners(handles: Sequence[Any]) -> None:
    """End what they run, then kill them; a runner that does not answer is killed all the same.

    The supervisor of a killed runner sees end-of-file and clears its tree within 2 s.
    """
    import ray

    with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
        ray.get([handle.halt.remote() for handle in handles], timeout=HALT_S + 1.0)
    for handle in handles:
        ray.kill(handle)


def cause_of(error: BaseException) -> str:
    """One line on why Ray lost something."""
    cause = getattr(error, "cause", None)
    source = cause if isinstance(cause, BaseException) else error
    lines = [line.strip() for line in str(source).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    detail = next((line for line in reversed(lines[1:]) if "worker" in line or "node" in line), "")
    return ": ".join(part for part in (type(source).__name__, text, detail) if part)[:400]
