"""Sums of integers in small tables: every workgroup has copies of the table in its memory, in which its lanes meet, and
adds them to the table itself when its tile is done. Integers add up alike in any order.

Neighbouring invocations have different copies, so that those of one element don't wait for each other. Sums of a tile
are made in 32 bits: of wider elements only where terms are known to be small, of narrower ones modulo their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.accumulator import Accumulator
from loopgrad.codegen.targets.gpu.emit.compare_and_swap import swap
from loopgrad.codegen.targets.gpu.emit.context import Accumulation, Emitter, register_type
from loopgrad.codegen.targets.gpu.emit.instructions import Instructions
from loopgrad.codegen.targets.gpu.emit.loops import counted


@dataclass(frozen=True, slots=True)
class GroupTable(Accumulator):
    """`copies`: of the table in a workgroup, a power of two."""

    copies: int

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        raise AssertionError("lanes add to what `begun` made")

    def way(self, kernel: Kernel) -> str:
        return f"{self.copies} copies in memory of each workgroup, then atomics"

    def begun(self, kernel: Kernel, i: Instructions, scratch: Sequence[Val], block: int) -> Accumulation:
        size = kernel.params[self.param].size
        return HeldTable(self, size, i.b.shared("i32", size * self.copies))


@dataclass(frozen=True, slots=True)
class HeldTable:
    """A GroupTable while code is emitted; implements Accumulation."""

    table: GroupTable
    size: int
    sums: Variable

    def idle(self, e: Emitter, block: int) -> Val | None:
        return None

    def add(self, e: Emitter, block: int, op: KOp, index: Val, x: Val) -> None:
        place = self._place(e, e.resize(index, "i32"), e.b.local_id())
        e.b.shared_atomic("AtomicIAdd", self.sums, place, e.resize(x, "i32"))

    def clear(self, e: Emitter) -> None:
        """All invocations come here; a barrier follows."""
        b = e.b
        self._each(e, self.size * self.table.copies, lambda place: b.shared_set(self.sums, place, b.const("i32", 0)))

    def flush(self, e: Emitter) -> None:
        """All invocations come here, after a barrier; one follows."""
        self._each(e, self.size, lambda index: self._add_to_table(e, index))

    def _add_to_table(self, e: Emitter, index: Val) -> None:
        b, own = e.b, e.b.local_id()
        total = b.const("i32", 0)
        for k in range(self.table.copies):  # neighbours begin with different ones, in different banks
            turn = b.inst("IAdd", "i32", own, b.const("i32", k))
            total = b.inst("IAdd", "i32", total, b.shared_get(self.sums, self._place(e, index, turn), "i32"))

        def add() -> None:
            dtype = e.kernel.params[self.table.param].dtype
            place = e.element(self.table.param, e.resize(index, "i64", signed=False))
            value = e.resize(total, register_type(dtype))
            if dtype.bits < 32:
                swap(e, "add", dtype, place, value)
            else:
                b.atomic("AtomicIAdd", place, value)

        e.when(b.inst("INotEqual", "bool", total, b.const("i32", 0)), add)

    def _place(self, e: Emitter, index: Val, turn: Val) -> Val:
        """Of an element in the copy of that number, modulo their count."""
        b, copies = e.b, self.table.copies
        if copies == 1:
            return index
        copy = b.inst("BitwiseAnd", "i32", turn, b.const("i32", copies - 1))
        return b.inst("IAdd", "i32", b.inst("IMul", "i32", index, b.const("i32", copies)), copy)

    @staticmethod
    def _each(e: Emitter, count: int, body: Callable[[Val], None]) -> None:
        """body(number) for the numbers below `count`, which invocations take in turn."""
        b = e.b
        own, group = b.local_id(), b.group

        def turn(k: Val) -> None:
            number = b.inst("IAdd", "i32", own, b.inst("IMul", "i32", k, b.const("i32", group)))
            if count % group:
                e.when(b.inst("ULessThan", "bool", number, b.const("i32", count)), partial(body, number))
            else:
                body(number)

        counted(e, b.const("i32", -(-count // group)), turn)
