"""A running total in tiles (see running_plan): each workgroup computes the terms of a tile into its memory, scans them
there, and writes the totals.

    terms of all lanes, side by side            reads that neighbours share
    | own positions folded                      one invocation, `each` neighbours of a column
    | ... across the invocations of a column    log2(chunks) steps (Hillis and Steele, 1986)
    | own positions again, from what came before
    totals, side by side

A span of a long row begins with what the spans before it make together: another launch of the same lanes (`totals`)
has left that in scratch memory (reduce, then scan: Dotsenko et al., Fast scan algorithms on graphics processors, 2008),
or the workgroups hand it on (`chained`; see chained_spans).
All of it is in an order that depends on the shape alone, and sums of floats are a total and its rest until they are
written. Where the total begins at the end, tiles, invocations and positions are counted from there; memory is read in
its own order nonetheless.

Circle: `codegen/targets/gpu/lanes/chained_spans.py` and `codegen/targets/gpu/lanes/span_totals.py` combine what other
workgroups have left, in the arrays of the workgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.codegen.kernel.nodes import Reduction, RunningTotal
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.lanes.across import Member, across
from loopgrad.codegen.targets.gpu.lanes.chained_spans import ChainedSpans
from loopgrad.codegen.targets.gpu.lanes.exact_folds import ExactFold, Term, shown, with_all_exactly, with_exactly
from loopgrad.codegen.targets.gpu.lanes.function_folds import FunctionFold
from loopgrad.codegen.targets.gpu.lanes.partials import (
    CarriedPartial,
    GroupArray,
    Partial,
    combined,
    folding,
    kept,
    nothing,
)
from loopgrad.codegen.targets.gpu.lanes.running_lanes import DealtLanes
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.running_tile import RunningTile, Unit
from loopgrad.codegen.targets.gpu.lanes.span_totals import SpanTotals
from loopgrad.codegen.targets.gpu.lanes.tiles import EmitOps, RegisterFolds


class RunningTotals:
    """What the workgroup does for one unit."""

    def __init__(self, e: Emitter, plan: RunningTiles, emit_block: EmitOps) -> None:
        running = e.kernel.running
        assert running is not None
        self.e, self.b, self.plan = e, e.b, plan
        self.running: RunningTotal = running
        self.r = folding(running)
        self.kept = kept(self.r)
        self.lanes = DealtLanes(e, plan, running, emit_block)
        self.arrays = self.lanes.arrays
        self.own = e.b.local_id()
        line, self.column = self._divided(self.own, plan.columns)
        self.row, self.chunk = self._divided(line, plan.chunks)
        self.owner = self._less(self.own, plan.owners) if plan.owners < e.b.group else None
        self.first = self.b.inst("IMul", "i32", self.chunk, self.b.const("i32", plan.each))
        self.start = self._start()
        # terms of long rows are read twice, which leaves registers for more workgroups side by side; in columns totals
        # take 1.1 to 1.2 times as long so on an H200
        self.again = plan.columns == 1 and (plan.tiles > 1 or plan.near > 1)
        self.across = across(e, self.r, plan, Member(self.own, self.chunk, self.owner))
        self.chain = ChainedSpans(self, e.table.scratch[0]) if plan.chained else None
        self.spans = SpanTotals(self) if plan.spans > 1 and not plan.chained else None

    # ---- a unit

    def emit(self, number: Val) -> None:
        """The unit of that number."""
        unit = Unit(self.e, self.plan, number)
        self.b.barrier()
        carried = CarriedPartial(self.e, self.r)
        if self.plan.totals:
            self._spans_total(unit, carried)
            return
        if self.chain is not None:
            self._scan(RunningTile(self.e, self.plan, self.running.reverse, unit, unit.span), carried)
            return
        if self.spans is not None:
            carried.set(self.spans.before(unit))
        self._tiles(unit, lambda tile: self._scan(tile, carried))

    def _spans_total(self, unit: Unit, carried: CarriedPartial) -> None:
        """What the unit's terms make is left."""
        assert self.spans is not None
        if isinstance(self.r, FunctionFold):
            self._tiles(unit, lambda tile: self._fold_in_order(tile, carried))
            self.spans.leave(unit, carried.get())
            return
        side_by_side = not self.plan.stride % self.plan.columns
        self._tiles(unit, lambda tile: (self._gather if side_by_side else self._fold)(tile, carried))
        self.spans.leave(unit, self.across.totals(carried.get())[1])

    def _tiles(self, unit: Unit, body: Callable[[RunningTile], None]) -> None:
        """body(tile) of the unit's tiles in order."""
        b, plan = self.b, self.plan

        def tile(piece: Val) -> None:
            body(RunningTile(self.e, plan, self.running.reverse, unit, piece))

        if plan.per_span == 1:
            tile(unit.span)
            return
        place = b.local("i64")
        first = b.inst("IMul", "i64", unit.span, b.const("i64", plan.per_span))
        b.set(place, first)
        end = self.e.bound_integer(b.inst("IAdd", "i64", first, b.const("i64", plan.per_span)), plan.tiles)

        def one() -> None:
            tile(b.get(place, "i64"))
            b.set(place, b.inst("IAdd", "i64", b.get(place, "i64"), b.const("i64", 1)))

        emit_loop(self.e, lambda: b.inst("SLessThan", "bool", b.get(place, "i64"), end), one)

    def _either(self, tile: RunningTile, body: Callable[[bool], None]) -> None:
        """body(whether all positions are there): once for tiles of which none is missing, and for others."""
        if self.plan.exact or not self.again or self.plan.tiles == 1:
            body(self.plan.exact)
        else:
            self.e.one_of(tile.whole, lambda: body(True), lambda: body(False))

    def _folded(self, tile: RunningTile, carried: CarriedPartial) -> None:
        """What is carried, with the terms of the own positions."""

        def fold(whole: bool) -> None:
            terms = self._terms(tile, 0, self.plan.each, whole)
            carried.set(with_all_exactly(self.e, self.r, carried.get(), terms))

        self._either(tile, fold)

    def _terms(self, tile: RunningTile, first: int, count: int, whole: bool) -> list[Term]:
        """Those of so many own positions; nothing's where there is none."""
        found = [self._own(array, first, count) for array in self.arrays]
        return [self._counted(tile, first + n, whole, term) for n, term in enumerate(zip(*found, strict=True))]

    def _counted(self, tile: RunningTile, k: int, whole: bool, term: Term) -> Term:
        there = self.b.const("bool", True) if whole else self._has(tile, k)
        if isinstance(self.r, FunctionFold):
            return (*term, there)
        return term if whole else tuple([self.e.select(there, x, nothing(self.e, self.r)[0]) for x in term])

    def _gather(self, tile: RunningTile, carried: CarriedPartial) -> None:
        """Only the total of the lanes that this invocation runs, which are of its column."""
        assert isinstance(self.r, Reduction)
        fold = ExactFold(self.e, self.r)
        with self.e.contributing(RegisterFolds([fold])):
            self.lanes.run(tile)
        carried.set(combined(self.e, self.r, carried.get(), fold.get()))

    def _fold(self, tile: RunningTile, carried: CarriedPartial) -> None:
        """Only the total of what this invocation owns."""
        self.lanes.load(tile)
        self._folded(tile, carried)
        self.b.barrier()

    def _fold_in_order(self, tile: RunningTile, carried: CarriedPartial) -> None:
        """The total of all invocations of the column: terms of one tile come before those of the next one."""
        own = CarriedPartial(self.e, self.r)
        self.lanes.load(tile)
        self._folded(tile, own)
        carried.set(combined(self.e, self.r, carried.get(), self.across.totals(own.get())[1]))
        self.b.barrier()

    def _scan(self, tile: RunningTile, carried: CarriedPartial) -> None:
        e, plan, own, terms = self.e, self.plan, CarriedPartial(self.e, self.r), list[Term]()
        self.lanes.load(tile)
        if self.again:
            self._folded(tile, own)
        else:
            terms = self._terms(tile, 0, plan.each, plan.exact)
            own.set(with_all_exactly(e, self.r, own.get(), terms))
        before = self._before(tile, own.get(), carried)

        def show(whole: bool) -> None:
            total = before
            for k in range(0, plan.each, plan.near):
                totals = []
                for term in terms[k : k + plan.near] or self._terms(tile, k, plan.near, whole):
                    total = with_exactly(e, self.r, total, term)
                    totals.append(shown(e, self.r, total))
                self._put(tile, k, whole, totals)

        self._either(tile, show)
        self.b.barrier()
        self.lanes.store(tile)

    def _before(self, tile: RunningTile, own: Partial, carried: CarriedPartial) -> Partial:
        """What is before the own positions, which make `own`."""
        e, r = self.e, self.r
        if self.plan.tiles == 1:
            return self.across.before(own)
        before, whole = self.across.totals(own)
        if self.chain is not None:
            return combined(e, r, self.chain.before(tile.unit, whole), before)
        before = combined(e, r, carried.get(), before)
        carried.set(combined(e, r, carried.get(), whole))
        return before

    # ---- positions of an invocation

    def _start(self) -> Val:
        """Where the lowest of the invocation's positions is in the array."""
        b, plan, first, pitch = self.b, self.plan, self.first, self.plan.pitch // self.plan.columns
        if self.running.reverse:
            first = b.inst("ISub", "i32", b.const("i32", pitch - plan.each), first)
        row = self.row if self.owner is None else self.e.select(self.owner, self.row, b.const("i32", 0))
        line = b.inst("IAdd", "i32", b.inst("IMul", "i32", row, b.const("i32", pitch)), first)
        line = b.inst("IMul", "i32", line, b.const("i32", plan.columns))
        start = b.inst("IAdd", "i32", line, self.column)
        if not self.running.reverse:
            return start
        # invocations reach below the first element of the first row; AMD's addresses there don't wrap around
        return b.opaque(b.inst("IAdd", "i32", start, b.const("i32", plan.slack)) if plan.slack else start)

    def _slot(self, k: int, count: int) -> Val:
        """Where the lowest of its positions k, k + 1, ... is."""
        above = (self.plan.each - count - k if self.running.reverse else k) * self.plan.columns
        return self.b.inst("IAdd", "i32", self.start, self.b.const("i32", above)) if above else self.start

    def _own(self, array: GroupArray, first: int, count: int) -> list[Val]:
        """What an array has at own positions."""
        if self.plan.near == 1:
            return [array.get(self._slot(k, 1)) for k in range(first, first + count)]
        return self._in_turn(array.get_side(self._slot(first, count), count))

    def _in_turn(self, side: list[Val]) -> list[Val]:
        """In the order of the total what is in that of memory, and the other way round."""
        return side[::-1] if self.running.reverse else side

    def _put(self, tile: RunningTile, first: int, whole: bool, totals: Sequence[tuple[Val, ...]]) -> None:
        """Totals of neighbouring own positions; places that lack an element are the invocation's in vectors only."""

        def put() -> None:
            for leaf, _ in self.lanes.results:
                values = [total[leaf] for total in totals]
                if self.plan.near > 1:
                    self.arrays[leaf].set_side(self._slot(first, len(values)), self._in_turn(values))
                else:
                    self.arrays[leaf].set(self._slot(first, 1), *values)

        if whole or (self.plan.near > 1 and self.owner is None):
            put()
        else:
            self.e.when(self._has(tile, first) if self.plan.near == 1 or self.owner is None else self.owner, put)

    def _has(self, tile: RunningTile, k: int) -> Val:
        """Whether the invocation has a position k."""
        b = self.b
        own = b.inst("IAdd", "i32", self.first, b.const("i32", k)) if k else self.first
        inside = b.inst("SLessThan", "bool", own, tile.valid)
        return inside if self.owner is None else self.e.both(self.owner, inside)

    def array_column(self, unit: Unit) -> Val:
        """The invocation's column in the array."""
        column = self.column
        if unit.width is not None:
            last = self.b.inst("ISub", "i32", unit.width, self.b.const("i32", 1))
            column = self.e.select(self.b.inst("ULessThan", "bool", column, last), column, last)
        return self.b.inst("IAdd", "i64", unit.first_column, self.e.resize(column, "i64", signed=False))

    def leads(self, unit: Unit) -> Val:
        """Whether the invocation is the first of a column."""
        return self._less(self.own, self.plan.columns if unit.width is None else unit.width)

    # ---- small things

    def _divided(self, x: Val, by: int) -> tuple[Val, Val]:
        b = self.b
        if by == 1:
            return x, b.const("i32", 0)
        quotient = b.inst("UDiv", "i32", x, b.const("i32", by))
        return quotient, b.inst("ISub", "i32", x, b.inst("IMul", "i32", quotient, b.const("i32", by)))

    def _less(self, x: Val, limit: int | Val) -> Val:
        return self.b.inst("ULessThan", "bool", x, self.b.const("i32", limit) if isinstance(limit, int) else limit)
