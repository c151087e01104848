"""Journal to REPORT.md and result.json; computes no statistic."""

from infrarsi.report.markdown import report
from infrarsi.report.recipes import recipe_rows, repeated_notes
from infrarsi.report.result import SCHEMA, result
from infrarsi.report.warnings import noise_warning, planned_note

__all__ = [
    "SCHEMA",
    "noise_warning",
    "planned_note",
    "recipe_rows",
    "repeated_notes",
    "report",
    "result",
]
