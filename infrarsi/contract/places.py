"""Where in a job a setting lives."""

import re
from dataclasses import dataclass
from enum import StrEnum

from infrarsi.errors import UserError

Scalar = bool | int | float | str

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class PlaceKind(StrEnum):
    """The kinds of place that a setting can have in this version."""

    FLAG = "flag"  # an argument of the training program
    LAUNCHER = "launcher"  # an argument of the launcher (torchrun)
    ENV = "env"  # an environment variable
    PATH = "path"  # a file or folder of the project; sinks only
    CONFIG = "config"  # a value in a configuration file of the project


@dataclass(frozen=True, order=True)
class Place:
    """One place, written `kind:name`: `flag:--lr`, `env:OMP_NUM_THREADS`, `path:out`.

    `flag:--lr=` (`is_joined`) is a flag whose value must stand in the same word, behind `=`;
    `config:conf/train.yaml:optimizer.lr` is a key of a file.
    """

    kind: PlaceKind
    name: str
    is_joined: bool = False

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place that `text` names; raises UserError naming the kinds there are."""
        kind, colon, name = text.partition(":")
        if not colon or not name or kind not in set(PlaceKind):
            kinds = ", ".join(f"`{k}:...`" for k in PlaceKind)
            raise UserError(f"a place must be one of {kinds}, but got {text!r}")
        place = cls(PlaceKind(kind), name)
        if place.kind is PlaceKind.CONFIG and not (place.file and place.key):
            raise UserError(
                f"a `config:` place must be `config:FILE:KEY`, but got {text!r}",
                fix="write it as `config:conf/train.yaml:optimizer.lr`",
            )
        if place.kind is PlaceKind.FLAG and name.endswith("=") and name != "=":
            return cls(PlaceKind.FLAG, name[:-1], True)
        return place

    @property
    def file(self) -> str:
        """The file of a `config:` place, relative to the project; "" for another kind."""
        return self.name.partition(":")[0] if self.kind is PlaceKind.CONFIG else ""

    @property
    def key(self) -> str:
        """The key of a `config:` place in its file; "" for another kind."""
        return self.name.partition(":")[2] if self.kind is PlaceKind.CONFIG else ""

    @property
    def sink_folder(self) -> str:
        """The folder of a sink below an execution's sinks: `flag:--out-dir` gives `out-dir`."""
        return _UNSAFE.sub("_", self.name.strip("-/.")) or "sink"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}{'=' if self.is_joined else ''}"


@dataclass(frozen=True)
class PlaceChange:
    """What one value of a knob does: places to set (`True` sets a bare flag) and to remove."""

    set: tuple[tuple[Place, Scalar], ...] = ()
    remove: tuple[Place, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the job is left as it is."""
        return not self.set and not self.remove
