"""When the launcher ends a command by itself: a pure rule over live progress."""

from dataclasses import dataclass

from infrarsi.contract import ExecutionRequest
from infrarsi.node.collector import WitnessProgress
from infrarsi.node.outcomes import Ending


@dataclass(frozen=True)
class Rules:
    """How an execution is conducted.

    `grace_s`: between SIGTERM and SIGKILL. A job that makes no optimizer step for the larger of
    `stall_s` and `stall_factor` step times hangs. `min_steady_steps`: before an early stop.
    `log_bytes`: kept of the output. `keep_sinks`: leave what the job wrote in the receipt.
    `watch`: a process of this machine whose end also ends the command; the driver of a local Ray,
    whose workers take up to 5 s to notice.
    """

    grace_s: float = 1.0
    stall_s: float = 60.0
    stall_factor: float = 30.0
    min_steady_steps: int = 8
    log_bytes: int = 50 << 20
    keep_sinks: bool = False
    watch: int | None = None


class Patience:
    """The time limits of one execution; times are seconds since the command's start."""

    def __init__(self, request: ExecutionRequest, rules: Rules) -> None:
        self._request = request
        self._rules = rules
        self._steps = 0
        self._moved_s = 0.0

    def lost(self, now_s: float, progress: WitnessProgress) -> tuple[Ending, str] | None:
        """Why the command must end now, with one sentence, or None; to be asked in time order."""
        if progress.steps != self._steps:
            self._steps, self._moved_s = progress.steps, now_s
        if now_s > self._request.timeout_s:
            return Ending.TIMEOUT, (
                f"it did not end within {self._request.timeout_s:g} s (`launch.timeout_s`); "
                f"{self._steps} of {self._request.optimizer_steps} optimizer steps were made"
            )
        if self._steps == 0:
            return self._not_started(now_s, progress)
        return self._stalled(now_s, progress) or self._slower(progress)

    def overdue(self, now_s: float) -> tuple[Ending, str] | None:
        """Likewise for a command that is not the job: only the whole time is limited."""
        if now_s <= self._request.timeout_s:
            return None
        return Ending.TIMEOUT, f"it did not end within {self._request.timeout_s:g} s"

    def _not_started(self, now_s: float, progress: WitnessProgress) -> tuple[Ending, str] | None:
        limit = self._request.start_timeout_s
        if now_s <= limit:
            return None
        seen = (
            f"{progress.ranks} processes had begun to train"
            if progress.ranks
            else ("no process had begun to train")
        )
        return Ending.START_TIMEOUT, (
            f"no optimizer step within {limit:g} s (`launch.start_timeout_s`); {seen}"
        )

    def _stalled(self, now_s: float, progress: WitnessProgress) -> tuple[Ending, str] | None:
        asked = self._request.optimizer_steps
        done = self._steps >= asked
        if done and self._request.ends_by == "job":
            return None  # its evaluation and checkpoint at the end are only bound by timeout_s
        limit = max(self._rules.stall_s, self._rules.stall_factor * (progress.step_time_s or 0.0))
        if now_s - self._moved_s <= limit:
            return None
        if done:
            return Ending.STALL, (
                f"it did not end within {limit:.0f} s after its last requested optimizer step"
            )
        step = f"{progress.step_time_s:.3g} s" if progress.step_time_s else "not known"
        return Ending.STALL, (
            f"no optimizer step for {limit:.0f} s after step {self._steps} of {asked} "
            f"(a step takes {step})"
        )

    def _slower(self, progress: WitnessProgress) -> tuple[Ending, str] | None:
        limit = self._request.slower_than_s
        if limit is None or progress.steady_steps < self._rules.min_steady_steps:
            return None
        if progress.step_time_s is None or progress.step_time_s <= limit:
            return None
        return Ending.SLOWER, (
            f"stopped early: its steps take {progress.step_time_s:.4g} s "
            f"(median of {progress.steady_steps}), the limit is {limit:.4g} s"
        )
