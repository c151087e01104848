"""What this version cannot honour, or what is not as the file says, is refused before it runs."""

from typing import Any

from infrarsi.cli.preferences import option_of
from infrarsi.contract import Project
from infrarsi.contract.files import LoadedProject
from infrarsi.errors import UserError


def insist_on_honoured(project: Project, file: LoadedProject) -> None:
    """Raise one UserError that names every setting that would have no effect.

    `project` is what `file` says, with the command line's values in place.
    """
    broken = [(path, text) for held, path, text in _conditions(project) if held]
    if not broken:
        return
    first = broken[0][0]
    given = _at(project, first) != _at(file.project, first)
    raise UserError(
        "this version cannot honour " + "; ".join(text for _, text in broken),
        where=f"command line, `{option_of('.'.join(first))}`" if given else file.place(*first),
        fix="remove the setting, or set it to a value that is supported",
    )


def insist_on_files(file: LoadedProject) -> None:
    """Raise UserError if an editable file is missing, or a frozen one is not what it was."""
    from infrarsi.workspace import differing

    for index, name in enumerate(file.project.editable):
        if not (file.root / name).is_file():
            raise UserError(
                f"the editable file {name!r} does not exist",
                where=file.place("editable", index),
                fix="correct the path, or remove it from `editable`",
            )
    for name in differing(file.root, file.project.frozen):
        exists = (file.root / name).is_file()
        raise UserError(
            f"the frozen file {name!r} "
            + ("has another SHA-256 than the one written here" if exists else "does not exist"),
            where=file.place("frozen", name),
            fix="put the file back, or draft the contract again with `infrarsi init --force`",
        )


def _at(project: Project, path: tuple[str, ...]) -> Any:
    value: Any = project
    for name in path:
        value = getattr(value, name)
    return value


def _conditions(project: Project) -> list[tuple[bool, tuple[str, ...], str]]:
    cluster, budget = project.cluster, project.search.budget
    return [
        (project.launch.nodes != 1, ("launch", "nodes"), "`launch.nodes` above 1"),
        (
            project.llm.backend != "none",
            ("llm", "backend"),
            f"`llm.backend: {project.llm.backend}` (only none)",
        ),
        (
            bool(project.requirements.text),
            ("requirements", "text"),
            "`requirements.text` in plain language",
        ),
        (project.debate.enabled, ("debate", "enabled"), "`debate.enabled`"),
        (
            budget.target_mfu is not None,
            ("search", "budget", "target_mfu"),
            "`search.budget.target_mfu`",
        ),
        (
            cluster.launcher == "train",
            ("cluster", "launcher"),
            "`cluster.launcher: train` (only auto or actors)",
        ),
        (
            cluster.parallel_trials not in ("auto", 1),
            ("cluster", "parallel_trials"),
            "`cluster.parallel_trials` above 1",
        ),
        (
            project.experience not in ("auto", "off") and project.search.searcher != "hypothesis",
            ("experience",),
            f"`experience` patterns with `searcher: {project.search.searcher}` (only hypothesis)",
        ),
    ]
