"""What a launcher owes the campaign."""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from infrarsi.contract import ExecutionRequest, ExecutionResult


@dataclass(frozen=True)
class Progress:
    """A running job's live state: finished optimizer steps and the median of the steady ones."""

    steps: int
    step_time_s: float | None


class RunningJob(Protocol):
    """One execution under way."""

    def wait(self, timeout_s: float | None = None) -> ExecutionResult | None:
        """The result, or None if `timeout_s` passed first. Never raises for what the job did."""
        ...

    def progress(self) -> Progress:
        """Live state; does not block."""
        ...

    def stop(self) -> None:
        """Ask it to end; `wait` then returns a result with outcome `stopped`. Does not block."""
        ...


class Bench(Protocol):
    """Nodes held for a series of executions, one at a time: the reference's runs, and pairs.

    While it is held nothing else runs on its nodes. A context manager: leaving it stops what runs
    and frees the nodes, whatever happened.
    """

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes that are held, in rank order."""
        ...

    def start(self, request: ExecutionRequest) -> RunningJob:
        """Start one execution; raises ExternalError if the nodes are lost for good."""
        ...

    def __enter__(self) -> "Bench": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class SearchLoop(Protocol):
    """Runs trials until the search is over (Ray Tune, in this project)."""

    def run(
        self,
        *,
        suggest: Callable[[], ExecutionRequest | None],
        is_over: Callable[[], bool],
        on_result: Callable[[ExecutionResult], None],
        on_progress: Callable[[str, Progress], bool],
    ) -> None:
        """Run until `is_over()`.

        All four are called from the driver's thread, none may block for more than about 0.1 s.
        `suggest` gives the next execution, or None while there is none yet. `on_result` gets each
        result once, before the next `suggest`. `on_progress(execution_id, progress)` about once a
        second; False stops that execution. After `is_over()` becomes true everything that runs is
        stopped, its results are delivered (outcome `stopped`), and the nodes are free on return.
        """
        ...
