"""What one changed line has to do with: a finding of the audit of patches."""

from dataclasses import dataclass
from typing import Any

AREAS = (
    "data",
    "loss",
    "optimizer",
    "schedule",
    "timing",
    "logging",
    "checkpoint",
    "evaluation",
    "randomness",
    "precision",
    "distributed",
    "process",
)
"""The areas of a training job whose change a reviewer looks at, in the order they are told."""


@dataclass(frozen=True)
class Touch:
    """One changed line and its areas (of `AREAS`, in their order).

    `line` counts in the new file, for a `removed` line in the old one; `text` is the line without
    its indentation.
    """

    path: str
    line: int
    areas: tuple[str, ...]
    text: str
    removed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """A JSON-encodable form."""
        return {
            "path": self.path,
            "line": self.line,
            "areas": list(self.areas),
            "text": self.text,
            "removed": self.removed,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Touch":
        """The inverse of `to_dict`."""
        return cls(
            data["path"],
            data["line"],
            tuple(data["areas"]),
            data["text"],
            data.get("removed", False),
        )
