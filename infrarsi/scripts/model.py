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
class TrainingCommand:
    """The command that starts training.

    `launcher` is `torchrun`, `python -m torch.distributed.run`, `accelerate launch`, `deepspeed`
    or `python`. `entry` is the program's path (or module, if `is_module`) after expansion and
    `entry_raw` as written; `script` is its path relative to the project, None where that cannot be
    known or lies outside. `cwd` is the folder it runs in, likewise. `environment` is what the
    script itself gives it. `repeated` is true inside a loop or a function that is called twice.
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
