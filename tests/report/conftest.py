"""Runs that got to different stages."""

import pytest
from finished_journal import STAGES, state_at

from infrarsi.runs import RunState


@pytest.fixture
def promoted() -> RunState:
    """A run that ended with a promoted candidate."""
    return state_at("promoted")


@pytest.fixture(params=STAGES)
def at_any_stage(request: pytest.FixtureRequest) -> RunState:
    """Runs that ended after each stage."""
    return state_at(request.param)
