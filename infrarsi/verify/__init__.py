"""Is it the same job, and is it faster: the 16 invariants, and promotion by paired re-runs."""

from infrarsi.verify.evidence import Evidence, reference_evidence
from infrarsi.verify.judgement import coverage, judge
from infrarsi.verify.measurement import Measurement, measure
from infrarsi.verify.phases import phase_times
from infrarsi.verify.promotion import Pair, PairedComparison, Promotion, Rules, promotion_rules

__all__ = [
    "Evidence",
    "Measurement",
    "Pair",
    "PairedComparison",
    "Promotion",
    "Rules",
    "coverage",
    "judge",
    "measure",
    "phase_times",
    "promotion_rules",
    "reference_evidence",
]
