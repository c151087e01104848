"""Recipes one after the other become one patch, or a reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from infrarsi.workspace.patching import apply
from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.combine import Combined, NotCombined, combine

FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}


@dataclass(frozen=True)
class Replacing:
    """A recipe that replaces one text in one file."""

    name: str
    path: str
    old: str
    new: str
    family: str = "test"
    title: str = "replace a text"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        text = files.get(self.path, "")
        if self.old not in text:
            return Declined(f"{self.path}: no {self.old!r}")
        return Applied({self.path: text.replace(self.old, self.new)}, (f"{self.path}:1: changed",))


FIRST = Replacing("first", "a.py", "x = 1", "x = 2")
SECOND = Replacing("second", "a.py", "x = 2", "x = 3")
OTHER = Replacing("other", "b.py", "y", "z")


def test_recipes_run_on_the_already_patched_tree() -> None:
    found = combine([FIRST, SECOND, OTHER], FILES)
    assert isinstance(found, Combined)
    assert found.files == {"a.py": "x = 3\n", "b.py": "z = 1\n"}
    assert found.patch.names == ("first", "second", "other")
    assert found.notes[0] == "first: a.py:1: changed"
    assert apply(found.patch.diff, FILES) == found.files


def test_the_same_recipes_give_the_same_patch() -> None:
    assert combine([FIRST, OTHER], FILES) == combine([FIRST, OTHER], dict(FILES))
    assert FILES == {"a.py": "x = 1\n", "b.py": "y = 1\n"}


def test_a_recipe_that_declines_is_named_with_its_reason() -> None:
    assert combine([SECOND], FILES) == NotCombined("second", "a.py: no 'x = 2'")


def test_a_recipe_that_breaks_the_syntax_is_not_used() -> None:
    found = combine([Replacing("broken", "a.py", "1", "(")], FILES)
    assert isinstance(found, NotCombined)
    assert found.reason.startswith("a.py:1: the changed file is not Python any more")


def test_a_recipe_that_changes_nothing_is_not_used() -> None:
    found = combine([Replacing("idle", "a.py", "x", "x")], FILES)
    assert found == NotCombined("idle", "the recipe changed nothing")


def test_recipes_that_undo_one_another_are_no_patch() -> None:
    found = combine([FIRST, Replacing("back", "a.py", "x = 2", "x = 1")], FILES)
    assert found == NotCombined("back", "the recipes undo one another")


def test_a_recipe_may_not_add_a_file() -> None:
    class Adding(Replacing):
        def apply(self, files: Mapping[str, str]) -> Applied | Declined:
            return Applied({"new.py": "x = 1\n"})

    found = combine([Adding("adding", "a.py", "", "")], FILES)
    assert isinstance(found, NotCombined)
    assert found.reason.startswith("new.py:")
