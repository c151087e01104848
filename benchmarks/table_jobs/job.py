"""What a job is to the measurement: knobs, sizes, and a function that trains."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

Scalar = str | int | float | bool
Settings = Mapping[str, Scalar]
WARM_UP = 2
TIMED = 3
UPDATES = WARM_UP + TIMED


@dataclass(frozen=True)
class Knob:
    """One knob: a catalogue family, its values and the reference.

    `apart`: measured at the reference of all other knobs alone, outside the product.
    `env`: the environment variable that holds it, "default" and False leaving it unset; read when
    a process starts, so each value has processes of its own.
    """

    name: str
    family: str
    values: tuple[Scalar, ...]
    reference: Scalar
    apart: bool = False
    env: str | None = None


@dataclass(frozen=True)
class Sizes:
    """The model and the data; `samples` are those of one update over all ranks."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    sequence: int
    samples: int
    experts: int = 0

    def workload(self) -> dict[str, int]:
        """These sizes under the names of a table's header."""
        return {
            "sequence_length": self.sequence,
            "samples_per_update": self.samples,
            "layers": self.layers,
            "width": self.width,
            "vocabulary": self.vocabulary,
            "experts": self.experts,
        }


@dataclass
class Run:
    """One configuration while it is measured, in one rank."""

    sizes: Sizes
    device: str  # "cuda" (this rank's GPU is the current one) or "cpu"
    rank: int = 0
    ranks: int = 1
    params: int = 0
    static_bytes: int = 0
    stamps: list[float] = field(default_factory=list)

    def stamp(self) -> None:
        """To be called at the end of every update: waits for the device and notes the time."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        self.stamps.append(time.perf_counter())

    def step_s(self) -> float:
        """The median of the timed updates."""
        ends = self.stamps[WARM_UP - 1 :]
        return statistics.median(b - a for a, b in pairwise(ends))

    def holds(self, model: Any) -> None:
        """Note the parameters of a model and the bytes of them, their gradients and Adam's states.

        Sharded parameters count as what this rank holds of them; all are float32.
        """
        own = 0
        for p in model.parameters():
            self.params += p.numel()
            own += (p.to_local() if hasattr(p, "to_local") else p).numel()
        self.static_bytes = 16 * own


@dataclass(frozen=True)
class Job:
    """A job that can be measured: `train(settings, run)` makes `UPDATES` updates, a stamp each."""

    name: str
    stack: str
    sizes: Sizes
    tiny: Sizes
    capacity_gib: float
    knobs: tuple[Knob, ...]
    train: Callable[[Settings, Run], None]
    ranks: int = 1
    packages: tuple[str, ...] = ("torch",)

    @property
    def reference(self) -> dict[str, Scalar]:
        """The reference settings."""
        return {k.name: k.reference for k in self.knobs}

    def product(self) -> Iterator[dict[str, Scalar]]:
        """Every combination of the knobs that are not measured apart, with those at reference."""
        inside = [k for k in self.knobs if not k.apart]
        for values in product(*(k.values for k in inside)):
            yield self.reference | dict(zip((k.name for k in inside), values, strict=True))

    def environment(self, settings: Settings) -> dict[str, str]:
        """The environment variables that a process of these settings needs."""
        return {
            k.env: "1" if settings[k.name] is True else str(settings[k.name])
            for k in self.knobs
            if k.env is not None and settings[k.name] not in ("default", False)
        }
