"""One thing that a program can be told, whichever library reads it."""

from dataclasses import dataclass, field

from infrarsi.configs.constants import Unknown
from infrarsi.contract import Scalar

BARE_ACTIONS = ("store_true", "store_false")


@dataclass(frozen=True)
class Definition:
    """One argument (or, with `is_env`, one variable of the environment) that a program reads.

    `kind` is int, float, str, bool (a word such as `true`), truthy (`type=bool` of argparse, for
    which every word but the empty one is true), or other. `action` is `store`, `store_true`,
    `store_false`, `optional` (`--x` and `--no-x`), or another name of argparse.
    `system` is the library that reads it. `negatives` are the flags that switch it off, `words`
    how it takes no and yes. `is_joined`: its value must be written in the same word (`--x=1`).
    `command` is the sub-command that it belongs to; `is_before_command`: it must stand before one.
    """

    names: tuple[str, ...]
    dest: str
    place: str
    kind: str = "str"
    action: str = "store"
    default: Scalar | Unknown | None = None
    choices: tuple[Scalar, ...] = ()
    help: str = ""
    is_env: bool = False
    system: str = "argparse"
    negatives: tuple[str, ...] = ()
    words: tuple[Scalar, Scalar] = ("false", "true")
    is_joined: bool = False
    command: str = ""
    is_before_command: bool = False

    @property
    def flag(self) -> str:
        """The name to write it with: the longest, of `--x` and `-x` the former."""
        return max(self.names, key=lambda name: (name.startswith("--"), len(name)))

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.action in (*BARE_ACTIONS, "optional")

    @property
    def negative(self) -> str:
        """The flag that switches it off."""
        return self.negatives[0] if self.negatives else f"--no-{self.flag.lstrip('-')}"


@dataclass
class Found:
    """What was read of a program's arguments.

    `unknowns` are places where arguments are made that cannot be read, each with its reason.
    `is_open`: there may be more arguments than `definitions` has.
    """

    definitions: list[Definition] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    is_open: bool = False

    def add(self, other: "Found") -> None:
        """What another reader found, behind what is here."""
        self.definitions += other.definitions
        self.unknowns += other.unknowns
        self.is_open = self.is_open or other.is_open

    def miss(self, place: str, why: str) -> None:
        """Note an argument, or a parser, that cannot be read."""
        self.unknowns.append(f"{place}: {why}")
        self.is_open = True
