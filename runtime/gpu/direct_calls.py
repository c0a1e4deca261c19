"""Calls that need nothing of the host but addresses: the commands of a call whose arrays lay at the same places are
started once more, as they are.

That is so for programs without loops and branches over whole arrays and without checks. Arrays that a script makes and
drops in turn come back to a few sets of addresses, and each set has commands and tables of its own, so that nothing is
written or sent. A script that keeps its results asks for new addresses all the time: then calls go the ordinary way.

Stacks inside kernels lie in a heap, one more address, as long as none grows. Such calls are entered in the ledger
(`runtime.gpu.ledger`). If it has one done again, for whatever addresses, the commands of that one are given up.

Programs whose devices exchange memory with those of other processes (`runtime.gpu.recorded_exchange`) are called so,
too, where the ledger is empty: what was sent can't be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.graph.primitives.collectives import memory_engine
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.context import GpuContext
from loopgrad.runtime.gpu.ledger import Ledger
from loopgrad.runtime.gpu.loaded_program import LoadedProgram
from loopgrad.runtime.gpu.memory import Allocation

SETS: Final = 4  # of addresses, each with commands of its own
MISSES: Final = 16  # in a row, after which as many calls don't look
PAUSE: Final = 256


class DirectCalls:
    """Of one executable, under its device's lock. `has_stacks`: its calls are always entered in the ledger."""

    def __init__(self, loaded: LoadedProgram, capacities: Capacities) -> None:
        program = loaded.program
        self._loaded, self._capacities = loaded, capacities
        self._take = loaded.driver.take
        self._made = _made(program)
        self._sizes = [program.slots[slot].type.nbytes for slot in self._made]
        self._order = [self._made.index(slot) for slot in program.outputs]
        self._arena = program.arena.size
        self.has_stacks = program.kernel_stacks
        self._meets = program.exchanges
        self.heap_bytes = 0  # of the stacks, once a call has had them
        self._version = -1  # of the capacities that the commands are for
        self._known: dict[tuple[int, ...], GpuContext] = {}
        self._misses = 0

    @staticmethod
    def suit(loaded: LoadedProgram, capacities: Capacities) -> bool:
        """Whether all that a call of this program needs are addresses."""
        program, driver = loaded.program, loaded.driver
        silent = not any(k.errors or k.resumable for k in program.kernels) and driver.endless_loops
        deferred = not program.kernel_stacks or (driver.ledger is not None and capacities.forced is None)
        recorded = program.exchanges or (program.straight and loaded.recordable)
        return silent and deferred and recorded and _only_makes(program)

    def run(self, inputs: Sequence[Allocation], ledger: Ledger | None) -> list[Allocation] | None:
        """The results' memory, of a call that is entered in the ledger if one is given; None where the call has to go
        the ordinary way."""
        if self._misses >= MISSES:
            self._misses += 1
            if self._misses < MISSES + PAUSE:
                return None
            self._misses = 0
        if not self._capacities.ran or (self._meets and (ledger is not None or memory_engine() is None)):
            return None
        if self._version != self._capacities.version:
            self._version, self.heap_bytes = self._capacities.version, 0
            self._known.clear()
        take = self._take
        try:
            made = [take(size) for size in self._sizes]
            arena = take(self._arena) if self._arena else None
            heap = take(self.heap_bytes) if self.heap_bytes else None
        except MemoryError:  # what only the ledger holds is given back on the ordinary way
            return None
        addresses = [a.address for a in inputs]
        addresses += [a.address for a in made]
        if arena is not None:
            addresses.append(arena.address)
        known = self._known.get((*addresses, 0 if heap is None else heap.address))
        if known is None or known.runs > 1:
            del heap
            return self._first(addresses, inputs, made, arena, ledger)
        results = [made[i] for i in self._order]
        self._misses = 0
        if ledger is None:
            known.repeat()
        else:
            ledger.begin()
            known.repeat()
            ledger.add(known, inputs, results)
        return results

    def _first(
        self,
        addresses: Sequence[int],
        inputs: Sequence[Allocation],
        made: Sequence[Allocation],
        arena: Allocation | None,
        ledger: Ledger | None,
    ) -> list[Allocation] | None:
        """A call at addresses that no commands are for."""
        self._misses += 1
        self._known = {key: context for key, context in self._known.items() if context.runs == 1}
        if len(self._known) == SETS:
            if self._misses != MISSES // 2:
                return None  # the sets that there are may come again
            del self._known[next(iter(self._known))]
        context = GpuContext(self._loaded, self._capacities, adapt=False)
        if ledger is not None:
            ledger.begin()
        try:
            given = dict(zip(self._made, made, strict=True))
            results = context.run(inputs, given, later=ledger is not None, arena=arena)
        except MemoryError:
            if self._meets:  # also of another process, and others know
                raise
            return None  # as above
        if ledger is not None:
            ledger.add(context, inputs, results)
        self.heap_bytes = context.heap_bytes
        self._known[*addresses, context.heap_address] = context
        context.release()
        return results


def _made(program: ProgramRecord) -> list[int]:
    """The slots with memory of their own that a call takes."""
    placed = {*program.inputs, *program.arena.slots}
    return [i for i, slot in enumerate(program.slots) if i not in placed and slot.constant is None]


def _only_makes(program: ProgramRecord) -> bool:
    """Whether every result is an array that the program makes, in memory of its own."""
    outputs = set(program.outputs)
    return outputs.issubset(_made(program)) and len(outputs) == len(program.outputs)
