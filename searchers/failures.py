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
from itertools import combinations

import numpy as np

from infrarsi.contract import DimensionKind
from searchers.diagnosis import Case, Explanation, likely_sets
from searchers.features import Codes, Coding, Floats

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
class JudgedTrial:
    """`accident` is the probability that such a failure has nothing to do with the settings.

    `named` are the dimensions, among those changed, that the failure's own text points at.
    """

    codes: Codes
    failed: bool
    accident: float = 0.01
    named: frozenset[int] = frozenset()


class FailurePosterior:
    """Belief on what is bad: `weights[k, f]` is that of explanation k under the f-th fragility.

    What an explanation leaves out stays as likely as it was before the failures.
    """

    def __init__(self, suspects: "_Suspects", found: list[Explanation], weights: Floats) -> None:
        self._suspects = suspects
        self._weights = weights
        self._used = sorted({s for one in found for s in one})
        place = {s: i for i, s in enumerate(self._used)}
        self._holds = np.zeros((len(self._used), len(found)), dtype=np.float32)
        for column, one in enumerate(found):
            for suspect in one:
                self._holds[place[suspect], column] = 1.0

    def runs(self, codes: Codes) -> Floats:
        """Probability that each point runs and stays the same job, memory aside, (n,)."""
        hot = self._suspects.coding.one_hot(codes)
        hazard = self._suspects.hazard_of(codes, hot)
        clear = np.exp(-np.outer(hazard, list(FRAGILITY)))
        if not self._used:
            return np.asarray(clear @ self._weights.sum(axis=0))
        hits = self._suspects.members(codes, hot, self._used) @ self._holds
        avoided = np.asarray(hits == 0.0, dtype=np.float32) @ self._weights.astype(np.float32)
        return np.asarray((clear * avoided).sum(axis=1), dtype=np.float64)

    @property
    def is_alarmed(self) -> bool:
        """Whether something is believed to be bad, not only to be possibly so."""
        return bool(self._used)

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

    def fit(self, trials: Sequence[JudgedTrial]) -> FailurePosterior:
        """The posterior after these trials; a pure function of them."""
        suspects = _Suspects(self._coding, [t.codes for t in trials if not t.failed])
        hazards: dict[int, float] = {}
        cases = []
        for trial in (t for t in trials if t.failed):
            inside = suspects.inside(trial.codes)
            hazards |= inside
            least = NEGLIGIBLE * max(inside.values(), default=0.0)
            likely = (s for s, hazard in inside.items() if hazard >= least)
            explains = {s: suspects.explains(s, trial.named) for s in likely}
            accident = trial.accident * (NAMED_BY_ACCIDENT if trial.named else 1.0)
            cases.append(Case(explains, accident))
        # The most fragile job keeps most sets of several faults, so its beam serves them all.
        fragile = max(FRAGILITY)
        found = likely_sets(cases, {s: float(np.expm1(fragile * h)) for s, h in hazards.items()})
        seen = suspects.cleared + sum(hazards.values())
        quality = np.array([quality for _, quality in found])
        weights = np.array(
            [
                prior * np.exp(-f * seen) * _prior_odds(found, hazards, f) * quality
                for f, prior in FRAGILITY.items()
            ]
        ).T
        weights /= weights.sum()
        order = np.argsort(-weights.sum(axis=1), kind="stable")
        total = np.cumsum(weights[order].sum(axis=1))
        kept = order[: int(np.searchsorted(total, KEPT_WEIGHT)) + 1]
        return FailurePosterior(
            suspects, [found[int(k)][0] for k in kept], weights[kept] / weights[kept].sum()
        )


def _prior_odds(
    found: Sequence[tuple[Explanation, float]], hazards: dict[int, float], fragility: float
) -> Floats:
    """The product of the odds of each explanation's suspects, in a job of this fragility."""
    used = frozenset().union(*(one for one, _ in found))
    odds = {s: math.expm1(fragility * hazards[s]) for s in used}
    return np.array([math.prod(odds[s] for s in one) for one, _ in found])


class _Suspects:
    """All suspects as numbers, with their hazards before the failures are looked at.

    `cleared` is how much hazard the trials that ran have taken away.

    Values come first, then dimensions, then pairs of values (i, j) as V + d + i * V + j.
    """

    def __init__(self, coding: Coding, ran: Sequence[Codes]) -> None:
        self.coding = coding
        self._num_values = len(coding.settings)
        self._first_pair = self._num_values + len(coding.dimensions)
        self._dimensions = np.array([i for i, _ in coding.settings], dtype=np.int64)
        self._shared = np.array([len(d.values) > 2 for d in coding.dimensions], dtype=bool)
        kinds = [d.kind for d in coding.dimensions]
        hazard = -np.log1p(-np.array([VALUE_PRIOR[k] for k in kinds]))
        share = np.where(self._shared, DIMENSION_SHARE, 0.0)
        rows = np.array(ran, dtype=np.int64).reshape(len(ran), len(kinds))
        hot = coding.one_hot(rows)
        together = np.minimum(hot.T @ hot, 3.0)
        times_off = np.minimum(self.off(rows).sum(axis=0), 3.0)
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

    def hazard_of(self, codes: Codes, hot: Floats) -> Floats:
        """The hazard of all that each point has in it, (n,)."""
        pairs = ((hot @ self.pair) * hot).sum(axis=1)
        return np.asarray(hot @ self.value + self.off(codes) @ self.dimension + 0.5 * pairs)

    def off(self, codes: Codes) -> Floats:
        """Which dimensions are off their reference in each point, (n, d)."""
        return np.asarray(codes != self.coding.reference, dtype=np.float64)

    def inside(self, codes: Codes) -> dict[int, float]:
        """The suspects in one point, ascending, with their hazards."""
        hot = np.flatnonzero(self.coding.one_hot(codes[None, :])[0]).tolist()
        found = {i: float(self.value[i]) for i in hot}
        for i in np.flatnonzero((codes != self.coding.reference) & self._shared).tolist():
            found[self._num_values + i] = float(self.dimension[i])
        pairs = sorted(combinations(hot, 2), key=lambda p: -self.pair[p])[:MAX_SUSPECT_PAIRS]
        for i, j in sorted(pairs):
            found[self._first_pair + i * self._num_values + j] = float(self.pair[i, j])
        return found

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
        if suspect < self._first_pair:
            return [suspect - self._num_values]
        pair = divmod(suspect - self._first_pair, self._num_values)
        return [int(self._dimensions[i]) for i in pair]

    def values_of(self, suspect: int) -> list[int]:
        """The columns of the values that it is about: one, all of a dimension, or a pair."""
        if suspect < self._num_values:
            return [suspect]
        if suspect < self._first_pair:
            return np.flatnonzero(self._dimensions == suspect - self._num_values).tolist()
        return list(divmod(suspect - self._first_pair, self._num_values))

    def members(
        self, codes: Codes, hot: Floats, used: Sequence[int]
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """Which of the `used` suspects each point has in it, (n, U)."""
        held = np.hstack([hot, self.off(codes)]).astype(np.float32)
        pairs = [self._parts_of(suspect) for suspect in used]
        return held[:, [a for a, _ in pairs]] * held[:, [b for _, b in pairs]]

    def _parts_of(self, suspect: int) -> tuple[int, int]:
        """The columns, of values and then dimensions, that a point needs to have it."""
        if suspect < self._first_pair:
            return suspect, suspect
        left, right = divmod(suspect - self._first_pair, self._num_values)
        return left, right
