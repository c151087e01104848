"""What is read out of a launch script."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Argument:
    """One argument of the program (or one option of the launcher).

    `name` is the flag as written (`--lr`, `-b`), the key of a `key=value` word, or "" for a
    positional. `value` is its value after the shell's expansion, True for a flag without a value,
    and None where it cannot be known from the script; then `expression` is what stands in the way.
    `raw` is the text as written, `line` counts from 1. `condition` names the place that decides
    whether the argument is passed at all ("" when it always is).
    """

    name: str
    value: str | Literal[True] | None
    raw: str
    line: int
    static: bool
    expression: str = ""
    condition: str = ""


@dataclass(frozen=True)
class Assignment:
    """The last assignment of a variable: `value` is None where it cannot be known.

    `elements` holds the values of an array (`value` is then None); `exported` tells whether the
    training command sees it in its environment.
    """

    name: str
    value: str | None
    raw: str
    line: int
    exported: bool
    elements: tuple[str | None, ...] | None = None


@dataclass(frozen=True)
class Write:
    """A place that the script itself writes to; `by` is `>`, `>>`, `tee`, `mkdir`, `rm`, ...

    `target` is None where it cannot be known. Reached or not, every write is listed.
    """

    target: str | None
    raw: str
    line: int
    by: str


@dataclass(frozen=True)
class Mount:
    """A folder of the host as a container sees it, both as the script gives them."""

    host: str
    inside: str
    is_read_only: bool = False


@dataclass(frozen=True)
class Wrapping:
    """A command that starts the launcher (`srun`, `docker run`, `ssh`), outermost first.

    `options` are its names without dashes and values, None where a value cannot be known;
    `operands` an image or a host. `is_container`: what follows runs in a container.
    """

    name: str
    kind: str
    options: tuple[tuple[str, str | None], ...]
    operands: tuple[str | None, ...]
    line: int
    is_container: bool = False
    word: str | None = None  # the command as it is written, perhaps with its path

    def option(self, *names: str) -> str | None:
        """The value of the last option of one of these names, None where it is not known."""
        return next((value for name, value in reversed(self.options) if name in names), None)

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(name in names for name, _ in self.options)


@dataclass(frozen=True)
class ScriptCall:
    """Another script that a script runs: `bash inner.sh a b`; None is what cannot be known."""

    path: str | None
    arguments: tuple[str | None, ...]
    environment: Mapping[str, "Assignment"]
    cwd: str | None
    line: int
    wrappings: tuple[Wrapping, ...] = ()
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class TrainingCommand:
    """The command that starts training.

    `launcher` is `torchrun`, `python -m torch.distributed.run`, `accelerate launch`, `deepspeed`
    or `python`. `entry` is the program's path (or module, if `is_module`) after expansion and
    `entry_raw` as written; `script` is its path relative to the project, None where that cannot be
    known or lies outside. `cwd` is the folder it runs in, likewise. `environment` is what the
    script itself gives it. `repeated` is true inside a loop or a function that is called twice.
    `wrappings` are the commands in front of the launcher, `mounts` what its container sees.
    """

    launcher: str
    launcher_options: tuple[Argument, ...]
    entry: str | None
    entry_raw: str
    script: str | None
    is_module: bool
    arguments: tuple[Argument, ...]
    line: int
    environment: Mapping[str, Assignment] = field(default_factory=dict)
    cwd: str | None = "."
    repeated: bool = False
    wrappings: tuple[Wrapping, ...] = ()
    mounts: tuple[Mount, ...] = ()

    @property
    def container(self) -> Wrapping | None:
        """The command that puts the training into a container."""
        return next((w for w in self.wrappings if w.is_container), None)

    def argument(self, name: str) -> Argument | None:
        """The program's argument of that name; the last one, if it is given several times."""
        return next((a for a in reversed(self.arguments) if a.name == name), None)

    def option(self, name: str) -> Argument | None:
        """The launcher's option of that name, `-` and `_` being the same."""
        wanted = option_key(name)
        options = reversed(self.launcher_options)
        return next((a for a in options if option_key(a.name) == wanted), None)


def option_key(name: str) -> str:
    """A launcher option's name without the difference between `-` and `_`."""
    return name.lstrip("-").replace("_", "-")
