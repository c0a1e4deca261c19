"""Python's collector of cycles, which looks seldom while a program is compiled, or what a script noted looked through.

Compiling makes objects that live until it ends: some million for ten thousand operations. Of each 700 the collector
looks through the youngest, and again and again through all there are, and finds next to nothing: that was a fourth of
the time. It still runs, so that what passes leave behind (a graph is a cycle) and what other threads drop goes.
"""

from __future__ import annotations

import gc
from contextlib import ContextDecorator
from typing import Final

from loopgrad.runtime.processes import child_safe_lock, renewed_in_children

YOUNG: Final = 50_000
"""Objects made between two collections. With that many, garbage takes some ten megabytes."""


class RareCollection(ContextDecorator):
    """A context and a decorator, for any number of threads at once: the first to enter sets the threshold, the last to
    leave sets it back. One that somebody else chose meanwhile stays, as does one that is higher, or 0 (no collection at
    all)."""

    def __init__(self) -> None:
        self._inside = 0
        self._before: tuple[int, int, int] | None = None
        self._lock = child_safe_lock()
        renewed_in_children(self._renew)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            young, *older = before = gc.get_threshold()
            if self._inside == 1 and 0 < young < YOUNG:
                self._before = before
                gc.set_threshold(YOUNG, *older)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()

    def _restore(self) -> None:
        if self._before is not None and gc.get_threshold() == (YOUNG, *self._before[1:]):
            gc.set_threshold(*self._before)
        self._before = None

    def _renew(self) -> None:
        """In a forked child nobody is inside."""
        self._inside = 0
        self._restore()


RARE_COLLECTION: Final = RareCollection()
