"""Memory of a machine: its symbols, what each slot lies in, control blocks, and the heap of kernels' stacks.

Slots that move, leave or are read by the host have memory of their own; the others lie in one arena.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from loopgrad.codegen.targets.gpu.interface import MOST_ROWS, control_bytes
from loopgrad.runtime.gpu.driver import Shared, Words
from loopgrad.runtime.gpu.failures import heap_failure
from loopgrad.runtime.gpu.learned import Learned
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.program import ProgramRecord
from loopgrad.runtime.gpu.resources import Resources

ALIGNMENT: Final = 256
CONTROL: Final = 64  # control blocks are aligned to this
ZERO, VOID, SUPPORT, SPARE, SLOTS = 0, 1, 2, 3, 4  # symbols; those of the slots begin at SLOTS


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


def defers(program: ProgramRecord) -> bool:
    """Whether all that a call may have to report are stacks that were too small."""
    return program.straight and not any(kernel.errors or kernel.rows for kernel in program.kernels)


class Placement:
    """`owners[slot]` is the memory of a slot that has its own, or of an input. The symbols of kernel k begin at
    `kernel_symbols[k]`: control block, invocations in flight, scratch blocks, then per stack its address and
    capacity. `fixed`: commands are recorded, so the number of invocations in flight can't change. `ledger`: where
    calls may be entered instead of being waited for; its word is then the one that kernels mark."""

    def __init__(self, program: ProgramRecord, resources: Resources, learned: Learned) -> None:
        self.program, self.resources, self.learned = program, resources, learned
        self.driver = resources.driver
        self.ledger = self.driver.ledger if defers(program) else None
        self.owners: list[Allocation | None] = [None] * len(program.slots)
        self._plan_symbols()
        self._plan_memory()
        self.symbols: Words = np.zeros(self.symbol_count, np.uint64)
        self.leaving = frozenset(program.outputs)
        self.use_control(self.driver.shared(self.control_size // 8))
        self.arena: Allocation | None = None
        self.heap: Allocation | None = None
        self.residents = [0] * len(program.kernels)
        self.version = -1  # of the capacities that the heap has
        self.fixed = False
        self.reporting = frozenset(
            [k for k, kernel in enumerate(program.kernels) if kernel.stacks or kernel.errors or kernel.rows]
        )

    # layout

    def _plan_symbols(self) -> None:
        self.kernel_symbols = []
        count = SLOTS + len(self.program.slots)
        for kernel in self.program.kernels:
            self.kernel_symbols.append(count)
            count += 2 + len(kernel.scratch) + 2 * len(kernel.stacks)
        self._tops = count
        self.symbol_count = count + len(self.program.stacks)

    def top_symbol(self, stack: int) -> int:
        """Where the next row of a stack of whole tensors begins, in recordings."""
        return self._tops + stack

    def use_control(self, shared: Shared) -> None:
        """Let the control blocks be the first of these words."""
        self.control = shared
        self.words = shared.words.view(np.uint8)[: self.control_size]
        base = shared.address
        self.symbols[VOID] = base if self.ledger is None else self.ledger.address
        self.symbols[SUPPORT] = base + CONTROL
        for k, first in enumerate(self.kernel_symbols):
            self.symbols[first] = base + self.control_at[k]

    def _plan_memory(self) -> None:
        """Offsets of symbols in the arena and in the memory of control blocks, and which slots need their own."""
        program = self.program
        self.constants = tuple([i for i, slot in enumerate(program.slots) if slot.constant is not None])
        placed = {*self.constants, *program.inputs, *[slot for slot, _ in program.arena]}
        self.own = tuple([(i, slot.type.nbytes) for i, slot in enumerate(program.slots) if i not in placed])
        self.offsets = [(SLOTS + slot, offset) for slot, offset in program.arena]
        for blocks, first in zip(program.scratch, self.kernel_symbols, strict=True):
            self.offsets += [(first + 2 + i, offset) for i, offset in enumerate(blocks)]
        self.arena_size = program.arena_size
        self.control_at, place = [], 2 * CONTROL
        for kernel in self.program.kernels:
            self.control_at.append(place)
            place += aligned(control_bytes(len(kernel.stacks)), CONTROL)
        self.control_size = place

    # one run

    def prepare(self, inputs: Sequence[Allocation], outputs: Sequence[Allocation] | None = None) -> None:
        """Memory for this run; that of the outputs may be given. What the last run didn't give away serves again."""
        program, data = self.program, self.driver
        if self.arena_size and self.arena is None:
            self.arena = data.take(self.arena_size)
            base = self.arena.address
            for symbol, offset in self.offsets:
                self.symbols[symbol] = base + offset
        owners, symbols = self.owners, self.symbols
        for slot, allocation in zip(program.inputs, inputs, strict=True):
            owners[slot] = allocation
            symbols[SLOTS + slot] = allocation.address
        for slot in self.constants:
            owners[slot] = allocation = self.resources.constant(program.slots[slot])
            symbols[SLOTS + slot] = allocation.address
        given = {} if outputs is None else dict(zip(program.outputs, outputs, strict=True))
        for slot, size in self.own:
            own = owners[slot]
            if own is None or slot in self.leaving:
                owners[slot] = own = given.get(slot) or data.take(size)
            symbols[SLOTS + slot] = own.address

    def part(self) -> None:
        """Hold the outputs no longer."""
        for slot in self.leaving:
            self.owners[slot] = None

    def free(self) -> None:
        """Give all memory of this run back."""
        self.owners = [None] * len(self.program.slots)
        self.arena = None
        self.heap = None

    # stacks inside kernels

    def reserve_heap(self) -> None:
        """A heap for the largest kernel, and where each stack lies in it. Where memory is short, fewer lanes
        are in flight."""
        if not self.program.kernel_stacks:
            return
        kernels = range(len(self.program.kernels))
        for k in kernels:
            if max(self.learned.capacities[k], default=0) > MOST_ROWS:  # kernels couldn't count them
                raise self.refusal(k, self.learned.capacities[k])
        if self.fixed and self.heap_is_short(max([self._heap_layout(k, 0) for k in kernels])):
            self.fixed = False
        if not self.fixed:
            self.residents = [self.choose_resident(k) for k in kernels]
        sizes = [self._heap_layout(k, 0) for k in kernels]
        while not self.fixed and self.heap_is_short(max(sizes)):
            largest = sizes.index(max(sizes))
            group = self.resources.pipeline(self.program.kernels[largest].module).group
            if self.program.kernels[largest].copies or self.residents[largest] <= group:
                break
            self.residents[largest] = aligned(self.residents[largest] // 2, group)
            sizes[largest] = self._heap_layout(largest, 0)
        if self.heap is None or self.heap.size < max(sizes):
            self.heap = None
            self.heap = self.resources.stack_heap(self.learned, max(sizes), max(self.residents))
        for k in kernels:
            self._heap_layout(k, self.heap.address)
        self.learned.residents[:] = self.residents
        self.version = self.learned.version

    def refusal(self, k: int, rows: Sequence[int]) -> MemoryError:
        """That no heap can hold so many rows and what a kernel needs beyond them; capacities start small again."""
        lanes = self.fewest(k)
        size = self._stack_bytes(k, rows, lanes)
        self.learned.forget()
        return heap_failure(self.program.kernels[k], size, self.driver.available(), lanes, counting=True)

    def fewest(self, k: int) -> int:
        """Invocations in flight of a kernel with stacks where memory is as short as it may be."""
        kernel = self.program.kernels[k]
        return aligned(max(kernel.copies, 1), self.resources.pipeline(kernel.module).group)

    def _stack_bytes(self, k: int, rows: Sequence[int], lanes: int) -> int:
        stacks = self.program.kernels[k].stacks
        return sum([aligned(r * lanes * stack.itemsize) for r, stack in zip(rows, stacks, strict=True)])

    def hopeless(self, k: int, rows: Sequence[int]) -> bool:
        """Whether stacks of so many rows can't be had, however few lanes are in flight."""
        size = self._stack_bytes(k, rows, self.fewest(k))
        held = 0 if self.heap is None else self.heap.size
        return size > held and not self.driver.ready(size) and size > held + self.driver.available()

    def heap_is_short(self, size: int) -> bool:
        return (self.heap is None or self.heap.size < size) and not self.resources.room(size)

    def choose_resident(self, k: int) -> int:
        """Invocations in flight of a kernel with stacks, and so the width of a row."""
        kernel = self.program.kernels[k]
        if not kernel.stacks or not kernel.lanes:
            return 0
        pipeline = self.resources.pipeline(kernel.module)
        if kernel.copies:
            return aligned(kernel.copies, pipeline.group)
        row = sum([c * s.itemsize for c, s in zip(self.learned.capacities[k], kernel.stacks, strict=True)])
        units = kernel.tiles or -(-kernel.lanes // pipeline.group)
        return min(units, self.driver.resident(pipeline, row)) * pipeline.group

    def _heap_layout(self, k: int, base: int) -> int:
        kernel, offset = self.program.kernels[k], 0
        first = self.kernel_symbols[k] + 2 + len(kernel.scratch)
        self.symbols[first - len(kernel.scratch) - 1] = self.residents[k]
        for s, stack in enumerate(kernel.stacks):
            capacity = self.learned.capacities[k][s]
            self.symbols[first + 2 * s] = base + offset
            self.symbols[first + 2 * s + 1] = capacity
            offset += aligned(capacity * self.residents[k] * stack.itemsize)
        return offset
