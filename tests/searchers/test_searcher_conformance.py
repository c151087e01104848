"""Every searcher passes the suite that ships."""

import pytest

from infrarsi.contract import Space
from infrarsi.ports import Proposer
from infrarsi.testing.searcher_suite import SearcherSuite
from searchers import SEARCHERS, make


@pytest.fixture(params=SEARCHERS)
def _named(request: pytest.FixtureRequest) -> None:
    request.instance.name = request.param


@pytest.mark.usefixtures("_named")
class TestConformance(SearcherSuite):
    name: str

    def make(self, space: Space, seed: int) -> Proposer:
        return make(self.name, space, seed)
