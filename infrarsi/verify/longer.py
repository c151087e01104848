"""The winner's longer confirmation: one run each of the reference and the candidate."""

from infrarsi.contract import ExecutionResult, Project, Verdict
from infrarsi.verify.evidence import Evidence
from infrarsi.verify.judgement import judge


def judge_longer(
    evidence: Evidence,
    reference: ExecutionResult,
    candidate: ExecutionResult,
    project: Project,
    optimizer_steps: int,
) -> Verdict:
    """All 16 checks of a longer timed run against a reference run of the same length.

    The bands are those of the calibration, as far beyond its last step as they grow.
    """
    workload = project.workload.model_copy(update={"optimizer_steps": optimizer_steps})
    longer = project.model_copy(update={"workload": workload})
    return judge(Evidence((reference,), evidence.audit, evidence.perturbed), candidate, longer)
