"""Points around a few others, valued by what changes: a neighbour differs in one dimension.

What is linear in the features changes by one row a setting, so the features of a neighbour are
never made and it costs O(r) instead of O(P r).

Notation: k rows with V neighbours each, V the settings; P features; r columns of a right-hand side.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchers.features import Codes, Coding, Floats, Products


class Near:
    """The points that differ in one dimension from one of `rows` (k, d): `codes` (k V, d).

    For each row in turn one a setting: the row with that setting, or without it where it has it.
    `dimension` (V,) is the one that differs, `hot` (k, V) the settings of the rows.
    """

    def __init__(self, coding: Coding, rows: Codes) -> None:
        self.rows = rows
        self.hot = coding.one_hot(rows)
        self.dimension = coding.of_setting
        k, settings = self.hot.shape
        # The place of the setting that the row has in the dimension of each setting; V: none.
        self._own = coding.place[np.arange(rows.shape[1]), rows][:, self.dimension]
        self.codes: Codes = np.repeat(rows, settings, axis=0)
        put_on = np.where(self.hot > 0.0, coding.reference[self.dimension], coding.code_of_setting)
        self.codes[np.arange(k * settings), np.tile(self.dimension, k)] = put_on.ravel()
        self._crowded = [np.flatnonzero(own < settings) for own in self._own]
        # The neighbours in which one setting replaces another: row, the new and the old one.
        row, new = np.nonzero((self._own < settings) & (self.hot == 0.0))
        self.replacing = row, new, self._own[row, new]

    def __len__(self) -> int:
        return len(self.codes)

    def linear(self, here: Floats, added: Floats, removed: Floats | None = None) -> Floats:
        """A function of the points, (k V,), from `here` (k,), its values at the rows.

        `added` (k, V) is what each setting, put on over the reference's value, adds there,
        `removed` what goes with it, `added` if not given.
        """
        padded = np.zeros((len(added), added.shape[1] + 1))
        padded[:, :-1] = added if removed is None else removed
        less = np.take_along_axis(padded, self._own, axis=1)
        moved = here[:, None] + np.where(self.hot > 0.0, 0.0, added) - less
        return np.asarray(moved.ravel(), dtype=np.float64)

    def move(self, j: int, added: NDArray[Any], here: NDArray[Any]) -> None:
        """The same for row `j` and r functions at once, in place.

        `added` (V, r) has `here` (r,) in it, on the way in and on the way out.
        """
        crowded, on = self._crowded[j], np.flatnonzero(self.hot[j])
        replaced = added[on] - here
        added[crowded] -= replaced[np.searchsorted(on, self._own[j, crowded])]
        added[on] = here - replaced


class Projection:
    """features @ `right` (P, r) of the points around others, in the precision of `right`."""

    def __init__(self, products: Products, right: NDArray[Any]) -> None:
        self._products = products
        self._right = right
        self._num_mixed = products.mix.shape[1]
        self._alone = products.mix.astype(right.dtype) @ right[: self._num_mixed]

    def around(self, near: Near) -> Iterator[NDArray[Any]]:
        """(V, r) for each row of `near` in turn.

        The array is used again for the next row.
        """
        features = self._products.features(near.hot)
        heres = features.astype(self._right.dtype) @ self._right
        alive, added = self._products.added(features)
        added = added.astype(self._right.dtype)
        right = self._right[self._num_mixed + alive]
        moved = np.empty_like(self._alone)
        for j, here in enumerate(heres):
            np.matmul(added[j].T, right, out=moved)
            moved += self._alone
            moved += here
            near.move(j, moved, here)
            yield moved


class Quadratic:
    """f' C f of the points around others, f their features and C (P, P) symmetric."""

    def __init__(self, products: Products, matrix: Floats) -> None:
        self._products = products
        self._matrix = matrix
        mixed, all_features = products.mix.shape[1], products.num_features
        self._of_products = matrix[mixed:all_features, mixed:all_features]
        self._between = matrix[mixed:all_features, :mixed] @ products.mix.T
        self._alone = products.mix @ matrix[:mixed, :mixed] @ products.mix.T

    def around(self, near: Near, start: Floats) -> Floats:
        """The values at the neighbours, (k V,), of their features less `start` (P,).

        Where C has more rows and columns than there are features, those are 0.
        """
        features = self._products.features(near.hot)
        alive, added = self._products.added(features)
        apart = np.tile(-start, (len(features), 1))
        apart[:, : features.shape[1]] += features
        gradient = apart @ self._matrix
        mix = self._products.mix
        slope = gradient[:, : mix.shape[1]] @ mix.T
        slope += np.matmul(gradient[:, None, :][:, :, mix.shape[1] + alive], added)[:, 0]
        between = self._between[alive]
        inner = np.matmul(self._of_products[np.ix_(alive, alive)], added) + between
        square = np.diagonal(self._alone) + (added * (inner + between)).sum(axis=1)
        here = (apart * gradient).sum(axis=1)
        found = near.linear(here, 2.0 * slope + square, 2.0 * slope - square)
        # A setting that replaces another of its dimension also has a product with that one.
        row, new, old = near.replacing
        cross = self._alone[new, old] + (added[row, :, new] * inner[row, :, old]).sum(axis=1)
        cross += (added[row, :, old] * between[:, new].T).sum(axis=1)
        found[row * len(mix) + new] -= 2.0 * cross
        return np.maximum(found, 0.0)


def level(products: Products, weights: Floats, near: Near) -> Floats:
    """features @ `weights` (P,) of the neighbours, (k V,)."""
    features = products.features(near.hot)
    return near.linear(features @ weights, products.added_levels(features, weights))


Points = Codes | Near
