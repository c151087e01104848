"""The witness's record of one rank, as the harness received it.

The guest writes JSON lines (`infrarsi/witness/README.md` lists them); `infrarsi.node.collector`
stamps each with the harness's clock and turns them into these.
"""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One logical optimizer step: all from one boundary to the next.

    The boundary is the first training forward (or backward) after an optimizer stepped; evaluation,
    checkpointing and data loading between two steps therefore belong to the earlier one.

    `harness_s`: arrival of the boundary on the harness's clock, seconds since the command's start.
    `witness_s`: the same boundary on the guest's monotonic clock, seconds since the record opened.
    `event_s`: CUDA-event time of this step in seconds, None without CUDA.
    `loss`: sum of the losses given to backward in this step (None where not seen).
    `elements`: number of elements of each input tensor, by input name; `shapes`: how often each
    `name:dtype:shape` came. `digests`: for each input name the order-free sums (rows, elements)
    mod 2**64, only on close looks. `weights`: sampled parameter values after the step.
    `optimizer_calls`: how often each optimizer stepped. `skipped`: a GradScaler skipped the step.
    `compile_s`: what torch's compiler says that it took within this step.
    """

    index: int
    close_look: bool
    harness_s: float
    witness_s: float
    event_s: float | None = None
    loss: float | None = None
    forwards: int = 0
    backwards: int = 0
    samples: int = 0
    elements: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, tuple[int, int]] = field(default_factory=dict)
    weights: tuple[float, ...] = ()
    optimizer_calls: dict[str, int] = field(default_factory=dict)
    learning_rates: tuple[float, ...] = ()
    skipped: int = 0
    data_wait_s: float = 0.0
    compile_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    eval_calls: int = 0
    eval_samples: int = 0
    eval_losses: tuple[float, ...] = ()


@dataclass(frozen=True)
class RankRecord:
    """Everything one rank said; `sealed` only if its chain is whole and its end line came."""

    rank: int
    world_size: int
    pid: int
    sealed: bool
    head: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    optimizers: tuple[dict[str, Any], ...] = ()
    steps: tuple[StepRecord, ...] = ()
    end: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    oom: dict[str, Any] | None = None
    error: str | None = None
    outside_writes: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """Largest reserved device memory, or resident memory where there is no device."""
        value = self.end.get("peak_bytes")
        return int(value) if value is not None else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RankRecord":
        """The inverse of `to_dict`."""
        fields = dict(data)
        fields["steps"] = tuple(_step(step) for step in fields.get("steps", ()))
        for name in ("optimizers", "problems", "outside_writes"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)


def _step(data: dict[str, Any]) -> StepRecord:
    fields = dict(data)
    fields["digests"] = {k: (v[0], v[1]) for k, v in fields.get("digests", {}).items()}
    for name in ("weights", "learning_rates", "eval_losses"):
        fields[name] = tuple(fields.get(name, ()))
    return StepRecord(**fields)
