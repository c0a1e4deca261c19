"""A clock for rounds that were timed elsewhere: pytest-benchmark reads it before and after each."""

from __future__ import annotations


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self._now = 0.0

    def read(self) -> float:
        return self._now

    def set(self, seconds: float = 0.0) -> None:
        """Set to zero before a round and to its time after it: the difference isn't rounded."""
        self._now = seconds
