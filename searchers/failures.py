"""Which settings, alone or in pairs, make a trial fail: noisy-or diagnosis by belief propagation.

Each non-reference value, and each pair of them, is bad with a small prior probability; a trial
with something bad in it fails, and otherwise fails only by accident. A trial that ran clears
everything in it. A failed one makes what is left in it suspect, all the more the fewer those are;
several failed trials point at what they share. Out-of-memory trials belong to the memory model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from infrarsi.contract import DimensionKind
from searchers.features import Codes, Coding, Floats

# Prior probabilities of being bad: chosen by judgement, code patches riskier than flags.
VALUE_PRIOR = {DimensionKind.KNOB: 0.02, DimensionKind.RECIPE: 0.04}
PAIR_PRIOR = 0.003
CLEARED = 0.005  # what is left of a suspicion after a trial ran with it
MAX_SUSPECT_PAIRS = 400
NUM_PASSES = 8

Suspect = tuple[int, ...]  # one or two indices into `Coding.settings`


@dataclass(frozen=True)
class JudgedTrial:
    """`accident` is the probability that such a failure has nothing to do with the settings."""

    codes: Codes
    failed: bool
    accident: float = 0.01


class FailurePosterior:
    """Belief on what is bad: `value_bad` (V,), `pair_bad` (V, V) symmetric with zero diagonal."""

    def __init__(self, coding: Coding, value_bad: Floats, pair_bad: Floats) -> None:
        self._coding = coding
        self.value_bad = value_bad
        self.pair_bad = pair_bad

    def runs(self, codes: Codes) -> Floats:
        """Probability that each point runs and stays the same job, memory aside, (n,)."""
        hot = self._coding.one_hot(codes)
        pairs = np.log1p(-self.pair_bad)
        log_ok = hot @ np.log1p(-self.value_bad) + 0.5 * ((hot @ pairs) * hot).sum(axis=1)
        return np.asarray(np.exp(log_ok), dtype=np.float64)


class FailureModel:
    """Learns from judged trials of one space what fails there."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        kinds = [coding.dimensions[i].kind for i, _ in coding.settings]
        self._value_prior: Floats = np.array([VALUE_PRIOR[k] for k in kinds])

    def fit(self, trials: Sequence[JudgedTrial]) -> FailurePosterior:
        """The posterior after these trials; a pure function of them."""
        num_values = len(self._coding.settings)
        members = [self._members(t.codes) for t in trials]
        runs_together: Floats = np.zeros((num_values, num_values))
        for trial, inside in zip(trials, members, strict=True):
            if not trial.failed and inside:
                runs_together[np.ix_(inside, inside)] += 1.0
        value_bad = self._value_prior * CLEARED ** np.minimum(np.diag(runs_together), 3)
        pair_bad = PAIR_PRIOR * CLEARED ** np.minimum(runs_together, 3)
        np.fill_diagonal(pair_bad, 0.0)
        failed = [
            (inside, t.accident) for t, inside in zip(trials, members, strict=True) if t.failed
        ]
        for suspect, bad in self._diagnose(failed, value_bad, pair_bad).items():
            if len(suspect) == 1:
                value_bad[suspect[0]] = bad
            else:
                pair_bad[suspect[0], suspect[1]] = pair_bad[suspect[1], suspect[0]] = bad
        limit = 1.0 - 1e-6
        return FailurePosterior(
            self._coding, np.minimum(value_bad, limit), np.minimum(pair_bad, limit)
        )

    def _members(self, codes: Codes) -> list[int]:
        return [int(i) for i in np.flatnonzero(self._coding.one_hot(codes[None, :])[0])]

    def _diagnose(
        self, failed: Sequence[tuple[list[int], float]], value_bad: Floats, pair_bad: Floats
    ) -> dict[Suspect, float]:
        """Loopy belief propagation between failed trials and the suspects in them."""
        suspects_of: list[list[Suspect]] = []
        prior: dict[Suspect, float] = {}
        for inside, _ in failed:
            suspects: list[Suspect] = [(i,) for i in inside]
            pairs = list(combinations(inside, 2))
            suspects += sorted(pairs, key=lambda p: -pair_bad[p])[:MAX_SUSPECT_PAIRS]
            suspects_of.append(suspects)
            for s in suspects:
                prior[s] = float(value_bad[s[0]] if len(s) == 1 else pair_bad[s])
        evidence: list[dict[Suspect, float]] = [dict.fromkeys(s, 1.0) for s in suspects_of]
        odds = {s: p / (1.0 - p) for s, p in prior.items()}
        belief = dict(odds)
        for _ in range(NUM_PASSES if failed else 0):
            for (_, accident), suspects, ratio in zip(failed, suspects_of, evidence, strict=True):
                without = {s: belief[s] / ratio[s] for s in suspects}  # odds from elsewhere
                survive = (1.0 - accident) * float(
                    np.prod([1.0 / (1.0 + o) for o in without.values()])
                )
                for s in suspects:
                    others = survive * (1.0 + without[s])
                    fresh = 1.0 / max(1.0 - others, 1e-6)
                    belief[s] = min(without[s] * fresh, 1e9)
                    ratio[s] = belief[s] / without[s]
        return {s: o / (1.0 + o) for s, o in belief.items()}
