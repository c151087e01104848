"""The thin searcher that Tune holds: passes through, never goes on from a pickle."""

import pickle
from collections.abc import Mapping

import pytest

from infrarsi.errors import ExternalError
from searchers import hypothesis


class FakeCampaign:
    """Answers from lists, and remembers what it was told."""

    def __init__(self, answers: list[Mapping[str, object] | None]) -> None:
        self.answers = answers
        self.over = False
        self.completed: list[tuple[str, Mapping[str, object] | None, bool]] = []

    def suggest(self) -> Mapping[str, object] | None:
        return self.answers.pop(0)

    def is_over(self) -> bool:
        return self.over

    def on_complete(self, trial_id: str, result: Mapping[str, object] | None, error: bool) -> None:
        self.completed.append((trial_id, result, error))


def searcher_of(campaign: FakeCampaign) -> hypothesis.HypothesisSearcher:
    return hypothesis.HypothesisSearcher(campaign.suggest, campaign.is_over, campaign.on_complete)


def test_suggestions_pass_through_until_the_campaign_is_over() -> None:
    campaign = FakeCampaign([{"number": 1}, None, {"number": 2}])
    searcher = searcher_of(campaign)
    assert searcher.suggest("a") == {"number": 1}
    assert searcher.suggest("b") is None
    assert searcher.suggest("b") == {"number": 2}
    campaign.over = True
    assert searcher.suggest("c") == hypothesis.Searcher.FINISHED
    assert searcher.configs == {"a": {"number": 1}, "b": {"number": 2}}


def test_what_tune_changes_in_a_config_is_not_the_campaigns() -> None:
    config = {"number": 1}
    searcher = searcher_of(FakeCampaign([config]))
    handed_out = searcher.suggest("a")
    handed_out["extra"] = True
    assert config == {"number": 1} == searcher.configs["a"]


@pytest.mark.parametrize(("result", "error"), [({"outcome": "ok"}, False), (None, True)])
def test_the_end_of_a_trial_is_passed_on(result: Mapping[str, object] | None, error: bool) -> None:
    campaign = FakeCampaign([{"number": 1}])
    searcher = searcher_of(campaign)
    searcher.suggest("a")
    searcher.on_trial_complete("a", result=result, error=error)
    assert campaign.completed == [("a", result, error)]


def test_metric_and_mode_are_set_from_the_start() -> None:
    searcher = searcher_of(FakeCampaign([]))
    assert (searcher.metric, searcher.mode) == (hypothesis.METRIC, "min")


def test_a_pickled_searcher_refuses_to_go_on() -> None:
    campaign = FakeCampaign([{"number": 1}])
    searcher = searcher_of(campaign)
    searcher.suggest("a")
    restored = pickle.loads(pickle.dumps(searcher))
    assert restored.configs == {"a": {"number": 1}}
    with pytest.raises(ExternalError, match="journal"):
        restored.suggest("b")
    with pytest.raises(ExternalError, match="journal"):
        restored.on_trial_complete("a")
    with pytest.raises(ExternalError, match="journal"):
        searcher.restore("anywhere")
