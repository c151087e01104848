"""Points as numbers: codes, one-hot values, and the columns of the linear models."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import Dimension, Effect, Point, Scalar, Space

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

SLOPE_SHARE = 0.8  # part of an ordered dimension's prior variance that its values share
PAIR_SHARE = 1 / 3  # a pair's prior sd, as a part of the smaller of its two effects
MIN_PAIR_SD = 0.02  # pairs that can hardly matter are left out
MAX_PAIRS = 80
MIN_KEPT = 32


class Coding:
    """Points of one space as rows of integers, and back.

    Notation: n points, d dimensions, V values that are not a dimension's reference.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.dimensions = space.dimensions
        self._hot = Last()
        self._index = [{v: i for i, v in enumerate(d.values)} for d in self.dimensions]
        self.reference: Codes = np.array(
            [index[d.reference] for index, d in zip(self._index, self.dimensions, strict=True)],
            dtype=np.int64,
        )
        self.settings: list[tuple[int, int]] = [
            (i, code)
            for i, d in enumerate(self.dimensions)
            for code in range(len(d.values))
            if code != self.reference[i]
        ]
        places = np.array(self.settings, dtype=np.int64).reshape(-1, 2)
        self.of_setting, self.code_of_setting = places[:, 0], places[:, 1]
        # The place in `settings` of each value of each dimension, V for the reference's.
        most = max((len(d.values) for d in self.dimensions), default=0)
        self.place = np.full((len(self.dimensions), most), len(self.settings), dtype=np.int64)
        self.place[self.of_setting, self.code_of_setting] = np.arange(len(self.settings))

    def encode(self, point: Mapping[str, Scalar]) -> Codes | None:
        """The codes of a point, shape (d,); None where it is not a point of this space."""
        if len(point) != len(self.dimensions):
            return None
        codes = [
            index.get(point.get(d.name, ""), -1)
            for index, d in zip(self._index, self.dimensions, strict=True)
        ]
        return None if -1 in codes else np.array(codes, dtype=np.int64)

    def decode(self, codes: Iterable[int]) -> Point:
        """The point of one row of codes."""
        return {d.name: d.values[int(c)] for d, c in zip(self.dimensions, codes, strict=True)}

    def one_hot(self, codes: Codes) -> Floats:
        """Which non-reference values each of the points has, shape (n, V)."""
        return self._hot.of(codes, self._one_hot)

    def _one_hot(self, codes: Codes) -> Floats:
        return np.asarray(codes[:, self.of_setting] == self.code_of_setting, dtype=np.float64)


class Grown:
    """Rows of numbers, (n, width), that more are put behind."""

    def __init__(self, width: int, dtype: type = np.float64) -> None:
        self._buffer: NDArray[Any] = np.empty((MIN_KEPT, width), dtype=dtype)
        self._count = 0

    @property
    def rows(self) -> NDArray[Any]:
        """Those so far; they do not change when more follow."""
        return self._buffer[: self._count]

    def append(self, more: NDArray[Any]) -> None:
        """Put rows (m, width) behind."""
        count = self._count + len(more)
        if count > len(self._buffer):
            larger = np.empty((2 * count, self._buffer.shape[1]), dtype=self._buffer.dtype)
            larger[: self._count] = self.rows
            self._buffer = larger
        self._buffer[self._count : count] = more
        self._count = count


def starts_with(rows: NDArray[Any], first: NDArray[Any]) -> bool:
    """Whether `first` are the first of `rows`."""
    return len(first) <= len(rows) and np.array_equal(rows[: len(first)], first)


Many = TypeVar("Many", bound=Sized)


class Last:
    """The last large result of a function of points, which several models ask for in turn."""

    def __init__(self) -> None:
        self._kept: tuple[object, Floats] | None = None

    def of(self, codes: Many, make: Callable[[Many], Floats]) -> Floats:
        """make(codes), made once for the same object."""
        if self._kept is not None and self._kept[0] is codes:
            return self._kept[1]
        made = make(codes)
        if len(codes) >= MIN_KEPT:
            self._kept = (codes, made)
        return made


class Products:
    """Features: the one-hot values mixed by `mix` (V, B), then products of `pairs` of the mixed.

    The first V columns of `mix` leave the values as they are. The two of a pair never belong to
    the same dimension.
    """

    def __init__(self, mix: Floats, pairs: Sequence[tuple[int, int]]) -> None:
        self.mix = mix
        self._left, self._right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self.num_features = mix.shape[1] + len(pairs)
        self._mix_left = np.ascontiguousarray(mix.T[self._left])
        self._mix_right = np.ascontiguousarray(mix.T[self._right])

    def features(self, hot: Floats) -> Floats:
        """Those of points with these one-hot values (n, V), (n, P)."""
        values, mixed = self.mix.shape
        features = np.empty((len(hot), self.num_features))
        features[:, :values] = hot
        np.matmul(hot, self.mix[:, values:], out=features[:, values:mixed])
        np.multiply(features[:, self._left], features[:, self._right], out=features[:, mixed:])
        return features

    def added(self, features: Floats) -> tuple[NDArray[np.int64], Floats]:
        """At points (k, P): which products change with a setting; by how much each, (k, a, V)."""
        left, right = features[:, self._left], features[:, self._right]
        alive = np.flatnonzero(((left != 0.0) | (right != 0.0)).any(axis=0))
        by_left = self._mix_left[alive] * right[:, alive, None]
        return alive, by_left + self._mix_right[alive] * left[:, alive, None]

    def added_levels(self, features: Floats, weights: Floats) -> Floats:
        """How much of features @ `weights` (P,) each setting adds at each point, (n, V)."""
        mixed = self.mix.shape[1]
        of_pair = weights[mixed:]
        by_left = (features[:, self._right] * of_pair) @ self._mix_left
        by_right = (features[:, self._left] * of_pair) @ self._mix_right
        return np.asarray(self.mix @ weights[:mixed] + by_left + by_right)


@dataclass(frozen=True)
class Belief:
    """Which half of an `Effect` a model is about."""

    mean: Callable[[Effect], float]
    sd: Callable[[Effect], float]


TIME = Belief(lambda e: e.log_time, lambda e: max(e.log_time_sd, 1e-4))
MEMORY = Belief(lambda e: e.log_memory, lambda e: max(e.log_memory_sd, 1e-4))


class Terms:
    """The columns of one linear model and their independent normal priors.

    First one column for each non-reference value (its prior mean is there), then one slope for
    each ordered dimension over the logarithm of its value, then products for the pairs of
    dimensions that may matter. The slope shares prior variance among the values of an ordered
    dimension, so that 8 learns from 4; each value's own prior mean and deviation stay as stated.

    `prior_mean` and `prior_variance` have shape (P,).
    """

    def __init__(self, coding: Coding, belief: Belief) -> None:
        self.coding = coding
        settings = coding.settings
        effects = [coding.dimensions[i].effects[v] for i, v in settings]
        mean = [belief.mean(e) for e in effects]
        variance = [belief.sd(e) ** 2 for e in effects]
        impact = [abs(m) + v**0.5 for m, v in zip(mean, variance, strict=True)]
        slopes: list[Floats] = []
        self._last = Last()
        bases: list[tuple[int, int, float]] = []  # (dimension, column, impact of a unit)
        slope_variance: list[float] = []
        for i, dimension in enumerate(coding.dimensions):
            columns = [c for c, (j, _) in enumerate(settings) if j == i]
            lengths = ordered_lengths(dimension)
            if lengths is None:
                bases += [(i, c, impact[c]) for c in columns]
                continue
            unit = {c: abs(lengths[settings[c][1]]) for c in columns}
            shared = SLOPE_SHARE * min(variance[c] / unit[c] ** 2 for c in columns)
            for c in columns:
                variance[c] -= shared * unit[c] ** 2
            bases.append(
                (i, len(settings) + len(slopes), max(impact[c] / unit[c] for c in columns))
            )
            slope_variance.append(shared)
            weights = np.zeros(len(settings))
            weights[columns] = [lengths[settings[c][1]] for c in columns]
            slopes.append(weights)
        by_slope = np.array(slopes).reshape(len(slopes), len(settings)).T
        self.pairs, pair_variance = _pairs(bases)
        self.products = Products(np.hstack([np.eye(len(settings)), by_slope]), self.pairs)
        num_shrunk = len(slope_variance) + len(pair_variance)
        self.prior_mean: Floats = np.array(mean + [0.0] * num_shrunk)
        self.prior_variance: Floats = np.array(variance + slope_variance + pair_variance)

    def features(self, codes: Codes) -> Floats:
        """The design matrix of the points, shape (n, P); zero in the row of the reference.

        The last large one is kept: several models ask for it, and an enumerated space is asked for
        at every proposal.
        """
        return self._last.of(codes, self._features)

    def _features(self, codes: Codes) -> Floats:
        return self.products.features(self.coding.one_hot(codes))


class Rows:
    """The features of a list of points that mostly goes on from the one asked for before.

    With `base` there is a last column of ones.
    """

    def __init__(self, terms: Terms, *, base: bool) -> None:
        self._terms = terms
        self._num_columns = terms.products.num_features + base
        self._codes: Codes | None = None
        self._features = Grown(self._num_columns)

    def of(self, codes: Codes) -> Floats:
        """The design matrix of the points (n, d), (n, P)."""
        if self._codes is None or not starts_with(codes, self._codes):
            self._codes, self._features = codes[:0], Grown(self._num_columns)
        new = self._terms.features(codes[len(self._codes) :])
        more = np.ones((len(new), self._num_columns))
        more[:, : new.shape[1]] = new
        self._features.append(more)
        self._codes = codes
        return self._features.rows


def ordered_lengths(dimension: Dimension) -> dict[int, float] | None:
    """log2 of each value over the reference, by code; None where a dimension has no such order.

    Ordered are dimensions of at least three different numbers, none negative; with a zero among
    them one is added to all.
    """
    numbers = [v for v in dimension.values if isinstance(v, int | float)]
    if len(numbers) < len(dimension.values) or len(numbers) < 3:
        return None
    if any(isinstance(v, bool) or v < 0 for v in numbers):
        return None
    shift = 1.0 if min(numbers) == 0 else 0.0
    base = np.log2(float(dimension.reference) + shift)
    return {i: float(np.log2(v + shift) - base) for i, v in enumerate(numbers)}


def _pairs(
    bases: Sequence[tuple[int, int, float]],
) -> tuple[list[tuple[int, int]], list[float]]:
    weighed = [
        (PAIR_SHARE * min(a[2], b[2]), (a[1], b[1]))
        for a, b in combinations(bases, 2)
        if a[0] != b[0]
    ]
    kept = sorted((w for w in weighed if w[0] >= MIN_PAIR_SD), key=lambda w: (-w[0], w[1]))
    kept = kept[:MAX_PAIRS]
    return [columns for _, columns in kept], [sd**2 for sd, _ in kept]
