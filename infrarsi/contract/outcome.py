"""How an execution ended."""

from enum import StrEnum


class Outcome(StrEnum):
    """The end of one execution: a value, not an exception."""

    OK = "ok"
    OOM_GPU = "oom_gpu"
    OOM_HOST = "oom_host"
    CONFLICT = "conflict"
    PATCH_FAILED = "patch_failed"
    COMPILE_FAILED = "compile_failed"
    NUMERIC = "numeric"
    TIMEOUT = "timeout"
    USER_ERROR = "user_error"
    INFRA = "infra"
    STOPPED = "stopped"

    @property
    def sentence(self) -> str:
        """What happened, for a person."""
        return _SENTENCES[self]

    @property
    def counts_as_screen(self) -> bool:
        """Whether a launched search trial that ended so is charged to the screen budget."""
        return self not in (Outcome.INFRA, Outcome.PATCH_FAILED)


_SENTENCES = {
    Outcome.OK: "ran to the last requested optimizer step",
    Outcome.OOM_GPU: "ran out of GPU memory",
    Outcome.OOM_HOST: "ran out of host memory",
    Outcome.CONFLICT: "two settings do not work together",
    Outcome.PATCH_FAILED: "a patch did not apply exactly, so nothing was launched",
    Outcome.COMPILE_FAILED: "the compiler failed",
    Outcome.NUMERIC: "the loss or a gradient became NaN or infinite",
    Outcome.TIMEOUT: "did not reach its next optimizer step in time",
    Outcome.USER_ERROR: "the command failed by itself",
    Outcome.INFRA: "a node, an actor or the network failed; repeated at no charge",
    Outcome.STOPPED: "was stopped early",
}
