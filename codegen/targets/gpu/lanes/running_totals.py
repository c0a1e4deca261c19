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

Circle: `codegen/targets/gpu/lanes/chained_spans.py` combines what it waits for in the arrays of the workgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Reduction, RunningTotal
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.lanes.across import Member, across
from loopgrad.codegen.targets.gpu.lanes.chained_spans import ChainedSpans
from loopgrad.codegen.targets.gpu.lanes.exact_folds import ExactFold, Term, shown, with_all_exactly, with_exactly
from loopgrad.codegen.targets.gpu.lanes.function_folds import FunctionFold
from loopgrad.codegen.targets.gpu.lanes.partials import (
    GroupArray,
    Partial,
    combined,
    folding,
    kept,
    kept_size,
    nothing,
)
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.running_tile import RunningTile, Unit
from loopgrad.codegen.targets.gpu.lanes.tiles import (
    EmitOps,
    RegisterFolds,
    emit_together,
)

SPANS_AT_ONCE: Final = 4  # whose totals an invocation reads


class RunningTotals:
    """The arrays of the workgroup, and what it does for one unit. Implements Contribution."""

    meets = False

    def __init__(self, e: Emitter, plan: RunningTiles, emit_block: EmitOps) -> None:
        running = e.kernel.running
        assert running is not None
        self.e, self.b, self.plan, self.emit_block = e, e.b, plan, emit_block
        self.running: RunningTotal = running
        self.r = folding(running)
        self.kept = kept(self.r)
        self.leaves = running.leaves or (running.dtype,)
        self.arrays = [GroupArray(e, register_type(dtype), plan.size + plan.slack) for dtype in self.leaves]
        self.own = e.b.local_id()
        line, self.column = self._divided(self.own, plan.columns)
        self.row, self.chunk = self._divided(line, plan.chunks)
        self.owner = self._less(self.own, plan.owners) if plan.owners < e.b.group else None
        self.first = self.b.inst("IMul", "i32", self.chunk, self.b.const("i32", plan.each))
        self.start = self._start()
        # terms of long rows are read twice, which leaves registers for more workgroups side by side; in columns totals
        # take 1.1 to 1.2 times as long so on an H200
        self.again = plan.columns == 1 and plan.tiles > 1
        self.across = across(e, self.r, plan, Member(self.own, self.chunk, self.owner))
        self.chain = ChainedSpans(self, e.table.scratch[0]) if plan.chained else None

    @property
    def results(self) -> list[tuple[int, int]]:
        """The leaves that are stored, and the parameters where."""
        return [(leaf, self.running.param + n) for n, leaf in enumerate(self.running.taken or (0,))]

    # ---- Contribution

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        for array, term in zip(self.arrays, terms, strict=True):
            array.set(self._moved(e.position), term)

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("a running total has terms only")

    # ---- a unit

    def emit(self, number: Val) -> None:
        """The unit of that number."""
        unit = Unit(self.e, self.plan, number)
        self.b.barrier()
        carried = _Carried(self)
        if self.plan.totals:
            self._spans_total(unit, carried)
            return
        if self.chain is not None:
            self._scan(RunningTile(self.e, self.plan, self.running.reverse, unit, unit.span), carried)
            return
        if self.plan.spans > 1:
            self._before(unit, carried)
        self._tiles(unit, lambda tile: self._scan(tile, carried))

    def _spans_total(self, unit: Unit, carried: _Carried) -> None:
        """What the unit's terms make is left."""
        if isinstance(self.r, FunctionFold):
            self._tiles(unit, lambda tile: self._fold_in_order(tile, carried))
            self._leave(unit, carried.get())
            return
        side_by_side = not self.plan.stride % self.plan.columns
        self._tiles(unit, lambda tile: (self._gather if side_by_side else self._fold)(tile, carried))
        self._leave(unit, self.across.totals(carried.get())[1])

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

    def _load(self, tile: RunningTile) -> None:
        """The terms of the tile's lanes, each where its owner finds it."""
        with self.e.contributing(self):
            self._lanes(tile)
        self.b.barrier()

    def _either(self, tile: RunningTile, body: Callable[[bool], None]) -> None:
        """body(whether all positions are there): once for tiles of which none is missing, and for others."""
        if self.plan.exact or not self.again or self.owner is not None:
            body(self.plan.exact)
        else:
            self.e.one_of(tile.whole, lambda: body(True), lambda: body(False))

    def _folded(self, tile: RunningTile, carried: _Carried) -> None:
        """What is carried, with the terms of the own positions."""

        def fold(whole: bool) -> None:
            terms = [self._term(tile, k, whole) for k in range(self.plan.each)]
            carried.set(with_all_exactly(self.e, self.r, carried.get(), terms))

        self._either(tile, fold)

    def _term(self, tile: RunningTile, k: int, whole: bool) -> Term:
        """That of the own position k; nothing's where there is none."""
        found = tuple([array.get(self._slot(k)) for array in self.arrays])
        there = self.b.const("bool", True) if whole else self._has(tile, k)
        if isinstance(self.r, FunctionFold):
            return (*found, there)
        return found if whole else tuple([self.e.select(there, x, nothing(self.e, self.r)[0]) for x in found])

    def _lanes(self, tile: RunningTile) -> None:
        """This invocation's lanes of the tile, in the order of memory: every `stride`-th."""
        e, b, plan, body = self.e, self.b, self.plan, self.e.kernel.body
        at_once = plan.stride * plan.unrolled

        def batch(k: Val) -> None:
            first = b.inst("IAdd", "i32", self.own, b.inst("IMul", "i32", k, b.const("i32", at_once)))
            ahead = range(0, at_once, plan.stride)
            emit_together(e, [partial(tile.enter, first, body.arguments, a) for a in ahead], body, self.emit_block)

        def single(place: Val) -> None:
            tile.enter(place, body.arguments)
            e.restart()
            self.emit_block(e, body)

        def whole() -> None:
            batches = plan.size // at_once
            counted(e, b.const("i32", batches), batch)
            if batches * at_once < plan.size:
                self._each(tile, single, batches * at_once)

        def dealt() -> None:
            if plan.unrolled > 1:
                e.one_of(tile.whole, whole, lambda: self._each(tile, single))
            else:
                self._each(tile, single)

        if plan.stride < b.group:
            e.when(self._less(self.own, plan.stride), dealt)
        else:
            dealt()

    def _each(self, tile: RunningTile, body: Callable[[Val], None], start: int = 0) -> None:
        """body(place) of the tile's places from `start` on that are this invocation's."""
        b, place = self.b, self.b.local("i32")
        b.set(place, b.inst("IAdd", "i32", self.own, b.const("i32", start)) if start else self.own)

        def one() -> None:
            now = b.get(place, "i32")
            body(now)
            b.set(place, b.inst("IAdd", "i32", now, b.const("i32", self.plan.stride)))

        emit_loop(self.e, lambda: b.inst("SLessThan", "bool", b.get(place, "i32"), tile.count), one)

    def _gather(self, tile: RunningTile, carried: _Carried) -> None:
        """Only the total of the lanes that this invocation runs, which are of its column."""
        assert isinstance(self.r, Reduction)
        fold = ExactFold(self.e, self.r)
        with self.e.contributing(RegisterFolds([fold])):
            self._lanes(tile)
        carried.set(combined(self.e, self.r, carried.get(), fold.get()))

    def _fold(self, tile: RunningTile, carried: _Carried) -> None:
        """Only the total of what this invocation owns."""
        self._load(tile)
        self._folded(tile, carried)
        self.b.barrier()

    def _fold_in_order(self, tile: RunningTile, carried: _Carried) -> None:
        """The total of all invocations of the column: terms of one tile come before those of the next one."""
        own = _Carried(self)
        self._load(tile)
        self._folded(tile, own)
        carried.set(combined(self.e, self.r, carried.get(), self.across.totals(own.get())[1]))
        self.b.barrier()

    def _scan(self, tile: RunningTile, carried: _Carried) -> None:
        e, own, terms = self.e, _Carried(self), list[Term]()
        self._load(tile)
        if self.again:
            self._folded(tile, own)
        else:
            terms = [self._term(tile, k, self.plan.exact) for k in range(self.plan.each)]
            own.set(with_all_exactly(e, self.r, own.get(), terms))
        before, whole = self.across.totals(own.get())
        if self.chain is not None:
            before = combined(e, self.r, self.chain.before(tile.unit, whole), before)
        elif self.plan.tiles > 1:
            before = combined(e, self.r, carried.get(), before)
            carried.set(combined(e, self.r, carried.get(), whole))

        def show(whole: bool) -> None:
            total = before
            for k in range(self.plan.each):
                term = terms[k] if terms else self._term(tile, k, whole)
                total = with_exactly(e, self.r, total, term)
                self._put(tile, k, whole, shown(e, self.r, total))

        self._either(tile, show)
        self.b.barrier()
        self._store(tile)
        if tile.shift is not None:  # other invocations read what the next tile's terms replace
            self.b.barrier()

    # ---- positions of an invocation

    def _start(self) -> Val:
        """Where the lowest of the invocation's positions is in the array."""
        b, plan, first = self.b, self.plan, self.first
        if self.running.reverse:
            first = b.inst("ISub", "i32", b.const("i32", plan.positions - plan.each), first)
        row = self.row if self.owner is None else self.e.select(self.owner, self.row, b.const("i32", 0))
        line = b.inst("IAdd", "i32", b.inst("IMul", "i32", row, b.const("i32", plan.positions)), first)
        line = b.inst("IMul", "i32", line, b.const("i32", plan.columns))
        start = self._moved(b.inst("IAdd", "i32", line, self.column))
        return b.opaque(start) if self.running.reverse else start  # AMD's addresses there don't wrap around

    def _slot(self, k: int) -> Val:
        """Where its position k is."""
        above = (self.plan.each - 1 - k if self.running.reverse else k) * self.plan.columns
        return self.b.inst("IAdd", "i32", self.start, self.b.const("i32", above)) if above else self.start

    def _moved(self, place: Val) -> Val:
        """Invocations of a reversed row reach below its first element."""
        if not (self.running.reverse and self.plan.slack):
            return place
        return self.b.inst("IAdd", "i32", place, self.b.const("i32", self.plan.slack))

    def _has(self, tile: RunningTile, k: int) -> Val:
        """Whether the invocation has a position k."""
        b = self.b
        own = b.inst("IAdd", "i32", self.first, b.const("i32", k)) if k else self.first
        inside = b.inst("SLessThan", "bool", own, tile.valid)
        return inside if self.owner is None else self.e.both(self.owner, inside)

    def _put(self, tile: RunningTile, k: int, whole: bool, values: Sequence[Val]) -> None:
        def put() -> None:
            for leaf, _ in self.results:
                self.arrays[leaf].set(self._slot(k), values[leaf])

        if whole:
            put()
        else:
            self.e.when(self._has(tile, k), put)

    # ---- memory

    def _store(self, tile: RunningTile) -> None:
        """The tile's totals, in the order of memory."""
        b, stride, size = self.b, self.plan.stride, self.plan.size

        def one(position: Val, ahead: int = 0) -> None:
            tile.place(position, ahead)
            for leaf, param in self.results:
                found = self.arrays[leaf].get(self._moved(self.e.position))
                b.store(self.e.element(param, self.e.lane), to_memory(self.e, found, self.leaves[leaf]))

        def checked(position: Val, ahead: int = 0) -> None:
            at = b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position
            inside = tile.stored(at)
            if inside is None:
                one(position, ahead)
            else:
                self.e.when(inside, lambda: one(position, ahead))

        def whole() -> None:
            for ahead in range(0, size - stride + 1, stride):
                checked(self.own, ahead)
            if size % stride:
                ahead = size - size % stride
                self.e.when(self._less(self.own, size - ahead), lambda: checked(self.own, ahead))

        def dealt() -> None:
            self.e.one_of(tile.whole, whole, lambda: self._each(tile, checked))

        if stride < b.group:
            self.e.when(self._less(self.own, stride), dealt)
        else:
            dealt()

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

    def _place(self, unit: Unit, span: Val, part: int) -> Val:
        """The address of a part of a span's total, in the invocation's column."""
        e, b, plan = self.e, self.b, self.plan
        row = b.inst("IAdd", "i64", b.inst("IMul", "i64", unit.group, b.const("i64", plan.spans)), span)
        place = b.inst("IAdd", "i64", b.inst("IMul", "i64", row, b.const("i64", plan.inner)), self.array_column(unit))
        if part:
            place = b.inst("IAdd", "i64", place, b.const("i64", part * plan.outer * plan.spans * plan.inner))
        return e.at(e.table.scratch[0], place, kept_size(self.kept))

    def _leave(self, unit: Unit, total: Partial) -> None:
        """A span's total, by one invocation of each column."""

        def leave() -> None:
            for part, (value, dtype) in enumerate(zip(total, self.kept, strict=False)):
                self.b.store(self._place(unit, unit.span, part), to_memory(self.e, value, dtype))

        self.e.when(self.leads(unit), leave)

    def _before(self, unit: Unit, carried: _Carried) -> None:
        """What the spans before this one make together: each invocation of a column combines some neighbours."""
        e, b = self.e, self.b
        each = -(-self.plan.spans // self.plan.chunks)
        place = b.local("i64")
        first = b.inst("IMul", "i64", e.resize(self.chunk, "i64", signed=False), b.const("i64", each))
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
            return inside if self.owner is None else e.both(self.owner, inside)

        emit_loop(e, test, one)
        carried.set(self.across.totals(carried.get())[1])
        b.barrier()

    def _total(self, unit: Unit, first: Val, ahead: int, end: Val) -> Partial:
        """That of the span so many after the first; nothing, if it isn't one before `end`."""
        e, b, span, inside = self.e, self.b, first, self.b.const("bool", True)
        if ahead:
            span = b.inst("IAdd", "i64", first, b.const("i64", ahead))
            inside = b.inst("SLessThan", "bool", span, end)
            span = e.select(inside, span, b.const("i64", 0))
        places = [(self._place(unit, span, part), dtype) for part, dtype in enumerate(self.kept)]
        found = tuple([from_memory(e, b.load(place, memory_type(dtype)), dtype) for place, dtype in places])
        if isinstance(self.r, FunctionFold):
            return (*found, inside)
        if not ahead:
            return found
        return tuple([e.select(inside, x, y) for x, y in zip(found, nothing(e, self.r), strict=True)])

    # ---- small things

    def _divided(self, x: Val, by: int) -> tuple[Val, Val]:
        b = self.b
        if by == 1:
            return x, b.const("i32", 0)
        quotient = b.inst("UDiv", "i32", x, b.const("i32", by))
        return quotient, b.inst("ISub", "i32", x, b.inst("IMul", "i32", quotient, b.const("i32", by)))

    def _less(self, x: Val, limit: int | Val) -> Val:
        return self.b.inst("ULessThan", "bool", x, self.b.const("i32", limit) if isinstance(limit, int) else limit)


class _Carried:
    """What an invocation keeps from tile to tile."""

    def __init__(self, totals: RunningTotals) -> None:
        self.b, start = totals.b, nothing(totals.e, totals.r)
        self.variables: list[tuple[Variable, str]] = [(self.b.local(v.type), v.type) for v in start]
        self.set(start)

    def get(self) -> Partial:
        return tuple([self.b.get(*v) for v in self.variables])

    def set(self, partial: Partial) -> None:
        for (variable, _), value in zip(self.variables, partial, strict=True):
            self.b.set(variable, value)
