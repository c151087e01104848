"""Is it the same job, and is it faster: the 16 invariants, and promotion by paired re-runs."""

from infrarsi.verify.checkpoints import to_resume_from
from infrarsi.verify.evidence import Evidence, reference_evidence
from infrarsi.verify.judgement import coverage, judge
from infrarsi.verify.longer import judge_longer
from infrarsi.verify.measurement import Measurement, measure
from infrarsi.verify.phases import phase_times
from infrarsi.verify.promotion import Pair, PairedComparison, Promotion, Rules, promotion_rules
from infrarsi.verify.resumption import judge_resumed

__all__ = [
    "Evidence",
    "Measurement",
    "Pair",
    "PairedComparison",
    "Promotion",
    "Rules",
    "coverage",
    "judge",
    "judge_longer",
    "judge_resumed",
    "measure",
    "phase_times",
    "promotion_rules",
    "reference_evidence",
    "to_resume_from",
]
