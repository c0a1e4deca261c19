"""Records launches: geometry, address tables, dispatches.

Every array and parameter of a launch is a symbol: a number whose 64-bit value (an address, a capacity)
may change between runs. A launch's table lists symbols; `refresh` writes all their values again, so that a
recorded list of commands serves new inputs, outputs and larger stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.runtime.gpu.driver import Driver, LibraryCall, Shared, Words

PASSES_IN_ORDER: Final = 1024  # lanes of a stretch per dispatch, where the driver stops long loops
FIRST_WORDS: Final = 1 << 10
ONE: Final = (0,)


class _Table:
    """Address tables of consecutive launches. `changed`: the device has not seen these words."""

    def __init__(self, driver: Driver, words: int) -> None:
        self.shared: Shared = driver.shared(words)
        self.words = self.shared.words
        self.symbols: list[int] = []
        self.index: np.ndarray[Any, np.dtype[np.intp]] | None = None  # the symbols, once all are known
        self.changed = False


class Recorder:
    """One list of commands and its tables. `symbols` belongs to the caller. `called`: whether a library's work is among
    the commands."""

    def __init__(self, driver: Driver, symbols: Words, commands: Any = None) -> None:
        self.driver = driver
        self.symbols = symbols
        self.commands = driver.commands() if commands is None else commands
        self._tables = [_Table(driver, FIRST_WORDS)]
        self.called = False
        self.commands.begin()

    def table(self, entries: Sequence[int]) -> int:
        """Append a launch's symbols; the address of its table."""
        table, start = self._room(len(entries))
        table.symbols += entries
        table.words[start : start + len(entries)] = self.values(list(entries))
        return table.shared.address + 8 * start

    def values(self, symbols: Sequence[int]) -> Words:
        """What they stand for now."""
        return self.symbols[symbols]

    def word(self, value: int) -> int:
        """The address of a word that holds `value` until the commands have run. It is no symbol."""
        table, start = self._room(1)
        table.symbols += ONE
        table.words[start] = value & 0xFFFFFFFFFFFFFFFF
        return table.shared.address + 8 * start

    def _room(self, count: int) -> tuple[_Table, int]:
        table = self._tables[-1]
        start = len(table.symbols)
        if start + count > len(table.words):
            table = _Table(self.driver, max(2 * len(table.words), count))
            self._tables.append(table)
            start = 0
        table.changed = True
        return table, start

    def refresh(self) -> None:
        """All tables with the symbols' values of now."""
        for table in self._tables:
            if table.index is None:
                table.index = np.array(table.symbols, np.intp)
            new, used = self.symbols[table.index], table.words[: len(table.index)]
            if new.tobytes() != used.tobytes():  # for so few words the fastest comparison
                used[:] = new
                table.changed = True

    def call(self, call: LibraryCall, entries: Sequence[int]) -> None:
        """A library's work on the arrays of these symbols."""
        self.called = True
        table, start = self._room(len(entries))
        table.symbols += entries
        place = table.words[start : start + len(entries)]
        place[:] = self.symbols[list(entries)]
        self.commands.call(call, place)

    # dispatches

    def plain(self, pipeline: Any, lanes: int, table: int) -> None:
        """One lane per element, anywhere."""
        groups = min(-(-lanes // pipeline.group), self.driver.filling(pipeline))
        along = groups * pipeline.group
        for first, end in self._ranges(-(-lanes // along), 1):
            self.commands.dispatch(pipeline, groups, (table, 1, along, first, end, lanes))

    def stacked(self, pipeline: Any, lanes: int, table: int, resident: int) -> None:
        """`resident` lanes at a time, each with its stacks."""
        groups = resident // pipeline.group
        for first, end in self._ranges(-(-lanes // resident), 1):
            self._behind(first)
            self.commands.dispatch(pipeline, groups, (table, 1, resident, first, end, lanes))

    def tiled(self, pipeline: Any, tiles: int, table: int, groups: int) -> None:
        """A workgroup per tile, `groups` of them at a time."""
        for first, end in self._ranges(-(-tiles // groups), 1):
            self._behind(first)
            self.commands.dispatch(pipeline, groups, (table, 1, groups, first, end, tiles))

    def ordered(self, pipeline: Any, lanes: int, table: int, copies: int, loops: bool) -> None:
        """`copies` invocations, each a stretch of lanes in order."""
        stretch = -(-lanes // copies)
        groups = -(-copies // pipeline.group)
        for first, end in self._ranges(stretch, 1 if loops else PASSES_IN_ORDER):
            self._behind(first)
            self.commands.dispatch(pipeline, groups, (table, stretch, 1, first, end, lanes))

    def _behind(self, first: int) -> None:
        """Dispatches of one launch, but for the first, come after each other."""
        if first:
            self.commands.barrier()

    def _ranges(self, passes: int, step: int) -> list[tuple[int, int]]:
        if self.driver.endless_loops:
            return [(0, passes)]
        return [(first, min(first + step, passes)) for first in range(0, passes, step)]

    # runs

    def end(self, again: bool) -> None:
        """Nothing more is recorded; `again`: to be run many times."""
        self.commands.end(again)

    def run(self, report: Shared | None, sent: Sequence[Shared] = ()) -> None:
        """Do what was recorded up to `end`, after these words are sent; wait where there is a report."""
        changed = [table for table in self._tables if table.changed]
        uploads = [(table.shared, len(table.symbols)) for table in changed]
        self.commands.run([*uploads, *[(shared, len(shared.words)) for shared in sent]], report)
        for table in changed:
            table.changed = False

    def repeat(self) -> None:
        """Do what has run before, with the same words; the device's lock is held."""
        self.commands.repeat()

    def restart(self) -> None:
        """Forget what was recorded."""
        self.called = False
        del self._tables[1:]
        table = self._tables[0]
        table.symbols.clear()
        table.index = None
        table.changed = False
        self.commands.begin()
