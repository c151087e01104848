"""The witness's record of one rank, as the harness received it.

The guest writes JSON lines (`infrarsi/witness/README.md` lists them); `infrarsi.node.collector`
stamps each with the harness's clock and turns them into these.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

_TUPLES = (
    "optimizers",
    "problems",
    "outside_writes",
    "models",
    "settings",
    "weights",
    "companions",
    "states",
    "precision",
)


@dataclass(frozen=True)
class StepRecord:
    """One logical optimizer step: all from one boundary to the next.

    The boundary is the first training forward (or backward) after an optimizer stepped; evaluation,
    checkpointing and data loading between two steps therefore belong to the earlier one.

    `harness_s`: arrival of the boundary on the harness's clock, seconds since the command's start.
    `witness_s`: the same boundary on the guest's monotonic clock, seconds since the record opened.
    `event_s`: seconds by CUDA events since the step before this one that has them (close looks and
    the last step of a rank do, without CUDA none).
    `loss`: sum of the losses given to backward in this step (None where not seen).
    `elements`: number of elements of each input tensor, by input name; `shapes`: how often each
    `name:dtype:shape` came. `digests`: for each input name the order-free sums (rows, elements)
    mod 2**64, only on close looks. `weights`: sampled parameter values after the step, on close
    looks and the last step.
    `optimizer_calls`: how often each optimizer stepped. `skipped`: a GradScaler skipped the step.
    `compile_s`: what torch's compiler says that it took within this step.

    Empty where they were not seen: `gradients` (audit): parameter to [norm, projection] of the
    gradient that the optimizer is given, after clipping and unscaling, None where it has none; of
    the local part for parameters that the model line calls `sharded`.
    `matmul_dtypes` (close looks): dtypes of the matrix products in the autograd graph, compiled
    parts left out. `random` (close looks): device to how far training forwards moved a CUDA
    generator's offset, for the CPU 0 or a number above 1 that tells what its state is now (1 in
    older records); with `backward:` in front likewise for backward passes.
    `dropout_calls` (audit): functional dropout calls by probability, compiled ones left out.
    `sketches` (close looks): of floating inputs, order-free sums that rounding hardly moves: rows,
    rows times the unit of rounding, then sums over rows. `eval_digests`, `eval_sketches` (close
    looks): the same of evaluation forwards. `eval_outputs` (audit): norm of the floating outputs of
    each of the first evaluation forwards.
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
    gradients: dict[str, list[float] | None] = field(default_factory=dict)
    matmul_dtypes: tuple[str, ...] = ()
    random: dict[str, float] = field(default_factory=dict)
    dropout_calls: dict[str, int] = field(default_factory=dict)
    eval_digests: dict[str, tuple[int, int]] = field(default_factory=dict)
    eval_outputs: tuple[float, ...] = ()
    sketches: dict[str, tuple[float, ...]] = field(default_factory=dict)
    eval_sketches: dict[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RankRecord:
    """Everything one rank said; `sealed` only if its chain is whole and its end line came.

    The tuples of dicts are lines as the guest sent them; its README lists their fields. `models`:
    every trained model (`model` is the first). `settings`: scalars of a parameter group that differ
    from what was last said. `weights`: per tensor [norm, projection] at the start and the end of an
    audit. `companions`: weights kept beside the trained model. `states`: optimizer state by key.
    `precision`: autocast, dtypes and matrix-product flags, first after step 1 and then when they
    change. All are empty in records of older versions, and where nothing was seen.
    """

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
    models: tuple[dict[str, Any], ...] = ()
    settings: tuple[dict[str, Any], ...] = ()
    weights: tuple[dict[str, Any], ...] = ()
    companions: tuple[dict[str, Any], ...] = ()
    states: tuple[dict[str, Any], ...] = ()
    precision: tuple[dict[str, Any], ...] = ()

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
        for name in _TUPLES:
            fields[name] = tuple(fields.get(name, ()))
        if not fields["models"] and fields.get("model"):
            fields["models"] = (fields["model"],)
        return cls(**fields)


def _step(data: dict[str, Any]) -> StepRecord:
    fields = dict(data)
    for name in ("digests", "eval_digests"):
        fields[name] = {k: (v[0], v[1]) for k, v in fields.get(name, {}).items()}
    for name in ("sketches", "eval_sketches"):
        fields[name] = {k: tuple(v) for k, v in fields.get(name, {}).items()}
    for name in ("weights", "learning_rates", "eval_losses", "matmul_dtypes", "eval_outputs"):
        fields[name] = tuple(fields.get(name, ()))
    return StepRecord(**fields)
