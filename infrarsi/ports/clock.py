"""Time as an argument."""

from typing import Protocol


class Clock(Protocol):
    """Where the campaign reads time; `monotonic` for durations, `now` for dates (Unix seconds)."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        ...

    def now(self) -> float:
        """Seconds since 1970."""
        ...
