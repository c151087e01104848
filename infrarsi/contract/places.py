"""Where in a job a setting lives."""

from dataclasses import dataclass
from enum import StrEnum

from infrarsi.errors import UserError

Scalar = bool | int | float | str


class PlaceKind(StrEnum):
    """The kinds of place that a setting can have in this version."""

    FLAG = "flag"  # an argument of the training program
    LAUNCHER = "launcher"  # an argument of the launcher (torchrun)
    ENV = "env"  # an environment variable
    PATH = "path"  # a file or folder of the project; sinks only


@dataclass(frozen=True, order=True)
class Place:
    """One place, written `kind:name`: `flag:--lr`, `env:OMP_NUM_THREADS`, `path:out`."""

    kind: PlaceKind
    name: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place that `text` names; raises UserError naming the kinds there are."""
        kind, colon, name = text.partition(":")
        if not colon or not name or kind not in set(PlaceKind):
            kinds = ", ".join(f"`{k}:...`" for k in PlaceKind)
            raise UserError(f"a place must be one of {kinds}, but got {text!r}")
        return cls(PlaceKind(kind), name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True)
class PlaceChange:
    """What one value of a knob does: places to set (`True` sets a bare flag) and to remove."""

    set: tuple[tuple[Place, Scalar], ...] = ()
    remove: tuple[Place, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the job is left as it is."""
        return not self.set and not self.remove
