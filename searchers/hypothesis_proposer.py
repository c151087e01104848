"""The proposer of this project: models over all trials, priors from the knob families."""

from collections.abc import Sequence

import numpy as np

from infrarsi.contract import (
    ActiveTrial,
    Exhausted,
    Experience,
    Learned,
    NotYet,
    Point,
    Proposal,
    Space,
    Trial,
)
from searchers.beliefs import Beliefs, Models
from searchers.features import Codes, Coding, Floats
from searchers.neighbourhood import Points
from searchers.normal import expected_improvement
from searchers.proposals import Candidates, seeds
from searchers.threads import one_thread

NO_GAIN = "no_gain_expected"
SPACE_EXHAUSTED = "space_exhausted"

MIN_GAIN = 0.002  # of log step time, expected: the least gain that is verified by default
EVEN_ODDS = 0.5  # points less likely to succeed count less still: a failed trial costs a screen too
GOOD_ODDS = 0.7  # once a trial has failed, when what is left of the budget must not be lost too
DOUBTFUL_SHARE = 0.3  # of the worth of a point that is expected to lose more than the noise
NOT_PAYING_SHARE = 1e-6  # of the worth of a point that does not pay: after all that do
COST_POWER = 0.5  # between gain per trial (0) and gain per second (1): both budgets are finite
MAX_CANDIDATES_TO_VERIFY = 3
KEEP_GAIN = 0.003  # a setting whose believed gain is smaller is pruned
KEEP_SDS = 0.5  # and so is one whose believed gain is smaller than this many of its deviations
MAX_LOST = 0.005  # but never one that is believed to gain more than this
PRUNED_FITS = 0.9  # the pruned point fits with this probability
FITS_SLACK = 0.1  # or with one that is at most this much below that of the unpruned one


class HypothesisProposer:
    """Expected improvement over the best same-job trial, per expected cost, times what may fail.

    Implements `infrarsi.ports.Proposer`. `noise_log_sd` is the noise of one trial's log step time
    as calibrated, `max_trials` the budget of screens. With `stops` False it goes on when nothing
    more is worth its trial.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        *,
        noise_log_sd: float,
        max_trials: int,
        experience: Experience | None = None,
        stops: bool = True,
    ) -> None:
        known = experience or Experience()
        self._coding = Coding(space)
        self._models = Models(self._coding, noise_log_sd=noise_log_sd, informed=known.space)
        self._candidates = Candidates(self._coding, seed)
        self._max_trials = max_trials
        self._starts = [c for p in known.starts if (c := self._coding.encode(p)) is not None]
        self._stops = stops

    def propose(
        self, history: Sequence[Trial], active: Sequence[ActiveTrial]
    ) -> Proposal | NotYet | Exhausted:
        """The next point to try; see the port."""
        with one_thread():
            return self._propose(history, active)

    def _propose(
        self, history: Sequence[Trial], active: Sequence[ActiveTrial]
    ) -> Proposal | NotYet | Exhausted:
        beliefs = self._models.learn(history, active)
        incumbent = beliefs.incumbent()
        spent = sum(t.number > 0 and t.outcome.counts_as_screen for t in history) + len(active)
        # The last screen competes with nothing for time, so only its gain counts.
        power = COST_POWER if spent + 1 < self._max_trials else 0.0
        starts = [
            incumbent,
            *beliefs.best_trials(3),
            *self._starts,
            *seeds(beliefs.coding, beliefs.fits),
        ]
        found = self._candidates.best(
            lambda points: self._score(beliefs, points, incumbent, power), starts, beliefs.taken
        )
        if found is None:
            return NotYet("every other point is running") if active else Exhausted(SPACE_EXHAUSTED)
        codes = found[0]
        if self._stops and not self._is_worth_it(beliefs, codes, incumbent):
            return NotYet("an active trial may change that") if active else Exhausted(NO_GAIN)
        return self._proposal(beliefs, codes, incumbent)

    def ranking(self, history: Sequence[Trial]) -> list[Point]:
        """The trials to verify, best first, at most three.

        Same-job trials believed faster than the reference, one-off cost included, by posterior
        mean: a lucky measurement counts for as much as the model lets it.
        """
        beliefs = self._models.learn(history, ())
        return [
            self._coding.decode(codes) for codes in beliefs.best_trials(MAX_CANDIDATES_TO_VERIFY)
        ]

    def prune(self, history: Sequence[Trial]) -> Point:
        """The best trial's point without the settings of no credible effect.

        The reference where no trial is believed faster. What comes back may never have run.
        """
        beliefs = self._models.learn(history, ())
        best = beliefs.best_trials(1)
        if not best:
            return self._coding.space.reference
        return self._coding.decode(self._pruned(beliefs, best[0]))

    def learned(self, history: Sequence[Trial]) -> Learned:
        """What the trials say of single settings; see `Learned`."""
        return self._models.learned(history)

    def _score(self, beliefs: Beliefs, points: Points, incumbent: Codes, power: float) -> Floats:
        """What the points are ordered by, (n,): those that pay before those that do not.

        A point that is expected to be slower than the incumbent pays only if the priors are wrong;
        as long as the trials bear them out it has to promise more than one that adds something.
        """
        worth, gain = self._worth(beliefs, points, incumbent)
        cost = beliefs.cost(points)
        doubtful = (gain < -beliefs.noise_log_sd) & beliefs.priors_hold
        share = np.where(doubtful, DOUBTFUL_SHARE, 1.0)
        share = np.where(self._pays(beliefs, worth, cost), share, NOT_PAYING_SHARE)
        return np.asarray(share * worth / cost**power, dtype=np.float64)

    def _worth(self, beliefs: Beliefs, points: Points, incumbent: Codes) -> tuple[Floats, Floats]:
        """Expected improvement of log net step time, failures counted as none; expected gain."""
        gain, sd = beliefs.gain(points, incumbent)
        succeeds = beliefs.fits(points) * beliefs.runs(points)
        odds = GOOD_ODDS if beliefs.has_failed else EVEN_ODDS
        succeeds = succeeds * np.minimum(succeeds / odds, 1.0)
        worth = expected_improvement(gain, sd) * succeeds
        return np.asarray(worth, dtype=np.float64), gain

    def _pays(
        self, beliefs: Beliefs, worth: Floats, cost: Floats
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether a trial saves the planned run at least the time that it takes itself."""
        least = cost * (beliefs.reference_cost_s / max(beliefs.planned_s, 1e-9))
        return np.asarray(worth >= np.maximum(least, MIN_GAIN), dtype=np.bool_)

    def _is_worth_it(self, beliefs: Beliefs, codes: Codes, incumbent: Codes) -> bool:
        worth, _ = self._worth(beliefs, codes[None, :], incumbent)
        return bool(self._pays(beliefs, worth, beliefs.cost(codes[None, :]))[0])

    def _proposal(self, beliefs: Beliefs, codes: Codes, incumbent: Codes) -> Proposal:
        row = codes[None, :]
        mean, sd = beliefs.log_time(row)
        fits, runs = float(beliefs.fits(row)[0]), float(beliefs.runs(row)[0])
        peak = beliefs.peak(row)
        point = self._coding.decode(codes)
        gain, gain_sd = beliefs.gain(row, incumbent)
        low, high = (_factor(float(gain[0] + s * gain_sd[0])) for s in (-1.0, 1.0))
        why = (
            f"{self._described(codes, incumbent)}; {low} to {high} its speed expected; "
            f"fits: {fits:.0%}, runs: {runs:.0%}"
        )
        if beliefs.by_experience:
            why += "; by experience"
        avoided = [i for i in beliefs.suspects if codes[i] == self._coding.reference[i]]
        if avoided:
            names = ", ".join(self._coding.dimensions[i].name for i in avoided)
            why += f"; without {names}, suspect of a failure"
        return Proposal(
            point,
            why,
            expected_log_time=float(mean[0]),
            expected_log_time_sd=float(sd[0]),
            fits=fits,
            runs=runs,
            expected_peak_bytes=float(peak[0][0]) if peak else None,
            expected_peak_sd_bytes=float(peak[1][0]) if peak else None,
        )

    def _described(self, codes: Codes, incumbent: Codes) -> str:
        names = self._coding.dimensions
        changed = [i for i in range(len(names)) if codes[i] != incumbent[i]]
        parts = [
            f"{names[i].name} back to {names[i].reference}"
            if codes[i] == self._coding.reference[i]
            else f"{names[i].name}={names[i].values[codes[i]]}"
            for i in changed
        ]
        base = "the reference" if np.array_equal(incumbent, self._coding.reference) else "the best"
        return f"{base} with {', '.join(parts)}"

    def _pruned(self, beliefs: Beliefs, best: Codes) -> Codes:
        current = best.copy()
        fits = min(PRUNED_FITS, float(beliefs.fits(best[None, :])[0]) - FITS_SLACK)
        while True:
            tries = []
            for i in np.flatnonzero(current != self._coding.reference):
                without = current.copy()
                without[i] = self._coding.reference[i]
                if self._coding.space.is_valid(self._coding.decode(without)):
                    tries.append(without)
            if not tries:
                return current
            rows = np.array(tries)
            gain, sd = beliefs.gain(rows, current)
            lost = -gain
            droppable = (lost < np.clip(KEEP_SDS * sd, KEEP_GAIN, MAX_LOST)) & (
                beliefs.fits(rows) >= fits
            )
            if not droppable.any():
                return current
            current = rows[int(np.argmin(np.where(droppable, lost, np.inf)))]


def _factor(log_gain: float) -> str:
    """A gain of log step time as a speed-up factor, short."""
    factor = float(np.exp(np.clip(log_gain, -5.0, 5.0)))
    return f"{factor:.2f}x" if factor < 2.0 else f"{factor:.1f}x"
