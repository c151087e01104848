"""Which points are looked at: all of a small space, the promising neighbourhood in a large one."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product

import numpy as np

from infrarsi.contract import Space
from searchers.features import Codes, Coding, Floats
from searchers.neighbourhood import Near, Points

MAX_ENUMERATED = 20_000
NUM_RANDOM = 256
NUM_CLIMBERS, NUM_LEADERS = 6, 3  # points that the ascent starts from, and that it goes on from
MAX_ROUNDS = 30
JOINED = (2, 3, 5, 8, 13)  # how many good single changes are also tried together

Score = Callable[[Points], Floats]


class Candidates:
    """The valid points of a space other than the reference, best first by a given score."""

    def __init__(self, coding: Coding, seed: int) -> None:
        self._coding = coding
        self._seed = seed
        self._space: Space = coding.space
        self._all: Codes | None = None
        if coding.space.size() <= MAX_ENUMERATED:
            self._all = self._enumerate()

    def best(
        self, score: Score, starts: Sequence[Codes], taken: Collection[bytes]
    ) -> tuple[Codes, float] | None:
        """The untaken valid point of the highest score, with it; None where there is none.

        `starts` are where the local search of a large space begins, besides random points.
        """
        if self._all is not None:
            scores = score(self._all) if len(self._all) else np.zeros(0)
            return self._first(self._all, scores, taken)
        return self._climb(score, starts, taken)

    def _first(
        self, codes: Codes, scores: Floats, taken: Collection[bytes]
    ) -> tuple[Codes, float] | None:
        for i in np.argsort(-scores, kind="stable"):
            if codes[i].tobytes() in taken or np.array_equal(codes[i], self._coding.reference):
                continue
            if self._all is not None or self._space.is_valid(self._coding.decode(codes[i])):
                return codes[i], float(scores[i])
        return None

    def _enumerate(self) -> Codes:
        rows = [
            codes
            for codes in product(*(range(len(d.values)) for d in self._coding.dimensions))
            if self._space.is_valid(self._coding.decode(codes))
        ]
        table = np.array(rows, dtype=np.int64).reshape(len(rows), len(self._coding.dimensions))
        return table[np.any(table != self._coding.reference, axis=1)]

    def _climb(
        self, score: Score, starts: Sequence[Codes], taken: Collection[bytes]
    ) -> tuple[Codes, float] | None:
        """Ascent from several starts at once, by single changes and by good ones together."""
        pool = np.vstack([np.array(starts), self._random(len(taken))])
        pool = np.unique(pool, axis=0)
        scores = score(pool)
        best = self._first(pool, scores, taken)
        order = np.argsort(-scores, kind="stable")[:NUM_CLIMBERS]
        here, height = pool[order], scores[order]
        seen: set[bytes] = set()
        for _ in range(MAX_ROUNDS):
            fresh = [k for k, row in enumerate(here) if row.tobytes() not in seen]
            if not fresh:
                break
            seen.update(here[k].tobytes() for k in fresh)
            near = Near(self._coding, here[fresh])
            near_scores = score(near).reshape(len(fresh), -1)
            rows_near = near.codes.reshape(*near_scores.shape, -1)
            far = [
                _joined(here[k], rows_near[i], near.dimension, near_scores[i] - height[k])
                for i, k in enumerate(fresh)
            ]
            far_scores = np.split(score(np.vstack(far)), np.cumsum([len(rows) for rows in far]))
            reached: list[tuple[Codes, float]] = []
            for i, k in enumerate(fresh):
                rows = np.vstack([rows_near[i], far[i]])
                found = self._first(rows, np.concatenate([near_scores[i], far_scores[i]]), taken)
                if found is None:
                    continue
                if best is None or found[1] > best[1]:
                    best = found
                if found[1] > height[k]:
                    reached.append(found)
            reached = sorted(reached, key=lambda one: -one[1])[:NUM_LEADERS]
            here = np.array([row for row, _ in reached]).reshape(-1, here.shape[1])
            height = np.array([value for _, value in reached])
        return best

    def _random(self, num_taken: int) -> Codes:
        rng = np.random.default_rng([self._seed, num_taken])
        columns = [rng.integers(0, len(d.values), NUM_RANDOM) for d in self._coding.dimensions]
        mixed = np.stack(columns, axis=1)
        keep = rng.random(mixed.shape) < 0.5
        return np.where(keep, self._coding.reference[None, :], mixed)


def _joined(row: Codes, near: Codes, changed: Codes, gains: Floats) -> Codes:
    """The row with several of the single changes that gain by themselves, best ones first.

    `changed` (V,) is the dimension in which each of the neighbours `near` (V, d) differs.
    """
    good = np.flatnonzero(gains > 0.0)
    good = good[np.argsort(-gains[good], kind="stable")]
    _, first = np.unique(changed[good], return_index=True)
    rows, current = [], row.copy()
    for count, i in enumerate(good[np.sort(first)], start=1):
        current[changed[i]] = near[i, changed[i]]
        if count in JOINED or count == len(first):
            rows.append(current.copy())
    return np.array(rows, dtype=np.int64).reshape(-1, len(row))


def seeds(coding: Coding, fits: Callable[[Codes], Floats]) -> Iterator[Codes]:
    """Starts that need no trial: the catalogue's own bundle, and every single value alone.

    The bundle takes each dimension's value of the best prior mean and gives back, cheapest first,
    what is needed to be valid and to fit with a probability of at least one half.
    """
    bundle = coding.reference.copy()
    worth: dict[int, float] = {}
    for i, dimension in enumerate(coding.dimensions):
        means = [
            e.log_time if v != dimension.reference else 0.0
            for v, e in zip(dimension.values, dimension.effects, strict=True)
        ]
        best = int(np.argmin(means))
        if means[best] < 0:
            bundle[i] = best
            worth[i] = -means[best]
    given_back = [bundle]
    for i in sorted(worth, key=lambda j: worth[j]):
        given_back.append(given_back[-1].copy())
        given_back[-1][i] = coding.reference[i]
    # The last is the reference, which is taken whether it fits or not.
    good = fits(np.array(given_back)) >= 0.5
    for is_good, bundle in zip(good, given_back, strict=True):
        if is_good and coding.space.is_valid(coding.decode(bundle)):
            break
    yield bundle
    for i, value in coding.settings:
        single = coding.reference.copy()
        single[i] = value
        yield single
