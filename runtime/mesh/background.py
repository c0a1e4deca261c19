"""A thread of a process that does what the process has to do with the others, while it computes.

Work is done in the order in which it is handed over, one thing after the other: all processes hand over the same, so
their messages match. Whoever wants to send something itself waits until all of that is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Background:
    """Starts its thread when there is something to do."""

    def __init__(self) -> None:
        self._workers = ThreadPoolExecutor(1, "loopgrad collectives", self._enter)
        self._thread = 0

    def _enter(self) -> None:
        self._thread = threading.get_ident()

    def do(self, work: Callable[[], T]) -> Future[T]:
        return self._workers.submit(work)

    @property
    def here(self) -> bool:
        """Whether this is its thread."""
        return threading.get_ident() == self._thread
