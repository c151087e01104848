"""What Ray Tune runs as a trial: it waits for one execution on the runners of its own bundles.

Importing this imports ray.tune.
"""

from typing import Any

import ray
from ray.tune import Trainable

from infrarsi.errors import ExternalError
from infrarsi.node.runner import cause_of, place_runners, remove_runners

POLL_S = 0.5


class ExecutionTrainable(Trainable):  # type: ignore[misc]  # ray.tune is untyped here
    """One trial is one execution; the actor and its node runners are reused by the next trial.

    The configuration has `request` (packed), `settings` and `bundles` (the resources of bundles
    1, 2, ... of the trial's placement group; bundle 0 is this actor's). Every result has
    `execution_id`, `runner`, `steps` and `step_time_s`; the last one has `result` (packed) and
    `done`. Raises only if a node runner is lost, which ends this actor and frees its nodes.
    """

    _runners: list[tuple[str, Any, Any]]
    _starting: Any
    _execution_id: str

    def setup(self, config: dict[str, Any]) -> None:
        """Make the runners, then start."""
        self._runners = []
        group = ray.util.get_current_placement_group()
        bundles = config["bundles"]
        self._runners = place_runners(
            group, range(1, len(bundles) + 1), bundles, config["settings"]
        )
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next trial's execution on the same runners."""
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Live progress, or the result with `done`; waits POLL_S at most."""
        name, runner, _ = self._runners[0]
        try:
            if self._starting is not None:
                ray.get(self._starting)
                self._starting = None
            polled = ray.get(runner.poll.remote(POLL_S))
        except ray.exceptions.RayError as error:
            raise ExternalError(f"the node runner was lost: {cause_of(error)}") from None
        answer = {
            "execution_id": self._execution_id,
            "runner": name,
            "steps": polled["steps"],
            "step_time_s": polled["step_time_s"],
            "done": polled["result"] is not None,
        }
        if polled["result"] is not None:
            answer["result"] = polled["result"]
        return answer

    def cleanup(self) -> None:
        """End what runs and free the nodes."""
        remove_runners([runner for _, runner, _ in self._runners])

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: an execution cannot be resumed, only repeated."""

    def _begin(self, config: dict[str, Any]) -> None:
        self._execution_id = config["request"].rpartition(" ")[0]
        self._starting = self._runners[0][1].start.remote(config["request"])
