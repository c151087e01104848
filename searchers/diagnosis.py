"""Which faults, together, explain a series of failures: the likeliest hitting sets.

An explanation is a set of suspects taken to be bad. Its weight is the product of their prior odds
and, over the cases, of how well it explains what was seen: by its best suspect there, else by
accident. Sets are grown case by case and the heaviest kept, so that what only needs one fault
comes before what needs two (the minimal diagnoses of de Kleer and Williams 1987, by weight).
Suspects outside an explanation stay as likely as before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MAX_EXPLANATIONS = 256

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

    `odds` are the prior odds of every suspect of any case. The order of the cases does not matter.
    """
    beam: dict[Explanation, float] = {frozenset(): 1.0}
    ordered = sorted(cases, key=lambda c: (len(c.explains), tuple(c.explains.items())))
    for case in ordered:
        beam = _grown(beam, case, odds)
    return [
        (one, math.prod(_quality(one, case) for case in ordered))
        for one in sorted(beam, key=sorted)
    ]


def prior_odds(one: Explanation, odds: Mapping[int, float]) -> float:
    """The product of the odds of a set's suspects."""
    return math.prod(odds[suspect] for suspect in sorted(one))


def _grown(
    beam: Mapping[Explanation, float], case: Case, odds: Mapping[int, float]
) -> dict[Explanation, float]:
    """Each set as it is, and with each suspect that explains the case better; the heaviest."""
    suspects = list(case.explains)
    explains = np.array([case.explains[s] for s in suspects])
    prior = np.array([odds[s] for s in suspects])
    sets, weights = list(beam), np.array(list(beam.values()))
    quality = np.array([_quality(one, case) for one in sets])
    better = explains[None, :] > quality[:, None]
    scores = np.where(better, weights[:, None] * (prior * explains)[None, :], 0.0)
    scores = np.hstack([(weights * quality)[:, None], scores])
    grown: dict[Explanation, float] = {}
    for flat in np.argsort(-scores, axis=None, kind="stable"):
        row, column = divmod(int(flat), scores.shape[1])
        if scores[row, column] <= 0.0 or len(grown) >= MAX_EXPLANATIONS:
            break
        one = sets[row] if column == 0 else sets[row] | {suspects[column - 1]}
        grown.setdefault(one, float(scores[row, column]))
    return grown


def _quality(one: Explanation, case: Case) -> float:
    explains = case.explains
    return max([explains[s] for s in one if s in explains], default=case.accident)
