"""What the spans of a running total's row make, which a launch before leaves in scratch memory (reduce, then scan:
Dotsenko et al., Fast scan algorithms on graphics processors, 2008)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import memory_type
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.lanes.function_folds import FunctionFold
from loopgrad.codegen.targets.gpu.lanes.partials import CarriedPartial, Partial, combined, kept_size, nothing
from loopgrad.codegen.targets.gpu.lanes.running_tile import Unit

if TYPE_CHECKING:
    from loopgrad.codegen.targets.gpu.lanes.running_totals import RunningTotals

SPANS_AT_ONCE: Final = 4  # whose totals an invocation reads


class SpanTotals:
    """In the kernel's scratch block."""

    def __init__(self, totals: RunningTotals) -> None:
        self.totals, self.e, self.b, self.plan, self.r = totals, totals.e, totals.b, totals.plan, totals.r

    def _place(self, unit: Unit, span: Val, part: int) -> Val:
        """The address of a part of a span's total, in the invocation's column."""
        e, b, plan = self.e, self.b, self.plan
        row = b.inst("IAdd", "i64", b.inst("IMul", "i64", unit.group, b.const("i64", plan.spans)), span)
        first = b.inst("IMul", "i64", row, b.const("i64", plan.inner))
        place = b.inst("IAdd", "i64", first, self.totals.array_column(unit))
        if part:
            place = b.inst("IAdd", "i64", place, b.const("i64", part * plan.outer * plan.spans * plan.inner))
        return e.at(e.table.scratch[0], place, kept_size(self.totals.kept))

    def leave(self, unit: Unit, total: Partial) -> None:
        """A span's total, by one invocation of each column."""

        def leave() -> None:
            for part, (value, dtype) in enumerate(zip(total, self.totals.kept, strict=False)):
                self.b.store(self._place(unit, unit.span, part), to_memory(self.e, value, dtype))

        self.e.when(self.totals.leads(unit), leave)

    def before(self, unit: Unit) -> Partial:
        """What the spans before this one make together: each invocation of a column combines some neighbours."""
        e, b = self.e, self.b
        each = -(-self.plan.spans // self.plan.chunks)
        place, carried = b.local("i64"), CarriedPartial(e, self.r)
        first = b.inst("IMul", "i64", e.resize(self.totals.chunk, "i64", signed=False), b.const("i64", each))
        behind = b.inst("IAdd", "i64", first, b.const("i64", each))
        end = e.select(b.inst("SLessThan", "bool", unit.span, behind), unit.span, behind)
        b.set(place, first)

        def one() -> None:
            for ahead in range(min(SPANS_AT_ONCE, each)):
                carried.set(combined(e, self.r, carried.get(), self._total(unit, b.get(place, "i64"), ahead, end)))
            step = b.const("i64", min(SPANS_AT_ONCE, each))
            b.set(place, b.inst("IAdd", "i64", b.get(place, "i64"), step))

        def test() -> Val:
            inside = b.inst("SLessThan", "bool", b.get(place, "i64"), end)
            return inside if self.totals.owner is None else e.both(self.totals.owner, inside)

        emit_loop(e, test, one)
        found = self.totals.across.totals(carried.get())[1]
        b.barrier()
        return found

    def _total(self, unit: Unit, first: Val, ahead: int, end: Val) -> Partial:
        """That of the span so many after the first; nothing, if it isn't one before `end`."""
        e, b, span, inside = self.e, self.b, first, self.b.const("bool", True)
        if ahead:
            span = b.inst("IAdd", "i64", first, b.const("i64", ahead))
            inside = b.inst("SLessThan", "bool", span, end)
            span = e.select(inside, span, b.const("i64", 0))
        places = [(self._place(unit, span, part), dtype) for part, dtype in enumerate(self.totals.kept)]
        found = tuple([from_memory(e, b.load(place, memory_type(dtype)), dtype) for place, dtype in places])
        if isinstance(self.r, FunctionFold):
            return (*found, inside)
        if not ahead:
            return found
        return tuple([e.select(inside, x, y) for x, y in zip(found, nothing(e, self.r), strict=True)])
