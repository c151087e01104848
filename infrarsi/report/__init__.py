"""Journal to REPORT.md and result.json; computes no statistic."""

from infrarsi.report.markdown import report
from infrarsi.report.result import SCHEMA, result

__all__ = ["SCHEMA", "report", "result"]
