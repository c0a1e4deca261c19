"""How many compiled programs stay in memory: those used last, as many as fit in a number of bytes.

Whoever keeps programs enters itself with what they take, says so when it runs one again (`used`), and forgets them
when it is asked to; what they need again is then compiled again, or read from the cache on disk. An entry that was
used since it was last looked at gets another round before it has to go (the clock of Corbato, A Paging Experiment with
the Multics System, 1968), so that a call sets a flag and takes no lock.

What a program takes is estimated, by its code, its constants and the nodes of its graph, which is kept for messages and
texts. `LOOPGRAD_PROGRAM_BYTES` is the limit, a number of bytes, of all devices together.
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import ref

from loopgrad.graph.nodes import Graph
from loopgrad.runtime.processes import child_safe_lock

LIMIT_VARIABLE: Final = "LOOPGRAD_PROGRAM_BYTES"
LIMIT_BYTES: Final = 1 << 29
NODE_BYTES: Final = 1 << 10  # of a graph, as measured, with what it refers to


class Keeper(Protocol):
    """What keeps programs."""

    used: bool

    def forget(self) -> None:
        """Keep them no longer."""
        ...


@dataclass(slots=True)
class _Entry:
    keeper: ref[Keeper]
    size: int


class ProgramMemory:
    """The keepers, those that were entered or looked at last at the end. `held`: bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._gone: deque[int] = deque()  # keepers that nobody has any more; finalizers take no lock
        self._lock = child_safe_lock()

    def add(self, keeper: Keeper, size: int) -> None:
        """Note that it takes so many bytes more. Others forget what they keep where that is too much."""
        with self._lock:
            self._sweep()
            number = id(keeper)
            known = self._entries.pop(number, None)
            entry = known or _Entry(ref(keeper, lambda _: self._gone.append(number)), 0)
            entry.size += size
            self.held += size
            self._entries[number] = entry
            leaving = self._leaving(number)
        for other in leaving:
            other.forget()

    def _sweep(self) -> None:
        while self._gone:
            entry = self._entries.pop(self._gone.popleft(), None)
            if entry is not None:
                self.held -= entry.size

    def _leaving(self, newest: int) -> list[Keeper]:
        """Those that make room, all but the newest at most; they are no entries any more."""
        leaving = []
        while self.held > self.limit and len(self._entries) > 1:
            number, entry = next(iter(self._entries.items()))
            keeper = entry.keeper()
            if number == newest or (keeper is not None and keeper.used):
                if keeper is not None:
                    keeper.used = False
                self._entries.move_to_end(number)
                continue
            del self._entries[number]
            self.held -= entry.size
            if keeper is not None:
                leaving.append(keeper)
        return leaving


def graph_bytes(graph: Graph) -> int:
    """What a graph takes, regions and data included."""
    total = 0
    for node in graph.nodes:
        data = node.attrs.get("data") if node.attrs else None
        total += NODE_BYTES + (len(data) if isinstance(data, bytes) else 0)
        total += sum([graph_bytes(region) for region in node.regions])
    return total


def chosen_limit() -> int:
    """What the environment says; the default, and a warning, where that is no number of bytes."""
    wanted = os.environ.get(LIMIT_VARIABLE, "")
    if not wanted:
        return LIMIT_BYTES
    if wanted.isascii() and wanted.isdigit():
        return int(wanted)
    text = f"{LIMIT_VARIABLE}: expected a number of bytes such as {LIMIT_BYTES}, got {wanted!r}; that number is used"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
    return LIMIT_BYTES


PROGRAMS: Final = ProgramMemory(chosen_limit())
