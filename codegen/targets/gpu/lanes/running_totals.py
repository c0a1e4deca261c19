"""A running total in tiles (see running_plan): each workgroup computes the terms of a tile into its memory, scans them
there, and writes the totals.

    terms of all lanes, side by side            reads that neighbours share
    | own positions folded                      one invocation, `each` neighbours of a column
    | ... across the invocations of a column    log2(chunks) steps (Hillis and Steele, 1986)
    | own positions again, from what came before
    totals, side by side

A span of a long row begins with what the spans before it make together: another launch of the same lanes (`totals`)
has left that in scratch memory (reduce, then scan: Dotsenko et al., Fast scan algorithms on graphics processors, 2008).
All of it is in an order that depends on the shape alone, and sums of floats are a total and its rest until they are
written. Where the total begins at the end, tiles, invocations and positions are counted from there; memory is read in
its own order nonetheless.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Reduction, RunningTotal
from loopgrad.codegen.math.sums_of_exponentials import EXPONENTIALS
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory, to_memory
from loopgrad.codegen.targets.gpu.lanes.partials import (
    GroupArray,
    GroupPartials,
    Partial,
    combined,
    nothing,
    number,
    of_term,
    with_term,
    with_terms,
)
from loopgrad.codegen.targets.gpu.lanes.plan import parts
from loopgrad.codegen.targets.gpu.lanes.running_plan import RunningTiles
from loopgrad.codegen.targets.gpu.lanes.tiles import (
    EmitOps,
    RegisterFold,
    RegisterFolds,
    Tile,
    digits,
    divided,
    emit_together,
    row_dims,
    short,
)

SPANS_AT_ONCE: Final = 4  # whose totals an invocation reads


class Unit:
    """What a workgroup takes at once: a span of a row, or some rows; a block of columns of it."""

    def __init__(self, e: Emitter, plan: RunningTiles, unit: Val) -> None:
        b, zero = e.b, e.b.const("i64", 0)
        rest, self.block = divided(e, unit, plan.blocks) if plan.blocks > 1 else (unit, zero)
        self.group, self.span = divided(e, rest, plan.spans) if plan.spans > 1 else (rest, zero)
        self.first_column = b.inst("IMul", "i64", self.block, b.const("i64", plan.columns))
        self.width: Val | None = None  # columns of a last, narrower block
        if plan.inner % plan.columns:
            left = b.inst("ISub", "i64", b.const("i64", plan.inner), self.first_column)
            self.width = e.resize(e.bound_integer(left, plan.columns), "i32")


class RunningTile(Tile):
    """Tile `piece` (i64) of a unit's row, counted from where the total begins. `valid`: positions of a row in it."""

    def __init__(self, e: Emitter, plan: RunningTiles, reverse: bool, unit: Unit, piece: Val) -> None:
        self.e, self.plan, self.unit, b = e, plan, unit, e.b
        domain, self.shift = e.kernel.domain, None
        self.row = b.inst("IMul", "i64", unit.group, b.const("i64", plan.rows))
        if plan.tiles == 1:
            present = e.bound_integer(b.inst("ISub", "i64", b.const("i64", plan.outer), self.row), plan.rows)
            self.valid = b.const("i32", plan.extent)
            first = b.const("i64", 0)
            count = b.inst("IMul", "i64", present, b.const("i64", plan.extent * plan.columns))
            self.outer, self.inner = [], domain
        else:
            positions = b.const("i64", plan.positions)
            begun = b.inst("IMul", "i64", piece, positions)
            left = b.inst("ISub", "i64", b.const("i64", plan.extent), begun)
            valid = e.bound_integer(left, plan.positions)
            self.valid = e.resize(valid, "i32")
            first = b.inst("ISub", "i64", left, valid) if reverse else begun
            count = b.inst("IMul", "i64", valid, b.const("i64", plan.columns))
            if reverse and plan.extent % plan.positions:
                missing = b.inst("ISub", "i32", b.const("i32", plan.positions), self.valid)
                self.shift = b.inst("IMul", "i32", missing, b.const("i32", plan.columns))
            cut = row_dims(domain, plan.outer)
            self.outer, self.inner = digits(e, self.row, domain[:cut]), domain[cut:]
        inner = b.const("i64", plan.inner)
        self.column = b.inst("IAdd", "i64", b.inst("IMul", "i64", first, inner), unit.first_column)
        start = b.inst("IMul", "i64", self.row, b.const("i64", plan.extent * plan.inner))
        self.start = b.inst("IAdd", "i64", start, self.column)
        self.count = e.resize(count, "i32")
        self.whole = b.inst("IEqual", "bool", self.count, b.const("i32", plan.size))

    def place(self, position: Val, ahead: int = 0) -> Val:
        if self.plan.columns == self.plan.inner:
            column = super().place(position, ahead)
        else:
            column = self._in_block(position, ahead)
        if self.shift is not None:
            self.e.position = self.e.b.inst("IAdd", "i32", self.e.position, self.shift)
        return column

    def _in_block(self, position: Val, ahead: int) -> Val:
        """Rows of a block lie apart; what a narrower block lacks is its last column again."""
        e, b = self.e, self.e.b
        e.position = b.inst("IAdd", "i32", position, b.const("i32", ahead)) if ahead else position
        line, column = self.split(e.position)
        if self.unit.width is not None:
            last = b.inst("ISub", "i32", self.unit.width, b.const("i32", 1))
            column = e.select(b.inst("ULessThan", "bool", column, last), column, last)
        line = b.inst("IMul", "i64", e.resize(line, "i64", signed=False), b.const("i64", self.plan.inner))
        offset = b.inst("IAdd", "i64", line, e.resize(column, "i64", signed=False))
        e.lane = short(e, b.inst("IAdd", "i64", self.start, offset))
        return short(e, b.inst("IAdd", "i64", self.column, offset)) if self.outer else e.lane

    def split(self, position: Val) -> tuple[Val, Val]:
        """The line of a position of the tile, and its column."""
        b, columns = self.e.b, self.e.b.const("i32", self.plan.columns)
        line = b.inst("UDiv", "i32", position, columns)
        return line, b.inst("ISub", "i32", position, b.inst("IMul", "i32", line, columns))

    def stored(self, position: Val) -> Val | None:
        """Whether the element is one of the block; None: it is."""
        if self.unit.width is None:
            return None
        return self.e.b.inst("ULessThan", "bool", self.split(position)[1], self.unit.width)


class RunningTotals:
    """The arrays of the workgroup, and what it does for one unit. Implements Contribution."""

    meets = False

    def __init__(self, e: Emitter, plan: RunningTiles, emit_block: EmitOps) -> None:
        running = e.kernel.running
        assert running is not None
        self.e, self.b, self.plan, self.emit_block = e, e.b, plan, emit_block
        self.running: RunningTotal = running
        self.r = Reduction(running.kind, running.dtype, running.param, 0)
        self.array = GroupArray(e, register_type(running.dtype), plan.size + plan.slack)
        self.levels = [GroupPartials(e, self.r, e.b.group) for _ in range(2)]
        self.own = e.b.local_id()
        line, self.column = self._divided(self.own, plan.columns)
        self.row, self.chunk = self._divided(line, plan.chunks)
        self.owner = self._less(self.own, plan.owners) if plan.owners < e.b.group else None
        self.first = self.b.inst("IMul", "i32", self.chunk, self.b.const("i32", plan.each))
        self.start = self._start()

    # ---- Contribution

    def add(self, e: Emitter, slot: int, *terms: Val) -> None:
        (term,) = terms
        self.array.set(self._moved(e.position), term)

    def join(self, e: Emitter, slot: int, partial: Partial) -> None:
        raise AssertionError("a running total has terms only")

    # ---- a unit

    def emit(self, number: Val) -> None:
        """The unit of that number."""
        unit = Unit(self.e, self.plan, number)
        self.b.barrier()
        carried = _Carried(self)
        if self.plan.totals:
            side_by_side = not self.plan.stride % self.plan.columns
            self._tiles(unit, lambda tile: (self._gather if side_by_side else self._fold)(tile, carried))
            self._leave(unit, self._across(carried.get())[1])
            return
        if self.plan.spans > 1:
            self._before(unit, carried)
        self._tiles(unit, lambda tile: self._scan(tile, carried))

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

    def _terms(self, tile: RunningTile) -> list[Val]:
        """Those of the own positions, after all lanes have left theirs; nothing's where there is none."""
        plan = self.plan
        with self.e.contributing(self):
            self._lanes(tile)
        self.b.barrier()
        neutral = nothing(self.e, self.r)[0]
        found = [self.array.get(self._slot(k)) for k in range(plan.each)]
        if plan.exact:
            return found
        return [self.e.select(self._has(tile, k), x, neutral) for k, x in enumerate(found)]

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
        fold = ExactFold(self.e, self.r)
        with self.e.contributing(RegisterFolds([fold])):
            self._lanes(tile)
        carried.set(combined(self.e, self.r, carried.get(), fold.get()))

    def _fold(self, tile: RunningTile, carried: _Carried) -> None:
        """Only the total of what this invocation owns."""
        carried.set(with_all_exactly(self.e, self.r, carried.get(), self._terms(tile)))
        self.b.barrier()

    def _scan(self, tile: RunningTile, carried: _Carried) -> None:
        e, terms = self.e, self._terms(tile)
        before, whole = self._across(with_all_exactly(e, self.r, nothing(e, self.r), terms))
        if self.plan.tiles > 1:
            before = combined(e, self.r, carried.get(), before)
            carried.set(combined(e, self.r, carried.get(), whole))
        for k, term in enumerate(terms):
            before = with_exactly(e, self.r, before, term)
            self._put(tile, k, number(e, self.r, before))
        self.b.barrier()
        self._store(tile)
        if tile.shift is not None:  # other invocations read what the next tile's terms replace
            self.b.barrier()

    def _across(self, own: Partial) -> tuple[Partial, Partial]:
        """What the invocations before this one have of its column, and what all have."""
        e, b, plan = self.e, self.b, self.plan
        if plan.chunks == 1:
            return nothing(e, self.r), own
        arrays, step = self.levels, 1
        arrays[0].set(self.own, own)
        b.barrier()
        while step < plan.chunks:
            enough = b.inst("UGreaterThanEqual", "bool", self.chunk, b.const("i32", step))
            distance = b.const("i32", step * plan.columns)
            place = e.select(enough, b.inst("ISub", "i32", self.own, distance), self.own)
            joined = combined(e, self.r, arrays[0].get(place), own)
            own = tuple([e.select(enough, x, y) for x, y in zip(joined, own, strict=True)])
            arrays = arrays[::-1]
            arrays[0].set(self.own, own)
            b.barrier()
            step *= 2
        some = b.inst("UGreaterThan", "bool", self.chunk, b.const("i32", 0))
        one = b.const("i32", plan.columns)
        neighbour = arrays[0].get(e.select(some, b.inst("ISub", "i32", self.own, one), self.own))
        before = [e.select(some, x, y) for x, y in zip(neighbour, nothing(e, self.r), strict=True)]
        ahead = b.inst("ISub", "i32", b.const("i32", plan.chunks - 1), self.chunk)
        last = b.inst("IAdd", "i32", self.own, b.inst("IMul", "i32", ahead, one))
        if self.owner is not None:
            last = e.select(self.owner, last, self.own)
        return tuple(before), arrays[0].get(last)

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

    def _put(self, tile: RunningTile, k: int, value: Val) -> None:
        if self.plan.exact:
            self.array.set(self._slot(k), value)
        else:
            self.e.when(self._has(tile, k), lambda: self.array.set(self._slot(k), value))

    # ---- memory

    def _store(self, tile: RunningTile) -> None:
        """The tile's totals, in the order of memory."""
        b, stride, size = self.b, self.plan.stride, self.plan.size

        def one(position: Val, ahead: int = 0) -> None:
            tile.place(position, ahead)
            dtype = self.running.dtype
            value = to_memory(self.e, self.array.get(self._moved(self.e.position)), dtype)
            b.store(self.e.element(self.running.param, self.e.lane), value)

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

    def _place(self, unit: Unit, span: Val, part: int) -> Val:
        """The address of a part of a span's total, in the invocation's column."""
        e, b, plan = self.e, self.b, self.plan
        column = self.column
        if unit.width is not None:
            last = b.inst("ISub", "i32", unit.width, b.const("i32", 1))
            column = e.select(b.inst("ULessThan", "bool", column, last), column, last)
        row = b.inst("IAdd", "i64", b.inst("IMul", "i64", unit.group, b.const("i64", plan.spans)), span)
        line = b.inst("IAdd", "i64", b.inst("IMul", "i64", row, b.const("i64", plan.inner)), unit.first_column)
        place = b.inst("IAdd", "i64", line, e.resize(column, "i64", signed=False))
        if part:
            place = b.inst("IAdd", "i64", place, b.const("i64", part * plan.outer * plan.spans * plan.inner))
        return e.at(e.table.scratch[0], place, SIZE[memory_type(self.running.dtype)])

    def _leave(self, unit: Unit, total: Partial) -> None:
        """A span's total, by one invocation of each column."""
        mine = self._less(self.own, self.plan.columns if unit.width is None else unit.width)

        def leave() -> None:
            for part, value in enumerate(total):
                self.b.store(self._place(unit, unit.span, part), to_memory(self.e, value, self.running.dtype))

        self.e.when(mine, leave)

    def _before(self, unit: Unit, carried: _Carried) -> None:
        """What the spans before this one make together."""
        e, b, dtype = self.e, self.b, self.running.dtype
        place = b.local("i64")
        b.set(place, e.resize(self.chunk, "i64", signed=False))

        def total(ahead: int) -> Partial:
            """That of a span; nothing, if it isn't one before."""
            span, type = b.get(place, "i64"), memory_type(dtype)
            inside: Val | None = None
            if ahead:
                span = b.inst("IAdd", "i64", span, b.const("i64", ahead * self.plan.chunks))
                inside = b.inst("SLessThan", "bool", span, unit.span)
                span = e.select(inside, span, b.const("i64", 0))
            found = [from_memory(e, b.load(self._place(unit, span, p), type), dtype) for p in range(parts(self.r))]
            if inside is None:
                return tuple(found)
            return tuple([e.select(inside, x, y) for x, y in zip(found, nothing(e, self.r), strict=True)])

        def one() -> None:
            for found in [total(ahead) for ahead in range(SPANS_AT_ONCE)]:
                carried.set(combined(e, self.r, carried.get(), found))
            step = b.const("i64", SPANS_AT_ONCE * self.plan.chunks)
            b.set(place, b.inst("IAdd", "i64", b.get(place, "i64"), step))

        def test() -> Val:
            inside = b.inst("SLessThan", "bool", b.get(place, "i64"), unit.span)
            return inside if self.owner is None else e.both(self.owner, inside)

        emit_loop(e, test, one)
        carried.set(self._across(carried.get())[1])
        b.barrier()

    # ---- small things

    def _divided(self, x: Val, by: int) -> tuple[Val, Val]:
        b = self.b
        if by == 1:
            return x, b.const("i32", 0)
        quotient = b.inst("UDiv", "i32", x, b.const("i32", by))
        return quotient, b.inst("ISub", "i32", x, b.inst("IMul", "i32", quotient, b.const("i32", by)))

    def _less(self, x: Val, limit: int | Val) -> Val:
        return self.b.inst("ULessThan", "bool", x, self.b.const("i32", limit) if isinstance(limit, int) else limit)


class ExactFold(RegisterFold):
    """One term after the other: a running total shows what a single sum would hide."""

    def add(self, *terms: Val) -> None:
        self.set(with_all_exactly(self.e, self.reduction, self.get(), terms))


def with_exactly(e: Emitter, r: Reduction, total: Partial, term: Val) -> Partial:
    """One more term, which may be larger than the total."""
    if r.kind == EXPONENTIALS:
        return with_term(e, r, total, term)
    return combined(e, r, total, of_term(e, r, term))


def with_all_exactly(e: Emitter, r: Reduction, total: Partial, terms: Sequence[Val]) -> Partial:
    """Some more, of which only the sum is shown."""
    if r.kind == EXPONENTIALS:
        return with_terms(e, r, total, terms)
    for term in terms:
        total = with_exactly(e, r, total, term)
    return total


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
