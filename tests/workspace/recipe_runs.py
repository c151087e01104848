"""What the recipe tests share: apply with the obligations checked, and run a tiny training job."""

import difflib
import textwrap
from collections.abc import Mapping
from typing import Any

import torch

from infrarsi.workspace.recipes.base import Applied, Declined, Recipe


def job(code: str) -> str:
    """A fixture's text without its indentation."""
    return textwrap.dedent(code).strip("\n") + "\n"


def applied(recipe: Recipe, files: Mapping[str, str]) -> dict[str, str]:
    """All files after the recipe, which must fit, be repeatable, and decline its own output."""
    result = recipe.apply(dict(files))
    assert isinstance(result, Applied), result
    assert result == recipe.apply(dict(files))
    assert result.notes
    assert all(files[path] != text for path, text in result.files.items())
    after = {**files, **result.files}
    again = recipe.apply(after)
    assert isinstance(again, Declined), again
    return after


def declined(recipe: Recipe, files: Mapping[str, str]) -> str:
    """The reason of a recipe that must not fit."""
    kept = dict(files)
    result = recipe.apply(kept)
    assert isinstance(result, Declined), result.notes
    assert kept == files
    return result.reason


def changed_lines(before: str, after: str) -> list[str]:
    """The lines of the diff, `-` and `+` first."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def run(code: str, **names: Any) -> dict[str, Any]:
    """The globals of a program after it ran in this process, from a fixed random state."""
    torch.manual_seed(0)
    scope: dict[str, Any] = {"__name__": "__main__", **names}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(compile(code, "train.py", "exec"), scope)
    return scope
