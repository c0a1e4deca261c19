"""Sorting long rows by digits of eight bits, the lowest first (Knuth, TAOCP 3, 5.2.5).

A pass is three launches over tiles of a row, as many as a workgroup holds: the elements of each digit are counted,
the counts summed up to where the elements of each tile and digit go, and each tile is put in order by its digit in
registers and written to there. So elements of a digit keep their order, in every tile and from tile to tile, and
neighbours are mostly written by neighbours. Some tiles that follow each other are a chunk, counted by one workgroup.

An element moves as it is: its digits are those of an integer that orders it (codegen.scalar.ordered_bits), made anew
in every pass. So NaN keep their bits, and zeros of either sign their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.digit_order import DIGIT, DigitOrder
from loopgrad.codegen.targets.gpu.routines.elements import Elements
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode, GroupSums
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine
from loopgrad.codegen.targets.gpu.routines.sort_rows import FEWEST_HELD, differing_bits, most_held, wanted
from loopgrad.graph.types import DTYPES, DType, TensorType, int32

WIDTH: Final = 2 * DIGIT  # bits of a digit
DIGITS: Final = 1 << WIDTH
MOST_CHUNKS: Final = 1024  # of all rows together, if they are no more
FEW_CHUNKS: Final = 32  # of a row
FEW_TILES: Final = 128  # fewer leave a device idle: they are made shorter
LONGEST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Tiling:
    """`rows` of `length` elements in tiles of `size`, `per_chunk` of which are a chunk. `descending`: from the
    largest."""

    dtype: str
    rows: int
    length: int
    size: int
    per_chunk: int
    descending: bool = False

    @property
    def tiles(self) -> int:
        """Of a row."""
        return -(-self.length // self.size)

    @property
    def chunks(self) -> int:
        """Of a row."""
        return -(-self.tiles // self.per_chunk)

    @property
    def one_digit(self) -> bool:
        """Whether an element has no more, whose first bit needn't be said."""
        return DTYPES[self.dtype].bits <= WIDTH


class TileOfRow:
    """A tile: which one it is of its row (i32), the row's number, and how many elements it has."""

    def __init__(self, code: GroupCode, tiling: Tiling, row: Val, tile: Val) -> None:
        self.code, self.tiling = code, tiling
        self.row, self.tile = row, tile
        begin = code.op("IMul", code.wide(tile), tiling.size)
        self.column = code.e.resize(begin, "i32")
        left = code.op("ISub", code.b.const("i64", tiling.length), begin)
        size = code.b.const("i64", tiling.size)
        self.count = code.e.resize(code.e.select(code.test("SLessThan", left, size), left, size), "i32")
        self.first = code.plus(code.op("IMul", row, tiling.length), begin)

    def loads(self, elements: Elements, array: Val) -> list[tuple[Val, Val, Val]]:
        """Of this invocation's turns: number in the tile, whether there is such an element, the element."""
        code, found = self.code, []
        base = code.e.at(array, self.first, elements.size)
        for k in range(self.tiling.size // code.group):
            number = code.plus(code.own, k * code.group)
            inside = code.test("ULessThan", number, self.count)
            found.append((number, inside, elements.load(base, code.e.select(inside, number, code.i32(0)))))
        return found


def first_bit(code: GroupCode, shifts: Sequence[Val]) -> Val:
    """That of the digit (i32), which the array has if there is one."""
    return code.b.load(shifts[0], "i32", invariant=True) if shifts else code.i32(0)


def row_and_inner(code: GroupCode, number: Val, by: int) -> tuple[Val, Val]:
    """A row (i64) and what is in it (i32), of a number (i64)."""
    row, inner = code.divided(number, by)
    return row, code.e.resize(inner, "i32")


@dataclass(frozen=True, slots=True)
class Count:
    """Of a chunk. Arrays: elements; for each tile and digit the elements in this chunk up to the end of the tile; for
    each chunk and digit its elements; the digit's first bit, if elements have several digits."""

    tiling: Tiling

    def emit(self, e: Emitter, number: Val) -> None:
        t, code, b = self.tiling, GroupCode(e), e.b
        elements = Elements(e, code, t.dtype, t.descending)
        bins, (source, counts, totals, *shifts) = b.shared("i32", DIGITS), e.table.params
        row, chunk = row_and_inner(code, number, t.chunks)
        shift = first_bit(code, shifts)
        first = code.op("IMul", chunk, t.per_chunk)
        code.each(DIGITS, lambda digit: b.shared_set(bins, digit, code.i32(0)))
        b.barrier()

        def enter(digit: Val) -> None:
            b.shared_atomic("AtomicIAdd", bins, digit, code.i32(1))

        def leave(array: Val, place: Val, digit: Val) -> None:
            b.store(code.at(e.at(array, place, 4 * DIGITS), digit, 4), b.shared_get(bins, digit, "i32"))

        def tile(k: Val) -> None:
            found = TileOfRow(code, t, row, code.plus(first, k))
            for _, inside, bits in found.loads(elements, source):
                digit = elements.digit(bits, shift, WIDTH)
                e.when(inside, partial(enter, digit))
            b.barrier()
            place = code.plus(code.op("IMul", row, t.tiles), code.wide(found.tile))
            code.each(DIGITS, partial(leave, counts, place))
            b.barrier()

        left = code.op("ISub", code.i32(t.tiles), first)
        trips = e.select(code.test("SLessThan", left, t.per_chunk), left, code.i32(t.per_chunk))
        counted(e, trips, tile)
        code.each(DIGITS, partial(leave, totals, number))
        b.barrier()


@dataclass(frozen=True, slots=True)
class SumChunks:
    """Of one digit of a row: what its chunks have of it becomes what those before them have. Arrays: for each chunk
    and digit its elements; for each digit those of the row."""

    chunks: int

    def emit(self, e: Emitter, number: Val) -> None:
        code, b = GroupCode(e), e.b
        sums = GroupSums(code, code.group)
        row, digit = row_and_inner(code, number, DIGITS)
        base = e.at(e.at(e.table.params[0], row, 4 * DIGITS * self.chunks), code.wide(digit), 4)
        each = -(-self.chunks // code.group)
        first, values = code.times(code.own, each), []
        for k in range(each):
            chunk = code.plus(first, k)
            inside = code.test("ULessThan", chunk, self.chunks)
            address = code.at(base, e.select(inside, chunk, code.i32(0)), 4 * DIGITS)
            values.append((inside, address, e.select(inside, b.load(address, "i32"), code.i32(0))))
        own = code.i32(0)
        for _, _, value in values:
            own = code.plus(own, value)
        ((running, total),) = sums.before([own])
        for inside, address, value in values:
            e.when(inside, partial(b.store, address, running))
            running = code.plus(running, value)
        leader = code.test("IEqual", code.own, 0)
        e.when(leader, lambda: b.store(e.at(e.table.params[1], number, 4), total))
        b.barrier()


@dataclass(frozen=True, slots=True)
class SumFewChunks:
    """The same for a whole row, an invocation for each digit."""

    chunks: int

    def emit(self, e: Emitter, row: Val) -> None:
        code, b = GroupCode(e), e.b
        chunks, digits = (
            e.at(array, row, 4 * DIGITS * n) for array, n in zip(e.table.params, (self.chunks, 1), strict=True)
        )

        def digit(number: Val) -> None:
            places = [code.at(chunks, code.plus(number, DIGITS * k), 4) for k in range(self.chunks)]
            running = code.i32(0)
            for place, value in zip(places, [b.load(place, "i32") for place in places], strict=True):
                b.store(place, running)
                running = code.plus(running, value)
            b.store(code.at(digits, number, 4), running)

        code.each(DIGITS, digit)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Of a tile. Arrays: elements; positions (i32), unless it is the `first` pass; what Count and SumChunks left (the
    latter where there are several chunks); the digit's first bit, as Count has it; then the elements and the positions
    as they are ordered, where there are `values` and `positions`, these as int64 in the `last` pass."""

    tiling: Tiling
    values: bool
    positions: bool
    first: bool
    last: bool

    def emit(self, e: Emitter, number: Val) -> None:
        _Scatter(e, self, number).emit()


class _Scatter:
    def __init__(self, e: Emitter, program: Scatter, number: Val) -> None:
        self.e, self.b, self.program, self.code = e, e.b, program, GroupCode(e)
        t, code, params = program.tiling, self.code, list(e.table.params)
        self.elements = Elements(e, code, t.dtype, t.descending)
        self.numbered = t.one_digit and program.positions  # elements have where they were above their bits
        self.order = DigitOrder(code, code.group, t.size // code.group, self.elements.held)
        self.sums = GroupSums(code, code.group, 2)
        self.targets = e.b.shared("i32", DIGITS)
        self.number = number
        row, tile = row_and_inner(code, number, t.tiles)
        self.tile = TileOfRow(code, t, row, tile)
        self.row_first = code.op("IMul", row, t.length)
        self.source = params.pop(0)
        self.old_positions = params.pop(0) if program.positions and not program.first else None
        self.counts, self.totals = params.pop(0), params.pop(0)
        self.digit_totals = params.pop(0) if t.chunks > 1 else self.totals
        self.shift = first_bit(code, [] if t.one_digit else [params.pop(0)])
        self.value_target = params.pop(0) if program.values else None
        self.position_target = params.pop(0) if program.positions else None

    def emit(self) -> None:
        b, order = self.b, self.order
        held, in_turn = order.held(), order.in_turn()
        loads = self.tile.loads(self.elements, self.source)
        bits = [self.e.select(inside, value, self.elements.last) for _, inside, value in loads]
        if self.numbered:
            numbers = [self.code.times(number, DIGITS) for number, _, _ in loads]
            bits = [self.code.op("BitwiseOr", x, number) for x, number in zip(bits, numbers, strict=True)]
        values = order.exchanged(bits, in_turn, held)
        positions = [] if self.numbered else self._positions(loads)
        b.barrier()
        for turn, back in ((0, held), (1, in_turn)):
            shift = self.code.plus(self.shift, turn * DIGIT)
            places = order.places(self._digits(values, shift))
            values = order.exchanged(values, places, back)
            if positions:
                b.barrier()
                positions = order.exchanged(positions, places, back)
        self._find_targets()
        self._store(loads, values, positions)
        b.barrier()

    def _digits(self, values: Sequence[Val], shift: Val) -> list[Val]:
        """Of the elements that this invocation holds. Those beyond the last are behind all others in every pass; where
        the largest come first no element has such digits, so they are told by their place, which they keep."""
        found = [self.elements.digit(value, shift, DIGIT) for value in values]
        if not self.program.tiling.descending:
            return found
        code, first = self.code, self.code.times(self.code.own, self.order.each)
        inside = [code.test("SLessThan", code.plus(first, k), self.tile.count) for k in range(self.order.each)]
        last = code.i32((1 << DIGIT) - 1)
        return [self.e.select(there, digit, last) for there, digit in zip(inside, found, strict=True)]

    def _positions(self, loads: Sequence[tuple[Val, Val, Val]]) -> list[Val]:
        """Those of the elements that this invocation holds."""
        code, order = self.code, self.order
        if not self.program.positions:
            return []
        if self.old_positions is None:
            first = code.plus(self.tile.column, code.times(code.own, order.each))
            return [code.plus(first, k) for k in range(order.each)]
        base = self.e.at(self.old_positions, self.tile.first, 4)
        found = [
            self.b.load(code.at(base, self.e.select(inside, number, code.i32(0)), 4), "i32")
            for number, inside, _ in loads
        ]
        self.b.barrier()
        return order.exchanged(found, order.in_turn(), order.held())

    def _find_targets(self) -> None:
        """For each digit, how far from its place in the ordered tile an element's place in the row is."""
        code, b, t = self.code, self.b, self.program.tiling
        each = -(-DIGITS // code.group)
        first = code.times(code.own, each)
        mine = code.test("ULessThan", first, DIGITS)
        first = self.e.select(mine, first, code.i32(0))
        inner = code.divided(self.tile.tile, t.per_chunk)
        begins = code.test("IEqual", inner[1], 0)
        zero, rows = code.i32(0), []
        above = self.e.select(begins, self.number, code.plus(self.number, -1))
        chunk = code.plus(code.op("IMul", self.tile.row, t.chunks), code.wide(inner[0]))
        for k in range(each):
            digit = code.plus(first, k)
            upto, before, total, chunks = (
                b.load(code.at(self.e.at(array, row, 4 * DIGITS), digit, 4), "i32")
                for array, row in (
                    (self.counts, self.number), (self.counts, above), (self.digit_totals, self.tile.row),
                    (self.totals, chunk),
                )
            )  # fmt: skip
            before = self.e.select(begins, zero, before)
            start = before if t.chunks == 1 else code.plus(before, chunks)
            rows.append((digit, start, total, code.op("ISub", upto, before)))
        totals, counts = zero, zero
        for _, _, total, count in rows:
            totals, counts = code.plus(totals, total), code.plus(counts, count)
        totals, counts = self.e.select(mine, totals, zero), self.e.select(mine, counts, zero)
        (lower, _), (inside, _) = self.sums.before([totals, counts])
        for digit, start, total, count in rows:
            target = code.op("ISub", code.plus(lower, start), inside)
            self.e.when(mine, partial(b.shared_set, self.targets, digit, target))
            lower, inside = code.plus(lower, total), code.plus(inside, count)
        b.barrier()

    def _store(self, loads: Sequence[tuple[Val, Val, Val]], values: Sequence[Val], positions: Sequence[Val]) -> None:
        """Elements and positions are held in turn now."""
        e, b, code = self.e, self.b, self.code
        size = 8 if self.program.last else 4
        if self.numbered:
            numbers = [code.op("ShiftRightLogical", value, WIDTH) for value in values]
            positions = [code.plus(self.tile.column, number) for number in numbers]
        for n, (number, inside, _) in enumerate(loads):
            digit = self.elements.digit(values[n], self.shift, WIDTH)
            target = code.plus(b.shared_get(self.targets, digit, "i32"), number)
            if self.value_target is not None:
                base = e.at(self.value_target, self.row_first, self.elements.size)
                e.when(inside, partial(self.elements.store, base, target, values[n]))
            if self.position_target is not None:
                address = code.at(e.at(self.position_target, self.row_first, size), target, size)
                position = code.wide(positions[n]) if size == 8 else positions[n]
                e.when(inside, partial(b.store, address, position))


def tiling(routine: Routine, descending: bool = False) -> Tiling:
    """How rows are cut, as many tiles of a workgroup's registers at a time as keep a device busy."""
    source = routine.inputs[0].type
    return tiled(source, routine.group, routine.memory, descending)


def tiled(source: TensorType, group: int, memory: int, descending: bool = False) -> Tiling:
    """The same for an array of rows and workgroups that share so many bytes."""
    length = source.shape[-1]
    rows = source.size // length
    each = most_held(source.dtype, group, memory - 8 * group - 8 * DIGITS)
    while each > FEWEST_HELD and source.size < FEW_TILES * group * each:
        each //= 2
    size = group * each
    tiles = -(-length // size)
    chunks = max(min(MOST_CHUNKS // rows, tiles), 1)
    return Tiling(source.dtype.name, rows, length, size, -(-tiles // chunks), descending)


def _refuses(routine: Routine) -> str:
    source = routine.inputs[0].type
    if routine.attrs["axis"] != len(source.shape) - 1:
        return "the axis isn't the last"
    if source.size and source.shape[-1] > LONGEST:
        return f"a row has more than {LONGEST:,} elements"
    if not most_held(source.dtype, routine.group, routine.memory - 8 * routine.group - 8 * DIGITS):
        return f"a workgroup has no more than {routine.memory:,} bytes of memory"
    return ""


def _make(routine: Routine) -> None:
    outputs = list(routine.outputs)
    values, positions = [outputs.pop(0) if is_wanted else None for is_wanted in wanted(routine)]
    make_launches(routine, values, positions)


def make_launches(routine: Routine, values: Array | None, positions: Array | None, descending: bool = False) -> None:
    """Sort the routine's operand into these."""
    t, (source,), dtype = tiling(routine, descending), routine.inputs, routine.inputs[0].type.dtype
    passes = -(-differing_bits(routine) // WIDTH)
    counts = routine.scratch(t.rows * t.tiles * DIGITS, int32)
    totals = routine.scratch(t.rows * t.chunks * DIGITS, int32)
    digits = routine.scratch(t.rows * DIGITS, int32) if t.chunks > 1 else None
    scratch = partial(_in_turn, routine, source.type.size)
    if values is not None:
        block = scratch(min(passes - 1, 1), dtype)
        value_blocks = [values if (passes - 1 - n) % 2 == 0 else block[0] for n in range(passes)]
    else:
        value_blocks = scratch(passes - 1, dtype)
    position_blocks = [] if positions is None else [*scratch(passes - 1, int32), positions]
    elements = source
    for n in range(passes):
        shift = [] if t.one_digit else [routine.constant(np.array([WIDTH * n], np.int32))]
        routine.by_groups("sort_count", Count(t), t.rows * t.chunks, elements, counts, totals, *shift)
        if digits is not None and t.chunks <= FEW_CHUNKS:
            routine.by_groups("sort_sums", SumFewChunks(t.chunks), t.rows, totals, digits)
        elif digits is not None:
            routine.by_groups("sort_sums", SumChunks(t.chunks), t.rows * DIGITS, totals, digits)
        last = n == passes - 1
        ordered = positions is not None
        program = Scatter(t, values is not None or not last, ordered, ordered and n == 0, ordered and last)
        arrays = [
            elements,
            *position_blocks[n - 1 : n],
            counts,
            totals,
            *([digits] if digits is not None else []),
            *shift,
        ]
        if program.values:
            arrays.append(value_blocks[n])
        if ordered:
            arrays.append(position_blocks[n])
        routine.by_groups("sort_scatter", program, t.rows * t.tiles, *arrays)
        if program.values:
            elements = value_blocks[n]


def _in_turn(routine: Routine, size: int, count: int, dtype: DType) -> list[Array]:
    """What `count` passes write: two blocks of memory in turn."""
    blocks = [routine.scratch(size, dtype) for _ in range(min(count, 2))]
    return [blocks[n % 2] for n in range(count)]


PROVIDER: Final = Provider("radix sort", _refuses, _make)
