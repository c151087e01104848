"""What is set in infrarsi.yaml and not used yet is said in the report."""

from infrarsi.report import report
from infrarsi.runs import RunState


def test_accepted_settings_without_effect_are_named(promoted: RunState) -> None:
    promoted.started["budget"] = {"screens": 3, "llm_tokens": 5, "llm_usd": 1.0}
    promoted.started["experience"] = "auto"
    assert (
        "Set, but without effect in this version: `search.budget.llm_tokens`, "
        "`search.budget.llm_usd`, `experience`." in report(promoted)
    )


def test_nothing_is_said_where_nothing_of_the_kind_is_set(promoted: RunState) -> None:
    assert "without effect" not in report(promoted)


def test_utilization_is_shown_where_it_is_known(promoted: RunState) -> None:
    assert "FLOPs utilization" not in report(promoted)
    promoted.reference["mfu"] = 0.2149
    assert "| model FLOPs utilization (at least) | 21.5 % |" in report(promoted)
