"""Of long rows the elements at a few places of their order, without sorting them: digit by digit, the highest first.

    count   how many elements have which digit, of those whose digits above are the wanted element's
    find    the digit with which elements before the wanted one's place end, and how many come before these

(Alabi, Blanchard, Gordon, Steinbach, Fast k-selection algorithms for graphics processing units, 2012.) A pass reads all
elements and moves none. Places whose digits are alike so far share what is counted. Digits are those of the integers
that order elements (codegen.scalar.ordered_bits), and an element is made of them again: of zeros the positive one, of
NaN one that stands for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.scalar.ordered_bits import ordered, unordered
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines import radix_sort
from loopgrad.codegen.targets.gpu.routines.elements import Elements, held_type
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode, GroupSums
from loopgrad.codegen.targets.gpu.routines.radix_sort import DIGITS, WIDTH, TileOfRow, Tiling, row_and_inner
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import fill_kernel
from loopgrad.graph.types import int32, uint32, uint64


@dataclass(frozen=True, slots=True)
class CountDigits:
    """Of a chunk, for each of so many `places`. Arrays: elements; of each row and place the digits above; how many
    elements of a row have which digit at `shift`, to which this chunk's are added. In the `first` pass there are no
    digits above, and one place counts for all."""

    tiling: Tiling
    places: int
    shift: int
    first: bool

    def emit(self, e: Emitter, number: Val) -> None:
        t, code, b = self.tiling, GroupCode(e), e.b
        source, above, totals = e.table.params
        row, chunk = row_and_inner(code, number, t.chunks)
        elements, different = Elements(e, code, t.dtype), 1 if self.first else self.places
        upper = _digits_above(code, elements, above, row, different, self.first)
        alone = [_unlike_those_before(code, upper, place) for place in range(different)]
        bins = b.shared("i32", DIGITS * different)
        code.each(DIGITS * different, lambda cell: b.shared_set(bins, cell, code.i32(0)))
        b.barrier()

        def enter(cell: Val) -> None:
            b.shared_atomic("AtomicIAdd", bins, cell, code.i32(1))

        def tile(k: Val) -> None:
            for _, inside, bits in TileOfRow(code, t, row, code.plus(start, k)).loads(elements, source):
                key = ordered(elements.ops, bits, elements.dtype)
                digit = e.resize(code.op("BitwiseAnd", _from_bit(code, key, self.shift), DIGITS - 1), "i32")
                known = _from_bit(code, key, self.shift + WIDTH)
                for place in range(different):
                    here = e.both(e.both(inside, alone[place]), code.test("IEqual", known, upper[place]))
                    e.when(here, partial(enter, code.plus(digit, DIGITS * place)))

        start = code.op("IMul", chunk, t.per_chunk)
        left = code.op("ISub", code.i32(t.tiles), start)
        counted(e, e.select(code.test("SLessThan", left, t.per_chunk), left, code.i32(t.per_chunk)), tile)
        b.barrier()
        base = e.at(totals, row, 4 * DIGITS * self.places)

        def add(place: Val, some: Val) -> None:
            b.atomic("AtomicIAdd", place, some)

        def leave(cell: Val) -> None:
            some = b.shared_get(bins, cell, "i32")
            e.when(code.test("INotEqual", some, 0), partial(add, code.at(base, cell, 4), some))

        code.each(DIGITS * different, leave)
        b.barrier()


@dataclass(frozen=True, slots=True)
class FindDigits:
    """Of a row, the digit at `shift` of the element at each of the `places`. Arrays: what CountDigits left, which
    becomes 0; of each row and place the digits above, to which this one comes; how many elements with these come before
    the place; in the last pass (`shift` 0) the row in order, of which no more than the places is written."""

    dtype: str
    length: int
    places: tuple[int, ...]
    shift: int
    first: bool

    def emit(self, e: Emitter, row: Val) -> None:
        _Find(e, self, row).emit()


class _Find:
    def __init__(self, e: Emitter, program: FindDigits, row: Val) -> None:
        self.e, self.b, self.program, self.row, self.code = e, e.b, program, row, GroupCode(e)
        self.elements, self.sums = Elements(e, self.code, program.dtype), GroupSums(self.code, self.code.group)
        self.found = [e.b.shared("i32", 1) for _ in range(2)]  # the digit, and how many come before
        self.count = len(program.places)
        self.totals = e.at(e.table.params[0], row, 4 * DIGITS * self.count)
        self.above, self.ranks, *self.results = e.table.params[1:]
        self.upper = _digits_above(self.code, self.elements, self.above, row, self.count, program.first)
        each = -(-DIGITS // self.code.group)  # digits of an invocation, side by side
        first = self.code.times(self.code.own, each)
        self.some = self.code.test("ULessThan", first, DIGITS)
        self.digits = [self.code.plus(e.select(self.some, first, self.code.i32(0)), k) for k in range(each)]

    def emit(self) -> None:
        b, code = self.b, self.code
        for place in range(self.count):
            rank = self._rank(place)
            self._look(self._counts(place), rank)
            b.barrier()
            digit, before = [b.shared_get(one, code.i32(0), "i32") for one in self.found]
            leave = partial(self._leave, place, digit, code.op("ISub", rank, before))
            self.e.when(code.test("IEqual", code.own, 0), leave)
            b.barrier()
        code.each(DIGITS * self.count, lambda cell: b.store(code.at(self.totals, cell, 4), code.i32(0)))
        b.barrier()

    def _cell(self, place: int) -> Val:
        return self.code.plus(self.code.op("IMul", self.row, self.count), place)

    def _rank(self, place: int) -> Val:
        """Of the element that is looked for among those with its digits."""
        if self.program.first:
            return self.code.i32(self.program.places[place])
        return self.b.load(self.e.at(self.ranks, self._cell(place), 4), "i32")

    def _counts(self, place: int) -> list[Val]:
        """Of this invocation's digits: those of the first place that has the same digits above."""
        code, e, alike = self.code, self.e, self.code.i32(0)
        for other in range(place, 0, -1) if not self.program.first else ():
            alike = e.select(code.test("IEqual", self.upper[other], self.upper[place]), code.i32(other), alike)
        if not self.program.first:
            alike = e.select(code.test("IEqual", self.upper[0], self.upper[place]), code.i32(0), alike)
        bins = e.at(self.totals, code.wide(alike), 4 * DIGITS)
        return [e.select(self.some, self.b.load(code.at(bins, n, 4), "i32"), code.i32(0)) for n in self.digits]

    def _look(self, counts: list[Val], rank: Val) -> None:
        """The invocation whose digit it is tells all."""
        code, own = self.code, counts[0]
        for more in counts[1:]:
            own = code.plus(own, more)
        ((before, _),) = self.sums.before([own])
        for digit, some in zip(self.digits, counts, strict=True):
            after = code.plus(before, some)
            here = self.e.both(code.test("ULessThanEqual", before, rank), code.test("ULessThan", rank, after))
            self.e.when(self.e.both(self.some, here), partial(self._tell, digit, before))
            before = after

    def _tell(self, *found: Val) -> None:
        for one, value in zip(self.found, found, strict=True):
            self.b.shared_set(one, self.code.i32(0), value)

    def _leave(self, place: int, digit: Val, rank: Val) -> None:
        code, b, p, upper = self.code, self.b, self.program, self.upper[place]
        known = self.e.resize(digit, upper.type, signed=False)
        if not p.first:
            known = code.op("BitwiseOr", code.op("ShiftLeftLogical", upper, WIDTH), known)
        if p.shift:
            b.store(self.e.at(self.above, self._cell(place), SIZE[known.type]), known)
            b.store(self.e.at(self.ranks, self._cell(place), 4), rank)
            return
        base = self.e.at(self.results[0], code.op("IMul", self.row, p.length), self.elements.size)
        self.elements.store(base, code.i32(p.places[place]), unordered(self.elements.ops, known, self.elements.dtype))


def _digits_above(code: GroupCode, elements: Elements, array: Val, row: Val, count: int, first: bool) -> list[Val]:
    """Of each place of the row."""
    e, type = code.e, elements.held
    if first:
        return [e.b.const(type, 0)] * count
    base = e.at(array, code.op("IMul", row, count), SIZE[type])
    return [e.b.load(e.offset(base, SIZE[type] * place), type) for place in range(count)]


def _unlike_those_before(code: GroupCode, upper: list[Val], place: int) -> Val:
    unlike = code.b.const("bool", True)
    for other in upper[:place]:
        unlike = code.e.both(unlike, code.test("INotEqual", other, upper[place]))
    return unlike


def _from_bit(code: GroupCode, key: Val, bit: int) -> Val:
    return code.b.const(key.type, 0) if bit >= 8 * SIZE[key.type] else code.op("ShiftRightLogical", key, bit)


def _places(routine: Routine) -> tuple[int, ...]:
    places = routine.attrs.get("places", ())
    assert isinstance(places, tuple)
    return places


def _refuses(routine: Routine) -> str:
    if not _places(routine):
        return "all elements of rows are read"
    if 4 * DIGITS * len(_places(routine)) > routine.memory:
        return "more places than a workgroup has counters for"
    return radix_sort.PROVIDER.refuses(routine)


def _make(routine: Routine) -> None:
    t, places, dtype = radix_sort.tiling(routine), _places(routine), routine.inputs[0].type.dtype
    cells = t.rows * len(places)
    totals, ranks = routine.scratch(cells * DIGITS, int32), routine.scratch(cells, int32)
    above = routine.scratch(cells, uint64 if held_type(dtype) == "i64" else uint32)
    routine.by_lanes(fill_kernel(int32, 0, cells * DIGITS), cells * DIGITS, totals)
    for shift in range(dtype.bits - WIDTH, -1, -WIDTH):
        first = shift == dtype.bits - WIDTH
        count = CountDigits(t, len(places), shift, first)
        routine.by_groups("select_count", count, t.rows * t.chunks, *routine.inputs, above, totals)
        find = FindDigits(dtype.name, t.length, places, shift, first)
        results = routine.outputs if not shift else ()
        routine.by_groups("select_find", find, t.rows, totals, above, ranks, *results)


PROVIDER: Final = Provider("selection by digits", _refuses, _make)
