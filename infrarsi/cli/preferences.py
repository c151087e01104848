"""The command line's values in place of those of infrarsi.yaml."""

from typing import Any

from infrarsi.cli.options import Preferences
from infrarsi.contract import Launch, Project
from infrarsi.errors import UserError

_OPTIONS = {
    "search.budget.screens": "--screens",
    "search.budget.wall_hours": "--max-wallclock",
    "search.budget.gpu_hours": "--gpu-hours",
    "search.budget.target_speedup": "--target-speedup",
    "search.searcher": "--searcher",
    "search.seed": "--seed",
    "invariants.loss_tolerance": "--tolerance",
    "cluster.address": "--ray-address",
    "llm.backend": "--llm",
    "experience": "--experience",
}
_BACKEND_NAMES = {"claude": "claude-cli", "codex": "codex-cli"}


def with_preferences(project: Project, preferences: Preferences) -> Project:
    """The project with the command line's values in place of the file's.

    Raises UserError naming the option whose value cannot be.
    """
    data = project.model_dump(by_alias=True)
    budget, search = data["search"]["budget"], data["search"]
    given: list[tuple[dict[str, Any], str, object]] = [
        (budget, "screens", preferences.screens),
        (budget, "wall_hours", preferences.wall_hours),
        (budget, "gpu_hours", preferences.gpu_hours),
        (budget, "target_speedup", preferences.target_speedup),
        (search, "searcher", preferences.searcher),
        (search, "seed", preferences.seed),
        (data["invariants"], "loss_tolerance", preferences.tolerance),
        (data["cluster"], "address", preferences.ray_address),
        (data, "experience", preferences.experience),
    ]
    for section, key, value in given:
        if value is not None:
            section[key] = value
    if preferences.llm is not None:
        backend, _, model = preferences.llm.partition(":")
        data["llm"].update(backend=_BACKEND_NAMES.get(backend, backend), model=model or None)
    return _validated(data)


def check(preferences: Preferences) -> None:
    """Raise UserError for a value that no project could have, before anything is read or made."""
    with_preferences(Project(schema="infrarsi-project-v1", name="any", launch=_ANY), preferences)


_ANY = Launch(command="any")


def option_of(path: str) -> str:
    """The option that stands for a dotted path of infrarsi.yaml, the path itself if none does."""
    return _OPTIONS.get(path, path)


def _validated(data: dict[str, Any]) -> Project:
    from pydantic import ValidationError

    try:
        return Project.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        option = option_of(".".join(str(part) for part in first["loc"]))
        if option == "--llm":
            raise UserError(
                f"`--llm` is {first['input']!r}, but this version searches without a language "
                "model: only `none` works",
                where="command line",
                fix="leave it out, or give `--llm none`",
            ) from None
        wanted = first["msg"].removeprefix("Input should be ")
        raise UserError(
            f"`{option}` is {first['input']!r}, but must be {wanted}",
            where="command line",
            fix="give another value, or leave it out to take that of infrarsi.yaml",
        ) from None
