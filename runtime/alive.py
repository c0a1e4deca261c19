"""Objects that somebody still holds, listed and added to by any number of threads."""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Alive(Generic[T]):
    """A set of weak references. (To iterate over a WeakSet fails where another thread adds to it meanwhile.)"""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._found: dict[int, ref[T]] = {}

    def add(self, member: T) -> None:
        found, number = self._found, next(self._numbers)
        found[number] = ref(member, lambda _: found.pop(number, None))

    def members(self) -> list[T]:
        """Those that are there now, in the order in which they came."""
        references = list(self._found.values())  # one step: no other thread runs meanwhile
        return [member for reference in references if (member := reference()) is not None]
