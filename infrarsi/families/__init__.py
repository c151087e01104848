"""The knob-family catalogue: what a setting means on any stack, and what is believed of it."""

from infrarsi.families.catalogue import (
    Catalogue,
    Device,
    Family,
    Prior,
    Risk,
    Spelling,
    catalogue,
    normal_flag,
    read,
)
from infrarsi.families.dialects import (
    Dialect,
    StackSpelling,
    dialects,
    read_dialect,
    spelled,
)
from infrarsi.families.effects import UNKNOWN, dimensions, effects

__all__ = [
    "UNKNOWN",
    "Catalogue",
    "Device",
    "Dialect",
    "Family",
    "Prior",
    "Risk",
    "Spelling",
    "StackSpelling",
    "catalogue",
    "dialects",
    "dimensions",
    "effects",
    "normal_flag",
    "read",
    "read_dialect",
    "spelled",
]
