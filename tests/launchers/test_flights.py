"""What stands between the campaign's calls and Tune's; no Ray runs here."""

import pytest

from infrarsi.contract import (
    ExecutionRequest,
    ExecutionResult,
    Outcome,
    Overlay,
    RunKind,
    SnapshotRef,
)
from infrarsi.errors import ExternalError
from infrarsi.node.wire import pack_result
from infrarsi.ports import Progress
from launchers.flights import Flights


class Campaign:
    """Asks for one execution after another; raises in the call that `breaks` names."""

    def __init__(self, breaks: str = "") -> None:
        self.breaks = breaks
        self.asked = 0
        self.results: list[str] = []

    def check(self, call: str) -> None:
        if call == self.breaks:
            raise ExternalError(f"`{call}` broke")

    def suggest(self) -> ExecutionRequest | None:
        self.check("suggest")
        self.asked += 1
        return ExecutionRequest(
            f"trial-{self.asked}",
            RunKind.TIMED,
            SnapshotRef("digest", "/snapshot", "job"),
            Overlay("true"),
            "/receipt",
            "/cache",
            8,
            "witness",
            "",
        )

    def is_over(self) -> bool:
        self.check("is_over")
        return False

    def on_result(self, result: ExecutionResult) -> None:
        self.check("on_result")
        self.results.append(result.execution_id)

    def on_progress(self, execution_id: str, progress: Progress) -> bool:
        self.check("on_progress")
        return True

    def flights(self) -> Flights:
        return Flights(self.suggest, self.is_over, self.on_result, self.on_progress, extra={})


def fly(flights: Flights) -> None:
    """One whole trial as Tune conducts it."""
    flights.is_over()
    flights.suggest()
    live = {"execution_id": "trial-1", "runner": None, "steps": 1, "step_time_s": None}
    flights.on_progress(live)
    done = ExecutionResult("trial-1", Outcome.OK, "")
    flights.on_complete("tune-1", {"result": pack_result(done)}, False)


@pytest.mark.parametrize("call", ["suggest", "is_over", "on_result", "on_progress"])
def test_what_the_campaign_raises_ends_the_search_and_is_kept(call: str) -> None:
    flights = Campaign(breaks=call).flights()
    fly(flights)
    assert flights.is_over()
    assert isinstance(flights.fault, ExternalError)
    assert str(flights.fault) == f"`{call}` broke"


def test_each_result_comes_once_and_a_search_without_a_fault_goes_on() -> None:
    campaign = Campaign()
    flights = campaign.flights()
    fly(flights)
    flights.on_complete(
        "tune-1", {"result": pack_result(ExecutionResult("trial-1", Outcome.OK, ""))}, False
    )
    flights.land_lost(None)
    assert campaign.results == ["trial-1"]
    assert not flights.is_over()
    assert flights.fault is None
