"""Several recipes as one patch."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infrarsi.contract import Patch, PatchOrigin
from infrarsi.workspace.patching import make
from infrarsi.workspace.recipes.base import Declined, Recipe


@dataclass(frozen=True)
class Combined:
    """All recipes fit: one patch, the whole new text of each changed file, and what was done."""

    patch: Patch
    files: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class NotCombined:
    """A recipe does not fit on what the ones before it left: which, and why."""

    recipe: str
    reason: str


def combine(recipes: Sequence[Recipe], files: Mapping[str, str]) -> Combined | NotCombined:
    """Run recipes in order, each on the tree that the ones before it left.

    Pure: the same recipes and files give the same patch, byte for byte. The result is checked to
    be Python still, and to touch no other files than the given ones.
    """
    tree = dict(files)
    notes: list[str] = []
    for recipe in recipes:
        answer = recipe.apply(tree)
        if isinstance(answer, Declined):
            return NotCombined(recipe.name, answer.reason)
        strange = sorted(answer.files.keys() - files.keys())
        if strange:
            return NotCombined(recipe.name, f"{strange[0]}: the recipe changed a file of its own")
        changed = {path for path, text in answer.files.items() if text != tree[path]}
        if not changed:
            return NotCombined(recipe.name, "the recipe changed nothing")
        tree.update(answer.files)
        broken = next((b for path in sorted(changed) if (b := _broken(path, tree[path]))), None)
        if broken is not None:
            return NotCombined(recipe.name, broken)
        notes += [f"{recipe.name}: {note}" for note in answer.notes]
    diff = make(files, tree)
    changes = {path: text for path, text in tree.items() if text != files[path]}
    if not changes:
        return NotCombined(recipes[-1].name if recipes else "", "the recipes undo one another")
    patch = Patch(tuple(recipe.name for recipe in recipes), diff, PatchOrigin.RECIPE)
    return Combined(patch, changes, tuple(notes))


def _broken(path: str, text: str) -> str | None:
    if not path.endswith(".py"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's own, such as an unknown escape
            compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        return f"{path}:{line}: the changed file is not Python any more: {error}"
    return None
