"""Records launches: geometry, address tables, dispatches.

Every array and parameter of a launch is a symbol: a number whose 64-bit value (an address, a capacity)
may change between submissions. A launch's table lists symbols; `refresh` writes all their values again, so
that a recorded command buffer serves new inputs, outputs and larger stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.runtime.vulkan.commands import Commands
from loopgrad.runtime.vulkan.gpu import Gpu
from loopgrad.runtime.vulkan.memory import Allocation, Heap

PASSES_IN_ORDER: Final = 1024  # lanes of a stretch per dispatch, where the driver stops long loops
FIRST_WORDS: Final = 1 << 10

Words = np.ndarray[Any, np.dtype[np.uint64]]


class _Table:
    """Address tables of consecutive launches, in memory that the host writes."""

    def __init__(self, host: Heap, words: int) -> None:
        self.allocation: Allocation = host.take(8 * words)
        self.words: Words = self.allocation.host(8 * words).view(np.uint64)
        self.index: list[int] = []


class Recorder:
    """One command buffer and its tables. `symbols` belongs to the caller."""

    def __init__(self, gpu: Gpu, host: Heap, symbols: Words) -> None:
        self.gpu = gpu
        self.symbols = symbols
        self._host = host
        self.commands = Commands(gpu)
        self._tables = [_Table(host, FIRST_WORDS)]
        self.commands.begin()

    def table(self, entries: Sequence[int]) -> int:
        """Append a launch's symbols; the address of its table."""
        table = self._tables[-1]
        start = len(table.index)
        if start + len(entries) > len(table.words):
            table = _Table(self._host, max(FIRST_WORDS, len(entries)))
            self._tables.append(table)
            start = 0
        table.index += entries
        table.words[start : start + len(entries)] = self.symbols[list(entries)]
        return table.allocation.address + 8 * start

    def refresh(self) -> None:
        """All tables with the symbols' values of now."""
        for table in self._tables:
            table.words[: len(table.index)] = self.symbols[table.index]

    def plain(self, pipeline: Any, lanes: int, table: int) -> None:
        """One lane per element, anywhere."""
        features = self.gpu.features
        resident = min(self.round(lanes), self.gpu.max_groups * features.group)
        passes = -(-lanes // resident)
        for first, end in self._ranges(passes, 1):
            self.commands.dispatch(pipeline, resident // features.group, (table, 1, resident, first, end, lanes))
        self.commands.barrier()

    def stacked(self, pipeline: Any, lanes: int, table: int, resident: int) -> None:
        """`resident` lanes at a time, each with its stacks."""
        groups = resident // self.gpu.features.group
        for first, end in self._ranges(-(-lanes // resident), 1):
            self.commands.dispatch(pipeline, groups, (table, 1, resident, first, end, lanes))
            self.commands.barrier()

    def ordered(self, pipeline: Any, lanes: int, table: int, copies: int, loops: bool) -> None:
        """`copies` invocations, each a stretch of lanes in order."""
        stretch = -(-lanes // copies)
        groups = self.round(copies) // self.gpu.features.group
        for first, end in self._ranges(stretch, 1 if loops else PASSES_IN_ORDER):
            self.commands.dispatch(pipeline, groups, (table, stretch, 1, first, end, lanes))
            self.commands.barrier()

    def _ranges(self, passes: int, step: int) -> list[tuple[int, int]]:
        if self.gpu.features.endless_loops:
            return [(0, passes)]
        return [(first, min(first + step, passes)) for first in range(0, passes, step)]

    def round(self, lanes: int) -> int:
        group = self.gpu.features.group
        return -(-lanes // group) * group

    def run(self) -> None:
        """Submit what was recorded up to `end`, and wait."""
        self.commands.run()

    def end(self) -> None:
        self.commands.end()

    def restart(self) -> None:
        """Forget what was recorded; the submission is done."""
        del self._tables[1:]
        self._tables[0].index.clear()
        self.commands.begin()
