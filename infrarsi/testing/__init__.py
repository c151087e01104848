"""Conformance suites and fakes that ship: what anything behind a port must do.

The names are loaded when they are used, since the suites import pytest.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infrarsi.testing.launcher_suite import Lab, LauncherSuite
    from infrarsi.testing.searcher_suite import SearcherSuite

__all__ = ["Lab", "LauncherSuite", "SearcherSuite"]
_HOMES = {
    "Lab": "launcher_suite",
    "LauncherSuite": "launcher_suite",
    "SearcherSuite": "searcher_suite",
}


def __getattr__(name: str) -> Any:
    import importlib
    import sys

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pytest

    home = f"{__name__}.{_HOMES[name]}"
    if home not in sys.modules:
        pytest.register_assert_rewrite(home)  # so that a failure shows the values
    return getattr(importlib.import_module(home), name)
