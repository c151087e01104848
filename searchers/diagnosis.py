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
        self._sets: list[Explanation] = [frozenset()]
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
        least = FADED * float(scores.max())
        found: dict[Explanation, tuple[float, int, int]] = {}
        for flat in _heaviest(scores.ravel(), 4 * MAX_EXPLANATIONS):
            row, column = divmod(int(flat), scores.shape[1])
            if scores[row, column] <= least or len(found) >= MAX_EXPLANATIONS:
                break
            added = int(columns[column - 1]) if column else -1
            one = self._sets[row] if added < 0 else self._sets[row] | {self._suspects[added]}
            found.setdefault(one, (float(scores[row, column]), row, added))
        self._sets = list(found)
        self._weights = np.array([weight for weight, _, _ in found.values()])
        rows = [row for _, row, _ in found.values()]
        new = np.array([column for _, _, column in found.values()])
        with_it = np.where(new[:, None] >= 0, self._explains[:, new].T, 0.0)
        self._quality = np.maximum(self._quality[rows], with_it)

    def explanations(self) -> list[tuple[Explanation, float]]:
        """The sets in a fixed order, each with how well it explains all cases."""
        quality = self._quality.prod(axis=1)
        order = sorted(range(len(self._sets)), key=lambda k: sorted(self._sets[k]))
        return [(self._sets[k], float(quality[k])) for k in order]


def _heaviest(scores: Floats, count: int) -> NDArray[np.int64]:
    """Places of the largest scores, largest first, the earlier of two that are equal."""
    if len(scores) <= count:
        return np.argsort(-scores, kind="stable")
    least = np.partition(scores, -count)[-count]
    among = np.flatnonzero(scores >= least)
    return among[np.argsort(-scores[among], kind="stable")]
