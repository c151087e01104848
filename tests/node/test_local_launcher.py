"""The launcher without Ray passes the suite that ships."""

import os
from contextlib import AbstractContextManager

from infrarsi.node.local_bench import LocalBench
from infrarsi.ports import Bench
from infrarsi.testing import LauncherSuite
from infrarsi.testing.launcher_suite import RULES, SECRETS


class TestLocalBench(LauncherSuite):
    @classmethod
    def make_bench(cls) -> AbstractContextManager[Bench]:
        return LocalBench(base={**os.environ, **SECRETS, "RAY_ADDRESS": "x"}, rules=RULES)
