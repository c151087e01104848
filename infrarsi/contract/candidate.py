"""What is tried: settings and patches, identified by their content."""

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from infrarsi.contract.places import Scalar
from infrarsi.contract.touch import Touch


class PatchOrigin(StrEnum):
    """Who made a patch."""

    RECIPE = "recipe"
    PACK = "pack"
    LLM = "llm"


@dataclass(frozen=True)
class Patch:
    """A change to editable files as one unified diff (`a/`, `b/` prefixes, project-relative).

    `names` lists the recipes (or hypotheses) that it consists of, in the order applied; `touches`
    is what its changed lines have to do with, and says nothing about what the patch is.
    """

    names: tuple[str, ...]
    diff: str
    origin: PatchOrigin = PatchOrigin.RECIPE
    touches: tuple[Touch, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return {
            "names": list(self.names),
            "diff": self.diff,
            "origin": str(self.origin),
            "touches": [touch.to_dict() for touch in self.touches],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Patch":
        """The inverse of `to_dict`."""
        touches = tuple(Touch.from_dict(entry) for entry in data.get("touches", ()))
        return cls(tuple(data["names"]), data["diff"], PatchOrigin(data["origin"]), touches)


@dataclass(frozen=True)
class Candidate:
    """Settings (knob name to value, reference values left out) and at most one combined patch.

    Recipes re-run on the already patched tree and are stored as one diff, so a set of recipes is
    one `Patch` whose `names` keeps the set and its order.
    """

    settings: MappingProxyType[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    patch: Patch | None = None

    @classmethod
    def of(
        cls, settings: dict[str, Scalar] | None = None, patch: Patch | None = None
    ) -> "Candidate":
        """A candidate from an ordinary dictionary."""
        return cls(MappingProxyType(dict(sorted((settings or {}).items()))), patch)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        return Candidate.of, (dict(self.settings), self.patch)

    @cached_property
    def id(self) -> str:
        """Content hash, 12 hexadecimal digits; `reference` for the untouched job."""
        if self.is_reference:
            return "reference"
        text = json.dumps(
            [list(self.settings.items()), self.patch.diff if self.patch else ""], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def is_reference(self) -> bool:
        """Whether this is the job as the user has it."""
        return not self.settings and self.patch is None

    @property
    def patch_names(self) -> tuple[str, ...]:
        """The recipes in the patch, in order."""
        return self.patch.names if self.patch else ()

    def describe(self) -> str:
        """One line for a person: `micro_batch=8 + sdpa_attention`."""
        parts = [f"{name}={value}" for name, value in self.settings.items()]
        return " + ".join([*parts, *self.patch_names]) or "the job as it is"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return {
            "settings": dict(self.settings),
            "patch": self.patch.to_dict() if self.patch else None,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Candidate":
        """The inverse of `to_dict`."""
        patch = data.get("patch")
        return cls.of(data["settings"], Patch.from_dict(patch) if patch else None)
