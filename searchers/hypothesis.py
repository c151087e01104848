"""`HypothesisSearcher`: what Ray Tune sees of a search. Importing this imports ray.tune."""

from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.search import Searcher

from infrarsi.errors import ExternalError

METRIC = "log_step_time"

Suggest = Callable[[], Mapping[str, object] | None]
IsOver = Callable[[], bool]
OnComplete = Callable[[str, Mapping[str, object] | None, bool], None]


class HypothesisSearcher(Searcher):  # type: ignore[misc]  # ray.tune is untyped here
    """Hands Tune what the campaign wants to run next, and the campaign what came of it.

    All state is the campaign's journal. Tune pickles its searcher; a copy restored from that has
    no campaign behind it and refuses to go on.
    """

    def __init__(self, suggest: Suggest, is_over: IsOver, on_complete: OnComplete) -> None:
        # Tune does not call set_search_properties with an empty param_space (Ray 2.60).
        super().__init__(metric=METRIC, mode="min")
        self._suggest: Suggest | None = suggest
        self._is_over: IsOver | None = is_over
        self._on_complete: OnComplete | None = on_complete
        self.configs: dict[str, dict[str, object]] = {}

    def suggest(self, trial_id: str) -> dict[str, object] | str | None:
        """A configuration, None for not yet, or FINISHED, which is final. Never blocks."""
        if self._suggest is None or self._is_over is None:
            raise _restored()
        if self._is_over():
            finished: str = Searcher.FINISHED
            return finished
        config = self._suggest()
        if config is None:
            return None
        self.configs[trial_id] = dict(config)
        return dict(config)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, object] | None = None, error: bool = False
    ) -> None:
        """Pass the end of a trial on; `result` is None where Ray lost it."""
        if self._on_complete is None:
            raise _restored()
        self._on_complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal is the only state."""

    def restore(self, checkpoint_path: str) -> None:
        """Refused: a campaign is continued from its journal."""
        raise _restored()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(_suggest=None, _is_over=None, _on_complete=None)
        return state


def _restored() -> ExternalError:
    return ExternalError(
        "a searcher restored from Ray Tune's own checkpoint cannot go on: the truth is the "
        "campaign's journal, and Tune's copy can be older",
        fix="continue the campaign with `infrarsi run --resume`",
    )
