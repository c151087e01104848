"""Other search strategies behind the same port, rebuilt from the history at every proposal.

They know the space and its constraints, but no priors and no models. Optuna and HyperOpt are told
of a failed trial as one worse than all that ran; neither learns why.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from infrarsi.contract import (
    ActiveTrial,
    Exhausted,
    Experience,
    NotYet,
    Outcome,
    Point,
    Proposal,
    Scalar,
    Space,
    Trial,
    point_key,
)
from infrarsi.errors import UserError
from infrarsi.ports import Proposer
from searchers.evidence import Key, taken_keys
from searchers.hypothesis_proposer import SPACE_EXHAUSTED, HypothesisProposer
from searchers.proposals import MAX_ENUMERATED

MAX_ASKS = 4  # of a library, before a neighbour stands in for its repetitions
MAX_DRAWS = 20_000
FAILED_FACTOR = 1.5  # a failed trial is told as this many times the slowest that ran


class _Peer:
    """What all peers share: never a duplicate, never an invalid point."""

    name = ""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed

    def propose(
        self, history: Sequence[Trial], active: Sequence[ActiveTrial]
    ) -> Proposal | NotYet | Exhausted:
        """The next point to try; see the port."""
        taken = {*taken_keys(history, active), point_key(self._space.reference)}
        ours = [t for t in history if self._space.is_valid(t.point)]
        rng = np.random.default_rng([self._seed, len(history), len(active)])
        point = self._ask(ours, active, taken, rng) if self._space.dimensions else None
        if point is None:
            point = _random_point(self._space, taken, rng)
        if point is None:
            return NotYet("every other point is running") if active else Exhausted(SPACE_EXHAUSTED)
        return Proposal(point, f"asked of {self.name}")

    def _ask(
        self,
        history: Sequence[Trial],
        active: Sequence[ActiveTrial],
        taken: set[Key],
        rng: np.random.Generator,
    ) -> Point | None:
        """A free valid point, or None to have one drawn at random."""
        raise NotImplementedError

    def _near(self, point: Point, taken: set[Key], rng: np.random.Generator) -> Point | None:
        """A free point that differs in one dimension: what a library meant, but not again."""
        changes: list[Point] = [
            {**point, d.name: v} for d in self._space.dimensions for v in d.values
        ]
        for i in rng.permutation(len(changes)):
            if self._free(changes[int(i)], taken):
                return changes[int(i)]
        return None

    def _free(self, point: Point, taken: set[Key]) -> bool:
        return point_key(point) not in taken and self._space.is_valid(point)


class RandomProposer(_Peer):
    """A valid point drawn evenly from those not tried."""

    name = "random"

    def _ask(
        self,
        history: Sequence[Trial],
        active: Sequence[ActiveTrial],
        taken: set[Key],
        rng: np.random.Generator,
    ) -> Point | None:
        return None


class OneFactorProposer(_Peer):
    """One factor at a time: each dimension in order, its values tried on the best so far."""

    name = "ofat"

    def _ask(
        self,
        history: Sequence[Trial],
        active: Sequence[ActiveTrial],
        taken: set[Key],
        rng: np.random.Generator,
    ) -> Point | None:
        good = [t for t in history if _seconds(t) is not None]
        best = min(good, key=lambda t: (_seconds(t) or 0.0, t.number), default=None)
        centre = best.point if best else self._space.reference
        done = len(taken)
        order = self._space.dimensions
        # The dimension after the one last changed goes first, so that none is starved.
        start = done % len(order) if order else 0
        for dimension in (*order[start:], *order[:start]):
            for value in dimension.values:
                point = {**centre, dimension.name: value}
                if self._free(point, taken):
                    return point
        return None


class OptunaProposer(_Peer):
    """Optuna's tree-structured Parzen estimator, told the history and asked once."""

    name = "optuna"

    def _ask(
        self,
        history: Sequence[Trial],
        active: Sequence[ActiveTrial],
        taken: set[Key],
        rng: np.random.Generator,
    ) -> Point | None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        choices: dict[str, Any] = {
            d.name: optuna.distributions.CategoricalDistribution(list(range(len(d.values))))
            for d in self._space.dimensions
        }
        sampler = optuna.samplers.TPESampler(
            seed=int(rng.integers(2**31)), multivariate=True, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler)
        worst = _worst(history)
        for trial in history:
            if trial.outcome is Outcome.INFRA:
                continue
            value = _seconds(trial)
            study.add_trial(
                optuna.trial.create_trial(
                    params=_indices(self._space, trial.point),
                    distributions=choices,
                    value=worst if value is None else value,
                )
            )
        for running in active:
            if self._space.is_valid(running.point):
                study.add_trial(
                    optuna.trial.create_trial(
                        state=optuna.trial.TrialState.RUNNING,
                        params=_indices(self._space, running.point),
                        distributions=choices,
                    )
                )
        for _ in range(MAX_ASKS):
            asked = study.ask(choices)
            point = _point(self._space, asked.params)
            if self._free(point, taken):
                return point
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return self._near(point, taken, rng)


class HyperoptProposer(_Peer):
    """HyperOpt's tree-structured Parzen estimator, told the history and asked once."""

    name = "hyperopt"

    def _ask(
        self,
        history: Sequence[Trial],
        active: Sequence[ActiveTrial],
        taken: set[Key],
        rng: np.random.Generator,
    ) -> Point | None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hyperopt 0.2.7 imports pkg_resources
            import hyperopt
            from hyperopt.base import Domain

        names = {d.name: f"d{i}" for i, d in enumerate(self._space.dimensions)}
        labels = {
            names[d.name]: hyperopt.hp.choice(names[d.name], list(range(len(d.values))))
            for d in self._space.dimensions
        }
        domain = Domain(None, labels, pass_expr_memo_ctrl=False)
        trials = hyperopt.Trials()
        told = [t for t in history if t.outcome is not Outcome.INFRA]
        worst = _worst(history)
        documents = [
            _document(hyperopt, i, names, _indices(self._space, t.point), _seconds(t) or worst)
            for i, t in enumerate(told)
        ]
        trials.insert_trial_docs(documents)
        trials.refresh()
        for _ in range(MAX_ASKS):
            asked = hyperopt.tpe.suggest(
                [len(told)], domain, trials, int(rng.integers(2**31)), n_startup_jobs=5
            )
            values = asked[0]["misc"]["vals"]
            point = _point(self._space, {n: values[label][0] for n, label in names.items()})
            if self._free(point, taken):
                return point
        return self._near(point, taken, rng)


def _document(
    hyperopt: Any, number: int, names: Mapping[str, str], indices: Mapping[str, int], loss: float
) -> dict[str, Any]:
    return {
        "tid": number,
        "spec": None,
        "result": {"status": hyperopt.STATUS_OK, "loss": loss},
        "misc": {
            "tid": number,
            "cmd": None,
            "idxs": {label: [number] for label in names.values()},
            "vals": {label: [indices[name]] for name, label in names.items()},
        },
        "exp_key": None,
        "owner": None,
        "version": 0,
        "book_time": None,
        "refresh_time": None,
        "state": hyperopt.JOB_STATE_DONE,
    }


def _seconds(trial: Trial) -> float | None:
    """The step time of an ok same-job trial."""
    if trial.outcome is not Outcome.OK or trial.same_job is False:
        return None
    value = trial.step_time_s
    return value if value is not None and isfinite(value) and value > 0 else None


def _worst(history: Sequence[Trial]) -> float:
    return FAILED_FACTOR * max((s for t in history if (s := _seconds(t))), default=1.0)


def _indices(space: Space, point: Mapping[str, Scalar]) -> dict[str, int]:
    return {d.name: d.values.index(point[d.name]) for d in space.dimensions}


def _point(space: Space, indices: Mapping[str, Any]) -> Point:
    return {d.name: d.values[int(indices[d.name])] for d in space.dimensions}


def _random_point(space: Space, taken: set[Key], rng: np.random.Generator) -> Point | None:
    """A valid untaken point; None where there is none (in a large space: none was found)."""
    sizes = [len(d.values) for d in space.dimensions]
    if space.size() <= MAX_ENUMERATED:
        draws = rng.permutation(space.size())
        columns = np.unravel_index(draws, sizes) if sizes else ()
    else:
        columns = tuple(rng.integers(0, size, MAX_DRAWS) for size in sizes)
    for row in zip(*columns, strict=True):
        point = {d.name: d.values[int(i)] for d, i in zip(space.dimensions, row, strict=True)}
        if point_key(point) not in taken and space.is_valid(point):
            return point
    return None


_MAKERS: dict[str, Callable[[Space, int], Proposer]] = {
    "optuna": OptunaProposer,
    "hyperopt": HyperoptProposer,
    "random": RandomProposer,
    "ofat": OneFactorProposer,
}
HYPOTHESIS = "hypothesis"
SEARCHERS = (HYPOTHESIS, *_MAKERS)


def make(
    name: str,
    space: Space,
    seed: int,
    *,
    noise_log_sd: float = 0.01,
    max_trials: int = 16,
    experience: Experience | None = None,
    stops: bool = True,
) -> Proposer:
    """The proposer of that name over `space`; one of `SEARCHERS`.

    Only the first has a use for `experience`, and only it stops before its budget.
    """
    if name == HYPOTHESIS:
        return HypothesisProposer(
            space,
            seed,
            noise_log_sd=noise_log_sd,
            max_trials=max_trials,
            experience=experience,
            stops=stops,
        )
    if name not in _MAKERS:
        raise UserError(
            f"`--searcher` is {name!r}, but must be one of {', '.join(SEARCHERS)}",
            fix=f"use `--searcher {HYPOTHESIS}`",
        )
    return _MAKERS[name](space, seed)
