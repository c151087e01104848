"""What this version cannot honour is refused before anything runs, never passed over."""

from infrarsi.contract import Project
from infrarsi.errors import UserError


def insist_on_honoured(project: Project, where: str) -> None:
    """Raise one UserError that names every setting of the file that would have no effect."""
    broken = [text for held, text in _conditions(project) if held]
    if broken:
        raise UserError(
            "this version cannot honour: " + "; ".join(broken),
            where=where,
            fix="remove the setting, or set it to the value that is supported",
        )


def _conditions(project: Project) -> list[tuple[bool, str]]:
    verify, cluster, budget = project.verify, project.cluster, project.search.budget
    bitwise = "bitwise" in (project.invariants.numerics, verify.numerics)
    return [
        (project.stack != "native-ddp", f"`stack: {project.stack}` (only native-ddp)"),
        (project.launch.nodes != 1, "`launch.nodes` above 1"),
        (project.llm.backend != "none", f"`llm.backend: {project.llm.backend}` (only none)"),
        (bool(project.requirements.text), "`requirements.text` in plain language"),
        (project.debate.enabled, "`debate.enabled`"),
        (bitwise, "`numerics: bitwise` (only banded)"),
        (project.invariants.precision is not None, "`invariants.precision`"),
        (project.invariants.memory_cap_gib is not None, "`invariants.memory_cap_gib`"),
        (bool(verify.user_tests), "`verify.user_tests`"),
        (verify.resume_check is True, "`verify.resume_check: true`"),
        (verify.long_steps != "auto", "`verify.long_steps`"),
        (budget.target_mfu is not None, "`search.budget.target_mfu`"),
        (cluster.launcher == "train", "`cluster.launcher: train` (only auto or actors)"),
        (cluster.parallel_trials not in ("auto", 1), "`cluster.parallel_trials` above 1"),
        (project.experience not in ("auto", "off"), "`experience` patterns (only auto or off)"),
    ]
