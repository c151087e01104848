"""What a recipe is: a deterministic transform of editable source files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Applied:
    """The recipe fits: `files` maps each changed project-relative path to its whole new text.

    `notes` says in one line each what was changed where (`model.py:41: ...`).
    """

    files: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declined:
    """The recipe does not fit, and why: one sentence with the place (`model.py:41: ...`)."""

    reason: str


class Recipe(Protocol):
    """A deterministic source transform with a knob family.

    `name` is the dimension's name in the search space, `family` its knob family, `title` a phrase
    for the report. `needs` names entries of `allow` that the contract must hold before it is
    offered (class J changes), empty for most.
    """

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def needs(self) -> tuple[str, ...]: ...

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """Transform the editable Python files (path to text), or say why not.

        Pure: same files, same answer; the files may carry other recipes' changes already. It must
        decline whenever it cannot be sure that the training job stays the same, never guess, and
        never raise for any input (a file that does not parse is a reason to decline). Applying it
        to its own output declines (`already ...`). Formatting of untouched code is kept.
        """
        ...
