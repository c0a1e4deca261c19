"""The heap of the stacks inside kernels: how many lanes are in flight, and where each stack lies.

Owns the heap's memory and the symbols of stacks. A row of a stack is as wide as the invocations in flight, so deep
stacks and little memory mean fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.interface import MOST_ROWS
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.driver import Words
from loopgrad.runtime.gpu.failures import heap_failure
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import Placement, aligned

LARGEST_HEAP: Final = 1 << 62


class StackHeap:
    """`residents[k]`: invocations in flight of a kernel with stacks."""

    def __init__(self, loaded: LoadedProgram, capacities: Capacities, placement: Placement, symbols: Words) -> None:
        self._loaded, self._capacities, self._placement, self._symbols = loaded, capacities, placement, symbols
        self._program, self._driver = loaded.program, loaded.driver
        self._memory: Allocation | None = None
        self._version = -1  # of the capacities that there is room for
        self._laid_out: list[tuple[int, int]] = []  # symbols of stacks, and where in the heap they lie
        self._size = 0  # of all that was laid out
        self._base = 0  # where
        self.residents = [0] * len(self._program.kernels)

    @property
    def current(self) -> bool:
        """Whether there is a heap, for the capacities of now: other contexts may have needed deeper stacks."""
        return self._memory is not None and self._version == self._capacities.version

    @property
    def size(self) -> int:
        return 0 if self._memory is None else self._memory.size

    @property
    def address(self) -> int:
        return 0 if self._memory is None else self._memory.address

    def free(self) -> None:
        """Give the memory back."""
        self._memory = None

    def reserve(self, keep: bool = False) -> bool:
        """Memory for the kernel that needs most, and where each stack lies in it. Where memory is short, fewer lanes
        are in flight. `keep`: commands were recorded for the numbers of now, which stay as they are if there is room;
        whether they did."""
        if not self._program.kernel_stacks:
            return keep
        if keep and self._version == self._capacities.version and self._retaken():
            return True
        kernels = range(len(self._program.kernels))
        for k in kernels:
            if max(self._capacities.kernels[k], default=0) > MOST_ROWS:  # kernels couldn't count them
                raise self.refusal(k, self._capacities.kernels[k])
        keep = keep and not self._is_short(max([self._lay_out(k, 0) for k in kernels]))
        if not keep:
            self.residents = [self._choose_resident(k) for k in kernels]
        sizes = [self._lay_out(k, 0) for k in kernels]
        while not keep and self._is_short(max(sizes)):
            largest = sizes.index(max(sizes))
            group = self._loaded.pipeline(self._program.kernels[largest].module).group
            if self._program.kernels[largest].copies or self.residents[largest] <= group:
                break
            self.residents[largest] = aligned(self.residents[largest] // 2, group)
            sizes[largest] = self._lay_out(largest, 0)
        if self._memory is None or self._memory.size < max(sizes):
            self._memory = None
            self._memory = self._take(max(sizes), max(self.residents))
        self._size, self._base = max(sizes), self._memory.address
        self._laid_out.clear()
        for k in kernels:
            self._lay_out(k, self._base)
        self._capacities.residents[:] = self.residents
        self._version = self._capacities.version
        return keep

    def _retaken(self) -> bool:
        """Memory for what was laid out last, which nothing has changed: it only moves. False where memory is short."""
        if self._memory is None:
            if not self._has_room(self._size):
                return False
            try:
                self._memory = self._driver.take(self._size)
            except MemoryError:
                return False
        base = self._memory.address
        if base != self._base:
            for symbol, offset in self._laid_out:
                self._symbols[symbol] = base + offset
            self._base = base
        self._capacities.residents[:] = self.residents
        return True

    def _choose_resident(self, k: int) -> int:
        kernel = self._program.kernels[k]
        if not kernel.stacks or not kernel.lanes:
            return 0
        pipeline = self._loaded.pipeline(kernel.module)
        if kernel.copies:
            return aligned(kernel.copies, pipeline.group)
        row = sum([c * s.itemsize for c, s in zip(self._capacities.kernels[k], kernel.stacks, strict=True)])
        units = kernel.tiles or -(-kernel.lanes // pipeline.group)
        return min(units, self._driver.resident(pipeline, row)) * pipeline.group

    def _lay_out(self, k: int, base: int) -> int:
        """Give the kernel's symbols their values; the bytes that its stacks take."""
        kernel, symbols, offset = self._program.kernels[k], self._placement.kernels[k], 0
        self._symbols[symbols.resident] = self.residents[k]
        for s, stack in enumerate(kernel.stacks):
            capacity = self._capacities.kernels[k][s]
            self._symbols[symbols.stacks + 2 * s] = base + offset
            self._laid_out.append((symbols.stacks + 2 * s, offset))
            self._symbols[symbols.stacks + 2 * s + 1] = capacity
            offset += aligned(capacity * self.residents[k] * stack.itemsize)
        return offset

    # memory that is short

    def _has_room(self, size: int) -> bool:
        return size <= LARGEST_HEAP and (self._driver.ready(size) or size <= self._driver.available())

    def _is_short(self, size: int) -> bool:
        return (self._memory is None or self._memory.size < size) and not self._has_room(size)

    def _take(self, size: int, lanes: int) -> Allocation:
        """Memory for `lanes` lanes in flight; MemoryError that names the loop where there is no room."""
        available = None
        if self._has_room(size):
            try:
                return self._driver.take(size)
            except MemoryError:
                available = size - 1
        available = min(self._driver.available(), available or LARGEST_HEAP)
        rows = self._capacities.kernels
        deepest = max(range(len(self._program.kernels)), key=lambda k: max(rows[k], default=0))
        self._capacities.forget()
        raise heap_failure(self._program.kernels[deepest], size, available, lanes)

    def is_hopeless(self, k: int, rows: Sequence[int]) -> bool:
        """Whether stacks of so many rows can't be had, however few lanes are in flight."""
        size = self._bytes(k, rows, self._fewest(k))
        return size > self.size and not self._driver.ready(size) and size > self.size + self._driver.available()

    def refusal(self, k: int, rows: Sequence[int]) -> MemoryError:
        """That no heap can hold so many rows and what a kernel needs beyond them; capacities start small again."""
        lanes = self._fewest(k)
        size = self._bytes(k, rows, lanes)
        self._capacities.forget()
        return heap_failure(self._program.kernels[k], size, self._driver.available(), lanes, counting=True)

    def _fewest(self, k: int) -> int:
        """Invocations in flight of a kernel with stacks where memory is as short as it may be."""
        kernel = self._program.kernels[k]
        return aligned(max(kernel.copies, 1), self._loaded.pipeline(kernel.module).group)

    def _bytes(self, k: int, rows: Sequence[int], lanes: int) -> int:
        stacks = self._program.kernels[k].stacks
        return sum([aligned(r * lanes * stack.itemsize) for r, stack in zip(rows, stacks, strict=True)])
