"""Points as numbers: codes, one-hot values, and the columns of the linear models."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

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
MAX_KNOWN = 100_000


class Coding:
    """Points of one space as rows of integers, and back.

    Notation: n points, d dimensions, V values that are not a dimension's reference.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.dimensions = space.dimensions
        self._hot = Last()
        self._known: dict[int, tuple[Mapping[str, Scalar], Codes | None]] = {}
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
        self._of_setting, self._code_of_setting = places[:, 0], places[:, 1]

    def encode(self, point: Mapping[str, Scalar]) -> Codes | None:
        """The codes of a point, shape (d,); None where it is not a point of this space.

        A point is not to be changed afterwards.
        """
        known = self._known.get(id(point))  # histories are encoded again for every proposal
        if known is None or known[0] is not point:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[id(point)] = (point, self._encode(point))
        return known[1]

    def _encode(self, point: Mapping[str, Scalar]) -> Codes | None:
        if len(point) != len(self.dimensions):
            return None
        codes = [
            index.get(point.get(d.name, ""), -1)
            for index, d in zip(self._index, self.dimensions, strict=True)
        ]
        if -1 in codes:
            return None
        row = np.array(codes, dtype=np.int64)
        row.flags.writeable = False  # it is handed out again
        return row

    def decode(self, codes: Iterable[int]) -> Point:
        """The point of one row of codes."""
        return {d.name: d.values[int(c)] for d, c in zip(self.dimensions, codes, strict=True)}

    def one_hot(self, codes: Codes) -> Floats:
        """Which non-reference values each of the points has, shape (n, V)."""
        return self._hot.of(codes, self._one_hot)

    def _one_hot(self, codes: Codes) -> Floats:
        return np.asarray(codes[:, self._of_setting] == self._code_of_setting, dtype=np.float64)


class Last:
    """The last large result of a function of codes, which several models ask for in turn."""

    def __init__(self) -> None:
        self._kept: tuple[Codes, Floats] | None = None

    def of(self, codes: Codes, make: Callable[[Codes], Floats]) -> Floats:
        """make(codes), made once for the same array."""
        if self._kept is not None and self._kept[0] is codes:
            return self._kept[1]
        made = make(codes)
        if len(codes) >= MIN_KEPT:
            self._kept = (codes, made)
        return made


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
        self._slopes: Floats = np.array(slopes).reshape(len(slopes), len(settings)).T
        self.pairs, pair_variance = _pairs(bases)
        places = np.array(self.pairs, dtype=np.int64).reshape(-1, 2)
        self._left, self._right = places[:, 0], places[:, 1]
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
        hot = self.coding.one_hot(codes)
        values, slopes = hot.shape[1], self._slopes.shape[1]
        features = np.empty((len(codes), len(self.prior_mean)))
        features[:, :values] = hot
        np.matmul(hot, self._slopes, out=features[:, values : values + slopes])
        pairs = features[:, values + slopes :]
        np.multiply(features[:, self._left], features[:, self._right], out=pairs)
        return features


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
