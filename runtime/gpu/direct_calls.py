"""Calls that need nothing of the host but addresses: commands that were recorded are started once more.

That is so for programs without loops and branches over whole arrays and without checks. Arrays that a script makes and
drops in turn come back to a few sets of addresses, and a set that came back has commands and tables of its own, so that
nothing is written or sent. A script that keeps its results asks for new addresses all the time: one context serves all
those, and its tables are sent before its commands start.

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
from loopgrad.runtime.gpu.memory import Allocation, piece

SETS: Final = 8  # of addresses, each with commands of its own
REMEMBERED: Final = 32  # sets that came lately and have none
RECORDING: Final = 64  # calls that repeat commands make up for recording some in the place of others


class DirectCalls:
    """Of one executable, under its device's lock. `has_stacks`: its calls are always entered in the ledger."""

    def __init__(self, loaded: LoadedProgram, capacities: Capacities) -> None:
        program = loaded.program
        self._loaded, self._capacities = loaded, capacities
        self._take = loaded.driver.take_each
        self._made = _made(program)
        self._arena = bool(program.arena.size)
        arena = [program.arena.size] if self._arena else []
        self._pieces = [piece(size) for size in (*[program.slots[slot].type.nbytes for slot in self._made], *arena)]
        self._order = [self._made.index(slot) for slot in program.outputs]
        self.has_stacks = program.kernel_stacks
        self._meets = program.exchanges
        self.heap_bytes = 0  # of the stacks, once a call has had them
        self._version = -1  # of the capacities that the commands are for
        self._known: dict[tuple[int, ...], GpuContext] = {}
        self._strange: dict[tuple[int, ...], None] = {}  # sets of addresses that came lately, the latest last
        self._moving: GpuContext | None = None  # for any addresses
        self._where: tuple[int, ...] = ()  # it was in the last call that it served
        self._repeated = 0  # calls, less RECORDING for each set of commands that took another's place

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
        if not self._capacities.ran or (self._meets and (ledger is not None or memory_engine() is None)):
            return None
        if self._version != self._capacities.version:
            self._version, self.heap_bytes, self._moving = self._capacities.version, 0, None
            self._known.clear()
        try:
            made = self._take(self._pieces)
            heap = self._take((piece(self.heap_bytes),)) if self.heap_bytes else ()
        except MemoryError:  # what only the ledger holds is given back on the ordinary way
            return None
        addresses = tuple([a.address for a in (*inputs, *made, *heap)])
        known = self._known.get(addresses)
        if known is None or known.runs > 1:
            del heap
            return self._strangers(addresses, inputs, made, ledger)
        return self._again(known, inputs, made, ledger)

    def _again(
        self, known: GpuContext, inputs: Sequence[Allocation], made: list[Allocation], ledger: Ledger | None
    ) -> list[Allocation]:
        """A call at the addresses that these commands are for."""
        results = [made[i] for i in self._order]
        self._repeated += 1
        if ledger is None:
            known.repeat()
        else:
            ledger.begin()
            known.repeat()
            ledger.add(known, inputs, results)
        return results

    def _strangers(
        self,
        addresses: tuple[int, ...],
        inputs: Sequence[Allocation],
        made: list[Allocation],
        ledger: Ledger | None,
    ) -> list[Allocation] | None:
        """A call at addresses that no commands are for."""
        moving = self._moving
        if moving is not None and addresses == self._where and moving.runs == 1 and len(self._known) < SETS:
            self._known[addresses], self._moving = moving, None
            return self._again(moving, inputs, made, ledger)
        if self._comes_back(addresses):
            context = GpuContext(self._loaded, self._capacities, adapt=False)
            results = self._first(context, inputs, made, ledger)
            if results is not None:
                own = len(inputs) + len(made)
                self._known[*addresses[:own], *((context.heap_address,) if self.has_stacks else ())] = context
            context.release()
            return results
        if self.has_stacks or self._meets:
            return None
        self._where = addresses
        if moving is None:
            context = GpuContext(self._loaded, self._capacities, adapt=False)
            results = self._first(context, inputs, made, ledger)
            context.release()
            self._moving = None if results is None else context
            return results
        results = [made[i] for i in self._order]
        if ledger is not None:
            ledger.begin()
        moving.move(addresses)
        if ledger is not None:
            ledger.add(moving, inputs, results)
        return results

    def _comes_back(self, addresses: tuple[int, ...]) -> bool:
        """Whether commands should be recorded for these, as they have come before, or are among the first and there
        is no context for all; makes room for them."""
        known, strange = self._known, self._strange
        alone = (self.has_stacks or self._meets) and len(known) < SETS
        if addresses not in strange and not alone:
            strange[addresses] = None
            if len(strange) > REMEMBERED:
                del strange[next(iter(strange))]
            return False
        strange.pop(addresses, None)
        given_up = [key for key, context in known.items() if context.runs > 1]
        for key in given_up:
            del known[key]
        if len(known) == SETS:
            if self._repeated < RECORDING:
                return False  # too many sets come in turn
            self._repeated -= RECORDING
            del known[next(iter(known))]
        return True

    def _first(
        self, context: GpuContext, inputs: Sequence[Allocation], made: list[Allocation], ledger: Ledger | None
    ) -> list[Allocation] | None:
        """The first call in a context."""
        if ledger is not None:
            ledger.begin()
        try:
            given = dict(zip(self._made, made, strict=False))
            arena = made[-1] if self._arena else None
            results = context.run(inputs, given, later=ledger is not None, arena=arena)
        except MemoryError:
            if self._meets:  # also of another process, and others know
                raise
            return None  # as in `run`
        if ledger is not None:
            ledger.add(context, inputs, results)
        self.heap_bytes = context.heap_bytes
        return results


def _made(program: ProgramRecord) -> list[int]:
    """The slots with memory of their own that a call takes."""
    placed = {*program.inputs, *program.arena.slots}
    return [i for i, slot in enumerate(program.slots) if i not in placed and slot.constant is None]


def _only_makes(program: ProgramRecord) -> bool:
    """Whether every result is an array that the program makes, in memory of its own."""
    outputs = set(program.outputs)
    return outputs.issubset(_made(program)) and len(outputs) == len(program.outputs)
