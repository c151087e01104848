"""One execution: what is asked of a launcher, and what comes back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from infrarsi.contract.outcome import Outcome
from infrarsi.contract.record import RankRecord

SINKS_TOKEN = "@INFRARSI_SINKS@"
"""Stands in an overlay for the execution's own folder of sinks; the node puts the path in."""
CHECKPOINT_TOKEN = "@CHECKPOINT@"
"""Stands in an overlay for the checkpoint that a run resumes from; the node puts the path in."""
CHECKPOINT_DIR_TOKEN = "@CHECKPOINT_DIR@"
"""Likewise, for the folder that the checkpoint lies in."""


class RunKind(StrEnum):
    """What an execution is for.

    All kinds carry the same hooks and environment names, so that a job cannot tell them apart.
    `perturbed` is an audit run of the reference whose initial weights are moved by one unit in the
    last place: it measures how far rounding alone takes the losses. `plain` is a command that is
    not the job (the user's own tests): it has no witness, and exit code 0 is ok.
    """

    TIMED = "timed"
    AUDIT = "audit"
    PERTURBED = "perturbed"
    PLAIN = "plain"


class Purpose(StrEnum):
    """What an execution is charged to."""

    REFERENCE = "reference"
    SEARCH = "search"
    VERIFICATION = "verification"


@dataclass(frozen=True)
class SnapshotRef:
    """An immutable copy of the project: `root/tree` holds the files, `root/links.json` the links.

    `digest` is the content hash; `name` the folder name that the copy gets.
    """

    digest: str
    root: str
    name: str


@dataclass(frozen=True)
class Overlay:
    """How a candidate's copy differs from the snapshot.

    `files`: project-relative POSIX path to its whole new text. `remove`: paths that must not be
    there (old contents of sinks). `env`: variables to set for the command; `unset_env`: to remove.
    `command`: run by `bash -c` in the copy. Values may hold `SINKS_TOKEN`.
    """

    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    unset_env: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExecutionRequest:
    """All that a node needs to run one candidate once.

    `receipt_dir` is made by the launcher and is this execution's alone. `cache_dir` holds compile
    caches, shared between executions. `optimizer_steps` ends the run when `ends_by` is witness.
    `witness_key` (hex) chooses the close looks and is given over the socket, never the environment.
    `frozen`: path to `sha256:...`, checked before and after. `slower_than_s`: stop early once the
    median of at least 8 steady steps is above it; None never.

    `keep_checkpoints`: what the run leaves in its sinks is kept, in `checkpoints/` of the receipt.
    `resume_from` is such a folder of an earlier execution: what is in it is put back into the
    sinks, or, where `checkpoint` names a file in it, laid beside the copy for CHECKPOINT_TOKEN.
    """

    execution_id: str
    kind: RunKind
    snapshot: SnapshotRef
    overlay: Overlay
    receipt_dir: str
    cache_dir: str
    optimizer_steps: int
    ends_by: str
    witness_key: str
    nodes: int = 1
    gpus_per_node: int = 0
    start_timeout_s: float = 600.0
    timeout_s: float = 3600.0
    frozen: Mapping[str, str] = field(default_factory=dict)
    env_pass: tuple[str, ...] = ()
    slower_than_s: float | None = None
    keep_checkpoints: bool = False
    resume_from: str | None = None
    checkpoint: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ExecutionRequest":
        """The inverse of `to_dict`."""
        fields = dict(data)
        fields["kind"] = RunKind(fields["kind"])
        fields["snapshot"] = SnapshotRef(**fields["snapshot"])
        overlay = dict(fields["overlay"])
        overlay["remove"] = tuple(overlay.get("remove", ()))
        overlay["unset_env"] = tuple(overlay.get("unset_env", ()))
        fields["overlay"] = Overlay(**overlay)
        fields["env_pass"] = tuple(fields.get("env_pass", ()))
        return cls(**fields)


@dataclass(frozen=True)
class NodeInfo:
    """Where it ran."""

    node_id: str
    hostname: str
    cpus: int
    gpus: tuple[str, ...] = ()
    gpu_name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class ExecutionResult:
    """What one execution did; the launcher never raises for what the job did.

    `command_s` is the wall time of the user's command alone, `wall_s` the whole execution from
    receiving the request to returning this. `reason` is one sentence. `frozen_changed` lists frozen
    files whose digest differs after the run. `log_tail` ends the captured output (stdout.log in the
    receipt folder has all of it). `leftover` names processes that had to be killed afterwards.
    `peak_at_least_bytes`: lower bound of the memory needed, for an out-of-memory run.
    `printed`: numbers that the job printed, by label: `[step, value, line of stdout.log]` each, in
    the order of the log (`infrarsi.node.printed`). `checkpoints`: for each checkpoint that the run
    left, by its path below the sinks, what is in it (`infrarsi.node.checkpoints`).
    """

    execution_id: str
    outcome: Outcome
    reason: str
    kind: RunKind = RunKind.TIMED
    exit_code: int | None = None
    ranks: tuple[RankRecord, ...] = ()
    nodes: tuple[NodeInfo, ...] = ()
    command_s: float = 0.0
    wall_s: float = 0.0
    started_at: float = 0.0
    frozen_changed: tuple[str, ...] = ()
    log_tail: str = ""
    leftover: tuple[str, ...] = ()
    peak_at_least_bytes: int | None = None
    printed: dict[str, list[list[float]]] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int | None:
        """The largest peak of any rank."""
        peaks = [rank.peak_bytes for rank in self.ranks if rank.peak_bytes is not None]
        return max(peaks) if peaks else None

    @property
    def crashed_at_exit(self) -> bool:
        """The command failed although every rank had sealed its record.

        Threads of torch's own (gloo's, say) now and then abort a process that is already leaving;
        the next run of the same job ends well.
        """
        return (
            self.outcome is Outcome.USER_ERROR
            and self.exit_code not in (0, None)
            and bool(self.ranks)
            and all(rank.sealed and rank.error is None for rank in self.ranks)
        )

    @property
    def device_s(self) -> float:
        """Charged time: seconds times GPUs; a node without a GPU counts as one device."""
        return self.wall_s * (sum(max(1, len(node.gpus)) for node in self.nodes) or 1)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ExecutionResult":
        """The inverse of `to_dict`."""
        fields = dict(data)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["kind"] = RunKind(fields["kind"])
        fields["ranks"] = tuple(RankRecord.from_dict(rank) for rank in fields["ranks"])
        fields["nodes"] = tuple(
            NodeInfo(**{**node, "gpus": tuple(node.get("gpus", ()))}) for node in fields["nodes"]
        )
        fields["frozen_changed"] = tuple(fields["frozen_changed"])
        fields["leftover"] = tuple(fields["leftover"])
        return cls(**fields)
