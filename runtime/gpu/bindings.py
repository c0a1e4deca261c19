"""What a program's symbols stand for in one run: memory of inputs, results and temporaries.

Owns the values of the symbols and the allocations behind the slots. Slots that move, leave or are read by the host
have memory of their own; the others lie in one arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from loopgrad.runtime.gpu.driver import Driver, Words
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.placement import CONTROL, SLOTS, SUPPORT, VOID, Placement
from loopgrad.runtime.gpu.recorder import Recorder

NOTHING: Final[Mapping[int, Allocation | None]] = MappingProxyType({})


class Bindings:
    """`owners[slot]` is the memory of a slot that has its own, or of an input. `peaks`: how deep each stack of whole
    tensors became. `void`: the address of the word that makes launches do nothing."""

    def __init__(self, loaded: LoadedProgram, placement: Placement, void: int) -> None:
        self.program, self._loaded, self._placement = loaded.program, loaded, placement
        self._driver: Driver = loaded.driver
        self.owners: list[Allocation | None] = [None] * len(self.program.slots)
        self.symbols: Words = np.zeros(placement.count, np.uint64)
        self.symbols[VOID] = void
        self.symbols[SUPPORT] = placement.shared.address + CONTROL
        for symbols, offset in zip(placement.kernels, placement.control_at, strict=True):
            self.symbols[symbols.control] = placement.shared.address + offset
        self.peaks = [0] * len(self.program.stacks)
        self._arena: Allocation | None = None
        self._leaving = frozenset(self.program.outputs)
        own = [*self.program.inputs, *[slot for slot, _ in placement.own]]
        self._places = np.array([SLOTS + slot for slot in own], np.intp)
        self._in_arena = np.array([symbol for symbol, _ in placement.offsets], np.intp)
        self._offsets = np.array([offset for _, offset in placement.offsets], np.uint64)

    def prepare(
        self,
        inputs: Sequence[Allocation],
        given: Mapping[int, Allocation | None] = NOTHING,
        arena: Allocation | None = None,
    ) -> None:
        """Memory for this run; that of some slots and the arena may be given. What the last run didn't give away
        serves again."""
        program, placement, owners, symbols = self.program, self._placement, self.owners, self.symbols
        if placement.arena_size and self._arena is None:
            self._arena = self._driver.take(placement.arena_size) if arena is None else arena
            symbols[self._in_arena] = self._offsets + np.uint64(self._arena.address)
        for slot, allocation in zip(program.inputs, inputs, strict=True):
            owners[slot] = allocation
            symbols[SLOTS + slot] = allocation.address
        for slot in placement.constants:
            owners[slot] = allocation = self._loaded.constant(program.slots[slot])
            symbols[SLOTS + slot] = allocation.address
        for slot, size in placement.own:
            own = owners[slot]
            if own is None or slot in self._leaving:
                owners[slot] = own = given.get(slot) or self._driver.take(size)
            symbols[SLOTS + slot] = own.address

    def move(self, addresses: Sequence[int]) -> None:
        """Let the arrays lie at these addresses: the inputs, slots with memory of their own, the arena where there is
        one. Constants lie where they did in an earlier run."""
        known = np.array(addresses, np.uint64)
        self.symbols[self._places] = known[: len(self._places)]
        if self._placement.arena_size:
            self.symbols[self._in_arena] = self._offsets + known[-1]

    def bind(self, slot: int, allocation: Allocation) -> Allocation | None:
        """Let the slot be this memory. The memory that it was, which must live until what was recorded has run."""
        before, self.owners[slot] = self.owners[slot], allocation
        self.symbols[SLOTS + slot] = allocation.address
        return before

    def swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        """The slots of each pair change their memory."""
        for a, b in pairs:
            self.owners[a], self.owners[b] = self.owners[b], self.owners[a]
            x, y = SLOTS + a, SLOTS + b
            self.symbols[x], self.symbols[y] = self.symbols[y], self.symbols[x]

    def owner(self, slot: int) -> Allocation:
        """The memory of a slot that has its own."""
        found = self.owners[slot]
        assert found is not None
        return found

    def copy_shadowed(self, recorder: Recorder) -> list[Allocation | None]:
        """Record copies of the inputs and constants that the program writes, and let the slots be these. What they
        were before must live until the copies are made."""
        before = []
        for slot in self.program.shadowed:
            source, size = self.owner(slot), self.program.slots[slot].type.nbytes
            target = self._driver.take(size)
            before.append(self.bind(slot, target))
            if size:
                recorder.commands.copy(source, target, size)
                recorder.commands.barrier()
        return before

    @property
    def results(self) -> list[Allocation]:
        return [self.owner(slot) for slot in self.program.outputs]

    def part(self) -> None:
        """Hold the outputs no longer."""
        for slot in self._leaving:
            self.owners[slot] = None

    def free(self) -> None:
        """Give all memory of this run back."""
        self.owners = [None] * len(self.program.slots)
        self._arena = None
