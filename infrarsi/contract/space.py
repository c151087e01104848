"""The space that a proposer searches: one dimension a knob, one a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infrarsi.contract.constraints import Constraint
from infrarsi.contract.places import Scalar

Point = dict[str, Scalar]
"""A value for every dimension of a space, by name; keys in the order of the dimensions."""


class DimensionKind(StrEnum):
    """What a dimension changes."""

    KNOB = "knob"
    RECIPE = "recipe"  # values False (reference) and True


@dataclass(frozen=True)
class Effect:
    """Prior belief on what a value does against the reference value.

    `log_time`: change of log step time, mean and standard deviation (negative is faster).
    `log_memory`: change of log activation memory, likewise. `one_off_s`: extra start-up cost, cold.
    `failure_odds`: how many times likelier than others the value is to make a trial fail.
    """

    log_time: float = 0.0
    log_time_sd: float = 0.03
    log_memory: float = 0.0
    log_memory_sd: float = 0.15
    one_off_s: float = 0.0
    failure_odds: float = 1.0


@dataclass(frozen=True)
class Dimension:
    """One searchable setting: `values[i]` has the prior `effects[i]`; the reference's is zero.

    `fault_signs`: regular expressions (case does not matter) that the text of a failure matches
    when this setting is likely to be behind it.
    """

    name: str
    family: str
    kind: DimensionKind
    values: tuple[Scalar, ...]
    reference: Scalar
    effects: tuple[Effect, ...]
    fault_signs: tuple[str, ...] = ()

    def effect(self, value: Scalar) -> Effect:
        """The prior effect of a value."""
        return self.effects[self.values.index(value)]


@dataclass(frozen=True)
class Space:
    """All dimensions, the constraints among them, and the facts that the models start from.

    `derived` holds `world` and `data_parallel`. `memory_limit_bytes` is what one device offers to
    the job (on a CPU: resident memory of the node); `static_memory_bytes` is the part of it that
    no setting changes (parameters, gradients, optimizer states); None where they are not known.
    """

    dimensions: tuple[Dimension, ...]
    constraints: tuple[Constraint, ...] = ()
    derived: tuple[tuple[str, int], ...] = ()
    planned_steps: int = 10_000
    memory_limit_bytes: int | None = None
    static_memory_bytes: int | None = None

    @property
    def reference(self) -> Point:
        """The job as the user has it."""
        return {d.name: d.reference for d in self.dimensions}

    def dimension(self, name: str) -> Dimension:
        """The dimension of that name."""
        return next(d for d in self.dimensions if d.name == name)

    def is_valid(self, point: Mapping[str, Scalar]) -> bool:
        """Whether every value is one of its dimension's and every constraint holds."""
        names: dict[str, Any] = dict(self.derived)
        for dimension in self.dimensions:
            value = point.get(dimension.name)
            if value is None or value not in dimension.values:
                return False
            names[dimension.name] = value
            names[dimension.family] = value
        return all(constraint.holds(names) for constraint in self.constraints)

    def size(self) -> int:
        """Number of points, constraints left out."""
        size = 1
        for dimension in self.dimensions:
            size *= len(dimension.values)
        return size


def point_key(point: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """A hashable form of a point, whatever the order of its keys."""
    return tuple(sorted((name, value) for name, value in point.items()))
