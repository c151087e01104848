"""Which settings make a trial fail: noisy-or diagnosis over everything that may be at fault.

Suspects are each value that is not the reference's, each dimension of several such values (being
off its reference at all), and each pair of values. Each is bad with a small prior probability; a
trial with something bad in it fails, and otherwise fails only by accident. A trial that ran clears
everything in it. A failed one makes what is left in it suspect, all the more the fewer those are
and where its text names a setting; several point at what they share. Jobs differ in how much they
bear, so each failure also makes everything that never ran a little more suspect. Out-of-memory
trials belong to the memory model.

Notation: h_s the hazard of suspect s, -log(1 - prior probability); phi the job's fragility, which
multiplies all hazards; P(s bad) = 1 - exp(-phi h_s), its odds exp(phi h_s) - 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from infrarsi.contract import DimensionKind
from searchers.diagnosis import MAX_CASES, Case, likely_sets
from searchers.features import Codes, Coding, Floats, Products, starts_with
from searchers.neighbourhood import Near, Points, Projection

Single = NDArray[np.float32]

# Prior probabilities of being bad: chosen by judgement, code patches riskier than flags.
VALUE_PRIOR = {DimensionKind.KNOB: 0.02, DimensionKind.RECIPE: 0.04}
DIMENSION_SHARE = 0.7  # of a value's prior, where it lies with leaving the reference at all
PAIR_PRIOR = 0.003
FRAGILITY = {0.5: 0.5, 1.0: 0.3, 5.0: 0.2}  # and how often: chosen by judgement
CLEARED = 0.005  # what is left of a suspicion after a trial ran with it
MAX_SUSPECT_PAIRS = 128
NEGLIGIBLE = 1e-4  # a suspect less likely than this share of the likeliest explains no failure
KEPT_WEIGHT = 0.995  # of all explanations: the rest is not looked at, for speed
# How often a text that names a setting comes of something else, against of that setting.
NAMED_WRONGLY = 0.05
NAMED_BY_ACCIDENT = 0.2


@dataclass(frozen=True)
class FailedTrial:
    """`accident` is the probability that such a failure has nothing to do with the settings.

    `named` are the dimensions, among those changed, that the failure's own text points at.
    """

    codes: Codes
    accident: float = 0.01
    named: frozenset[int] = frozenset()


class FailurePosterior:
    """Belief on what is bad: `weights[k, f]` is that of explanation k under the f-th fragility.

    `holds[u, k]` is 1 where explanation k holds suspect `used[u]`, ascending, to be bad, else 0.
    What an explanation leaves out stays as likely as it was before the failures.
    """

    def __init__(
        self, suspects: "_Suspects", used: Sequence[int], holds: Single, weights: Floats
    ) -> None:
        self._suspects = suspects
        self._used = used
        self._holds = holds
        self._weights = weights

    def runs(self, points: Points) -> Floats:
        """Probability that each point runs and stays the same job, memory aside, (n,)."""
        if isinstance(points, Near):
            hazard = self._suspects.hazard_near(points)
        else:
            hot = self._suspects.coding.one_hot(points)
            hazard = self._suspects.hazard_of(points, hot)
        clear = np.exp(-np.outer(hazard, list(FRAGILITY)))
        if not self.is_alarmed:
            return np.asarray(clear @ self._weights.sum(axis=0))
        weights = self._weights.astype(np.float32)
        if isinstance(points, Near):
            parts = [self._avoided(hits, weights) for hits in self._hits.around(points)]
            avoided = np.concatenate(parts)
        else:
            hits = self._suspects.members(points, hot, self._used) @ self._holds
            avoided = self._avoided(hits, weights)
        return np.asarray((clear * avoided).sum(axis=1), dtype=np.float64)

    @staticmethod
    def _avoided(hits: Single, weights: Single) -> Single:
        """The weight of the explanations that a point has nothing of, (n, F)."""
        return np.asarray(hits < 0.5, dtype=np.float32) @ weights

    @cached_property
    def _hits(self) -> Projection:
        """How many suspects of each explanation a point has in it."""
        coding, first_pair = self._suspects.coding, self._suspects.first_pair
        member = np.zeros((len(coding.settings), len(coding.dimensions)))
        for s, (i, _) in enumerate(coding.settings):
            member[s, i] = 1.0
        pairs = [self._suspects.parts_of(s) for s in self._used if s >= first_pair]
        holds = np.zeros((first_pair + len(pairs), self._holds.shape[1]), dtype=np.float32)
        alone = [s for s in self._used if s < first_pair]
        holds[alone] = self._holds[: len(alone)]
        holds[first_pair:] = self._holds[len(alone) :]
        return Projection(Products(np.hstack([np.eye(len(member)), member]), pairs), holds)

    @property
    def is_alarmed(self) -> bool:
        """Whether something is believed to be bad, not only to be possibly so."""
        return len(self._used) > 0

    def faults(self, least: float) -> list[tuple[list[tuple[int, int]], float]]:
        """The values, alone or two together, that are bad with at least this probability.

        Values as (dimension, code). Where a dimension is bad, each of its values is.
        """
        coding = self._suspects.coding
        held = self._holds.astype(np.float64) @ self._weights.sum(axis=1)
        values: dict[int, float] = {}
        pairs = []
        for suspect, share in zip(self._used, held.tolist(), strict=True):
            columns = self._suspects.values_of(suspect)
            if self._suspects.dimension_of(suspect) is None:
                pairs.append(([coding.settings[c] for c in columns], share))
            else:
                for column in columns:
                    values[column] = values.get(column, 0.0) + share
        found = [*(([coding.settings[c]], share) for c, share in values.items()), *pairs]
        return [(settings, min(share, 1.0)) for settings, share in found if share >= least]

    @property
    def blamed(self) -> dict[int, float]:
        """Probability, by dimension, that it alone (a value of it, or leaving it) is bad."""
        blame: dict[int, float] = {}
        held = self._holds.astype(np.float64) @ self._weights.sum(axis=1)
        for suspect, share in zip(self._used, held, strict=True):
            dimension = self._suspects.dimension_of(suspect)
            if dimension is not None:
                blame[dimension] = blame.get(dimension, 0.0) + float(share)
        return blame


class FailureModel:
    """Learns from judged trials of one space what fails there."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._counts = _Counts(coding)
        self._seen: dict[bytes, NDArray[np.int64]] = {}

    def _inside(self, codes: Codes) -> NDArray[np.int64]:
        key = codes.tobytes()
        if key not in self._seen:
            self._seen[key] = _inside(self._coding, codes)
        return self._seen[key]

    def fit(self, ran: Codes, failed: Sequence[FailedTrial]) -> FailurePosterior:
        """The posterior after these trials, `ran` (n, d); a pure function of them."""
        suspects = _Suspects(self._coding, *self._counts.of(ran))
        inside = [suspects.likeliest(self._inside(trial.codes)) for trial in failed]
        together = np.concatenate([np.zeros(0, dtype=np.int64), *inside])
        of_trial = np.repeat(np.arange(len(failed)), [len(ids) for ids in inside])
        hazard = suspects.hazard[together]
        largest = np.zeros(len(failed))
        np.maximum.at(largest, of_trial, hazard)
        is_likely = hazard >= NEGLIGIBLE * largest[of_trial]
        how_many = np.bincount(of_trial[is_likely], minlength=len(failed))
        # Only so many cases are looked at, those with the fewest suspects.
        cases = []
        most = np.sort(how_many)[:MAX_CASES].max(initial=0)
        for i in np.flatnonzero(how_many <= most).tolist():
            likely = inside[i][suspects.hazard[inside[i]] >= NEGLIGIBLE * largest[i]]
            explains = {s: suspects.explains(s, failed[i].named) for s in likely.tolist()}
            accident = failed[i].accident * (NAMED_BY_ACCIDENT if failed[i].named else 1.0)
            cases.append(Case(explains, accident))
        # The most fragile job keeps most sets of several faults, so its beam serves them all.
        fragile = max(FRAGILITY)
        odds = {
            s: math.expm1(fragile * suspects.hazard[s]) for case in cases for s in case.explains
        }
        found = likely_sets(cases, odds)
        used = sorted(frozenset().union(*(one for one, _ in found)))
        place = {s: i for i, s in enumerate(used)}
        holds = np.zeros((len(found), len(used)), dtype=np.float32)
        for row, (one, _) in zip(holds, found, strict=True):
            row[[place[s] for s in one]] = 1.0
        odds_of = [np.expm1(f * suspects.hazard[used]) for f in FRAGILITY]
        seen = suspects.cleared + suspects.hazard[np.unique(together)].sum()
        quality = np.array([quality for _, quality in found])
        weights = np.array(
            [
                prior * np.exp(-f * seen) * quality * np.where(holds, of, 1.0).prod(axis=1)
                for (f, prior), of in zip(FRAGILITY.items(), odds_of, strict=True)
            ]
        ).T
        weights /= weights.sum()
        order = np.argsort(-weights.sum(axis=1), kind="stable")
        total = np.cumsum(weights[order].sum(axis=1))
        kept = order[: int(np.searchsorted(total, KEPT_WEIGHT)) + 1]
        left = np.flatnonzero(holds[kept].any(axis=0))
        return FailurePosterior(
            suspects,
            [used[i] for i in left],
            np.ascontiguousarray(holds[kept][:, left].T),
            weights[kept] / weights[kept].sum(),
        )


def _inside(coding: Coding, codes: Codes) -> NDArray[np.int64]:
    """The suspects in one point, ascending."""
    num_values, num_dimensions = len(coding.settings), len(coding.dimensions)
    off = np.flatnonzero(codes != coding.reference)
    hot = coding.place[off, codes[off]]
    left, right = np.triu_indices(len(hot), 1)
    shared = [num_values + i for i in off.tolist() if len(coding.dimensions[i].values) > 2]
    pairs = num_values + num_dimensions + hot[left] * num_values + hot[right]
    return np.concatenate([hot, np.array(shared, dtype=np.int64), pairs])


class _Counts:
    """How often each pair of values ran, (V, V), and each dimension off its reference, (d,)."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._last = self._none()

    def of(self, ran: Codes) -> tuple[Floats, Floats]:
        """Those of these trials; whole numbers, so what is added first does not matter."""
        counted, together, off = self._last if starts_with(ran, self._last[0]) else self._none()
        new = ran[len(counted) :]
        hot = self._coding.one_hot(new)
        together = together + hot.T @ hot
        off = off + (new != self._coding.reference).sum(axis=0)
        self._last = ran, together, off
        return together, off

    def _none(self) -> tuple[Codes, Floats, Floats]:
        settings, dimensions = len(self._coding.settings), len(self._coding.dimensions)
        return (
            np.zeros((0, dimensions), dtype=np.int64),
            np.zeros((settings, settings)),
            np.zeros(dimensions),
        )


class _Suspects:
    """All suspects as numbers, with their hazards before the failures are looked at.

    `cleared` is how much hazard the trials that ran have taken away.

    Values come first, then dimensions, then pairs of values (i, j) as V + d + i * V + j.
    """

    def __init__(self, coding: Coding, together: Floats, off: Floats) -> None:
        self.coding = coding
        self._num_values = len(coding.settings)
        self.first_pair = self._num_values + len(coding.dimensions)
        self._dimensions = np.array([i for i, _ in coding.settings], dtype=np.int64)
        self._shared = np.array([len(d.values) > 2 for d in coding.dimensions], dtype=bool)
        kinds = [d.kind for d in coding.dimensions]
        hazard = -np.log1p(-np.array([VALUE_PRIOR[k] for k in kinds]))
        share = np.where(self._shared, DIMENSION_SHARE, 0.0)
        together, times_off = np.minimum(together, 3.0), np.minimum(off, 3.0)
        odds = np.array([coding.dimensions[i].effects[v].failure_odds for i, v in coding.settings])
        of_value = (hazard * (1.0 - share))[self._dimensions] * odds
        apart = self._dimensions[:, None] != self._dimensions[None, :]
        of_pair = np.where(apart, -np.log1p(-PAIR_PRIOR), 0.0)
        self.dimension: Floats = hazard * share * CLEARED**times_off
        self.value: Floats = of_value * CLEARED ** np.diag(together)
        self.pair: Floats = of_pair * CLEARED**together
        self.cleared = float(
            (hazard * share - self.dimension).sum()
            + (of_value - self.value).sum()
            + (of_pair - self.pair).sum() / 2.0
        )
        self.hazard: Floats = np.concatenate([self.value, self.dimension, self.pair.ravel()])

    def hazard_of(self, codes: Codes, hot: Floats) -> Floats:
        """The hazard of all that each point has in it, (n,)."""
        pairs = ((hot @ self.pair) * hot).sum(axis=1)
        return np.asarray(hot @ self.value + self.off(codes) @ self.dimension + 0.5 * pairs)

    def hazard_near(self, near: Near) -> Floats:
        """The same of neighbours."""
        alone = self.value + self.dimension[self._dimensions]
        shared = near.hot @ self.pair
        here = near.hot @ alone + 0.5 * (shared * near.hot).sum(axis=1)
        return near.linear(here, alone + shared)

    def off(self, codes: Codes) -> Floats:
        """Which dimensions are off their reference in each point, (n, d)."""
        return np.asarray(codes != self.coding.reference, dtype=np.float64)

    def likeliest(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the suspects in one point all but pairs beyond `MAX_SUSPECT_PAIRS`, ascending."""
        first = int(np.searchsorted(inside, self.first_pair))
        if len(inside) - first <= MAX_SUSPECT_PAIRS:
            return inside
        order = np.argsort(-self.hazard[inside[first:]], kind="stable")[:MAX_SUSPECT_PAIRS]
        return np.concatenate([inside[:first], np.sort(inside[first:][order])])

    def explains(self, suspect: int, named: frozenset[int]) -> float:
        """How likely a failure that names these dimensions is, where `suspect` is bad."""
        if not named or not named.isdisjoint(self._dimensions_of(suspect)):
            return 1.0
        return NAMED_WRONGLY

    def dimension_of(self, suspect: int) -> int | None:
        """The dimension of a value or a dimension; None for a pair."""
        dimensions = self._dimensions_of(suspect)
        return dimensions[0] if len(dimensions) == 1 else None

    def _dimensions_of(self, suspect: int) -> list[int]:
        if suspect < self._num_values:
            return [int(self._dimensions[suspect])]
        if suspect < self.first_pair:
            return [suspect - self._num_values]
        pair = divmod(suspect - self.first_pair, self._num_values)
        return [int(self._dimensions[i]) for i in pair]

    def values_of(self, suspect: int) -> list[int]:
        """The columns of the values that it is about: one, all of a dimension, or a pair."""
        if suspect < self._num_values:
            return [suspect]
        if suspect < self.first_pair:
            return np.flatnonzero(self._dimensions == suspect - self._num_values).tolist()
        return list(divmod(suspect - self.first_pair, self._num_values))

    def members(
        self, codes: Codes, hot: Floats, used: Sequence[int]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Which of the `used` suspects each point has in it, (n, U)."""
        held = np.hstack([hot, self.off(codes)]).astype(np.float32)
        pairs = [self.parts_of(suspect) for suspect in used]
        return held[:, [a for a, _ in pairs]] * held[:, [b for _, b in pairs]]

    def parts_of(self, suspect: int) -> tuple[int, int]:
        """The columns, of values and then dimensions, that a point needs to have it."""
        if suspect < self.first_pair:
            return suspect, suspect
        left, right = divmod(suspect - self.first_pair, self._num_values)
        return left, right
