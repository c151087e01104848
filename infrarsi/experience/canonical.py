"""A job's own names and values in the words of the catalogue, and back."""

import math
from collections.abc import Mapping, Sequence

from infrarsi.contract import Dimension, DimensionKind, Scalar
from infrarsi.experience.pack import is_same
from infrarsi.families import catalogue


class Words:
    """The dimensions of one space by catalogue family.

    Of several dimensions of one family the first counts. What the catalogue does not know has no
    word: a knob's own name may be private, and would say nothing elsewhere.
    """

    def __init__(self, dimensions: Sequence[Dimension]) -> None:
        self.dimensions: dict[str, Dimension] = {}
        self._family: dict[str, str] = {}
        for dimension in dimensions:
            family = catalogue().get(dimension.family)
            if family is None or family.name in self.dimensions:
                continue
            if self._word(dimension, dimension.reference) is not None:
                self.dimensions[family.name] = dimension
                self._family[dimension.name] = family.name

    @property
    def reference(self) -> dict[str, Scalar]:
        """The job's own value of each family."""
        found = {name: self._word(d, d.reference) for name, d in self.dimensions.items()}
        return {name: value for name, value in found.items() if value is not None}

    def word(self, name: str, value: Scalar) -> tuple[str, Scalar] | None:
        """Family and canonical value of a dimension's value; None where there are none."""
        family = self._family.get(name)
        if family is None:
            return None
        found = self._word(self.dimensions[family], value)
        return None if found is None else (family, found)

    def changes(self, point: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """The canonical values of a point that are not the reference's."""
        found = {}
        for family, dimension in self.dimensions.items():
            value = point.get(dimension.name, dimension.reference)
            word = None if value == dimension.reference else self._word(dimension, value)
            if word is not None:
                found[family] = word
        return found

    def value(self, family: str, word: Scalar) -> Scalar | None:
        """The value of the family's dimension that means this; None where it offers none."""
        dimension = self.dimensions[family]
        for value in dimension.values:
            known = self._word(dimension, value)
            if known is not None and is_same(known, word):
                return value
        return None

    @staticmethod
    def _word(dimension: Dimension, value: Scalar) -> Scalar | None:
        family = catalogue()[dimension.family]
        if dimension.kind is DimensionKind.RECIPE:
            plain = family.plain if family.plain is not None else 0
            return family.recipe_value if value is True else plain
        if family.law == "doubling":
            return _number(value)
        word = family.canonical(value)
        return word if any(is_same(word, own) for own in family.values) else None


def _number(value: Scalar) -> int | float | None:
    """A number, also one that is written as a word (the value of a variable)."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) else number
