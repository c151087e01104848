"""Which faults, together, explain a series of failures: the likeliest hitting sets.

An explanation is a set of suspects taken to be bad. Its weight is the product of their prior odds
and, over the cases, of how well it explains what was seen: by its best suspect there, else by
accident. Sets are grown case by case and the heaviest kept, so that what only needs one fault
comes before what needs two (the minimal diagnoses of de Kleer and Williams 1987, by weight).
Suspects outside an explanation stay as likely as before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from searchers.features import Floats

MAX_EXPLANATIONS = 256
MAX_CASES = 16
FADED = 1e-6  # a set that weighs less than this part of the heaviest is let go

Explanation = frozenset[int]


@dataclass(frozen=True)
class Case:
    """One failure: `explains[s]` is how likely suspect s, being bad, makes one look like this.

    `accident` is the same for nothing being bad. Suspects in ascending order.
    """

    explains: Mapping[int, float]
    accident: float


def likely_sets(
    cases: Sequence[Case], odds: Mapping[int, float]
) -> list[tuple[Explanation, float]]:
    """The likeliest explanations of all cases together, each with how well it explains them.

    `odds` are the prior odds of every suspect of any case. The order of the cases does not matter;
    of very many only those with the fewest suspects are looked at, since they say most.
    """
    ordered = sorted(cases, key=lambda c: (len(c.explains), tuple(c.explains.items())))
    beam = _Beam(ordered[:MAX_CASES], odds)
    for case in range(len(beam.accident)):
        beam.grow(case)
    return beam.explanations()


class _Beam:
    """The heaviest sets so far; `quality[k, c]` is how well set k explains case c."""

    def __init__(self, cases: Sequence[Case], odds: Mapping[int, float]) -> None:
        self._suspects = sorted({s for case in cases for s in case.explains})
        self._prior = np.array([odds[s] for s in self._suspects])
        place = {s: i for i, s in enumerate(self._suspects)}
        self._explains = np.zeros((len(cases), len(self._suspects)))
        for row, case in zip(self._explains, cases, strict=True):
            row[[place[s] for s in case.explains]] = list(case.explains.values())
        self.accident = np.array([case.accident for case in cases])
        self._sets = [0]  # bit i is the i-th suspect
        self._weights = np.ones(1)
        self._quality = self.accident[None, :]

    def grow(self, case: int) -> None:
        """Each set as it is, and with each suspect that explains the case better."""
        columns = np.flatnonzero(self._explains[case])
        explains = self._explains[case, columns]
        quality = self._quality[:, case]
        grown = self._weights[:, None] * (self._prior[columns] * explains)[None, :]
        grown = np.where(explains[None, :] > quality[:, None], grown, 0.0)
        scores = np.hstack([(self._weights * quality)[:, None], grown])
        best = _heaviest(scores.ravel(), 4 * MAX_EXPLANATIONS)
        weights = scores.ravel()[best]
        best = best[weights > FADED * float(weights[0])]
        of_set, column = np.divmod(best, scores.shape[1])
        added = np.append(-1, columns)[column]
        kept: dict[int, int] = {}
        for place, (row, suspect) in enumerate(zip(of_set.tolist(), added.tolist(), strict=True)):
            one = self._sets[row] if suspect < 0 else self._sets[row] | 1 << suspect
            if kept.setdefault(one, place) == place and len(kept) >= MAX_EXPLANATIONS:
                break
        self._sets = list(kept)
        places = list(kept.values())
        self._weights = weights[places]
        new = added[places]
        # The last column stands for no suspect.
        explains = np.append(self._explains, np.zeros((len(self._explains), 1)), axis=1)
        self._quality = np.maximum(self._quality[of_set[places]], explains[:, new].T)

    def explanations(self) -> list[tuple[Explanation, float]]:
        """The sets in a fixed order, each with how well it explains all cases."""
        members = [[s for i, s in enumerate(self._suspects) if one >> i & 1] for one in self._sets]
        found = zip(members, self._quality.prod(axis=1).tolist(), strict=True)
        return [(frozenset(one), quality) for one, quality in sorted(found)]


def _heaviest(scores: Floats, count: int) -> NDArray[np.int64]:
    """Places of the largest scores, largest first, the earlier of two that are equal."""
    if len(scores) <= count:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -count)[-count]
    among = np.flatnonzero(scores >= least)
    return among[np.argsort(-scores[among], kind="stable")]
