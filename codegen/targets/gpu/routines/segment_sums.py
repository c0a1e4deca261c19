"""Sums of rows that belong to the same segment, in an order that only the number of rows fixes, without atomics.

Rows are read in the order of their segments, some that follow each other, a chunk, by the same invocations, each of
which has a few neighbouring columns. It writes the sums of segments that begin and end in the chunk. Of the one that
began before, its head, and of one that goes on beyond it, its tail, the chunk leaves a part. Where heads of several
chunks, a block, are all of one segment, these are added up, and so are blocks of blocks. Then whoever has a tail adds
what follows to it, by the largest blocks that there are. Few segments are longer than two chunks, for which little is
to be done, and no chain is long for those that are. What additions lose is carried along (`codegen.math.compensated`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.math.compensated import added, balanced, merged, rounded
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.side_by_side import WORD
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body, fill_kernel
from loopgrad.graph.types import DTYPES, DType, int32, int64, sum_dtype

CHUNKS: Final = (32, 16, 8)  # rows of one
MUCH: Final = 1 << 18  # elements of as many rows as there are chunks, which keep a device busy
AT_ONCE: Final = 8  # rows that are read before they are added up
BLOCK: Final = 4  # the logarithm of how many heads a block has


def _side(width: int, itemsize: int) -> int:
    """Columns of an invocation."""
    return next(n for n in (VECTOR_BYTES // itemsize, 2, 1) if width % n == 0)


@dataclass(frozen=True, slots=True)
class SegmentChunks:
    """Sums of `rows` rows of `width` elements, in chunks of `each`, by segments numbered below `count`. `onto`: they
    are added to what the result has.

    Arrays: rows, the segments in their order, and which row is of each of these (both int32); the result; of the
    chunks' heads the sums, what these lost, and their segments (int32), -1 where there is none; and of their tails."""

    dtype: str
    rows: int
    width: int
    count: int
    each: int
    onto: bool = False

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.each)

    @property
    def side(self) -> int:
        return _side(self.width, sum_dtype(DTYPES[self.dtype]).itemsize)

    @property
    def invocations(self) -> int:
        return self.chunks * (self.width // self.side)

    def emit(self, e: Emitter, tile: Val) -> None:
        _each_invocation(e, tile, self.invocations, lambda code, number: _ChunkWalk(code, self, number).emit())


@dataclass(frozen=True, slots=True)
class SegmentBlocks:
    """Of the blocks of one level, and those of the next where there are some, `counts` of them, from number `target`
    on, those of which all parts, from number `source` on, are of one segment; the next level's from the same parts, of
    which few are read. Arrays: sums of float32 or float64, what these lost, segments."""

    dtype: str
    width: int
    counts: tuple[int, ...]
    source: int
    target: int

    @property
    def invocations(self) -> int:
        return sum(self.counts) * (self.width // _side(self.width, DTYPES[self.dtype].itemsize))

    def emit(self, e: Emitter, tile: Val) -> None:
        _each_invocation(e, tile, self.invocations, self._block)

    def _block(self, code: GroupCode, number: Val) -> None:
        sums, b = _Sums(code, self.dtype, self.width, number), code.b
        first, trips = code.times(sums.row, 1 << BLOCK), code.i32(1)
        if len(self.counts) > 1:
            upper = code.test("UGreaterThanEqual", sums.row, self.counts[0])
            above = code.times(code.plus(sums.row, -self.counts[0]), 1 << 2 * BLOCK)
            first, trips = code.e.select(upper, above, first), code.e.select(upper, code.i32(1 << BLOCK), trips)
        first = code.plus(first, self.source)
        arrays, target = code.e.table.params, code.plus(sums.row, self.target)
        last = code.plus(b.inst("IAdd", "i32", first, code.times(trips, 1 << BLOCK)), -1)
        segment, other = (sums.segment(arrays[2], end) for end in (first, last))
        whole = code.e.both(code.test("SGreaterThanEqual", segment, 0), b.inst("IEqual", "bool", segment, other))

        def add() -> None:
            total = _HeldPart(sums)

            def some(k: Val) -> None:
                start = b.inst("IAdd", "i32", first, code.times(k, 1 << BLOCK))
                parts = [sums.load(arrays, code.plus(start, n)) for n in range(1 << BLOCK)]
                total.set(sums.merged(total.get(), balanced(sums.merged, parts)))

            counted(code.e, trips, some)
            sums.store(arrays, target, total.get())

        code.e.when(whole, add)
        sums.leave_segment(arrays[2], target, code.e.select(whole, segment, code.i32(-1)))


@dataclass(frozen=True, slots=True)
class SegmentEnds:
    """Sums of the segments that go on beyond the chunk in which they begin. `counts`: of heads, of their blocks, of
    blocks of these. Arrays: the result; of heads and blocks, one after the other, sums of float32 or float64, what
    these lost, segments; the same of tails."""

    dtype: str
    width: int
    counts: tuple[int, ...]
    onto: bool = False

    @property
    def invocations(self) -> int:
        return self.counts[0] * (self.width // _side(self.width, DTYPES[self.dtype].itemsize))

    def emit(self, e: Emitter, tile: Val) -> None:
        _each_invocation(e, tile, self.invocations, self._end)

    def _end(self, code: GroupCode, number: Val) -> None:
        sums, params = _Sums(code, self.dtype, self.width, number), code.e.table.params
        segment = sums.segment(params[6], sums.row)
        walk = partial(self._walk, code, sums, segment, params)
        code.e.when(code.test("SGreaterThanEqual", segment, 0), walk)

    def _walk(self, code: GroupCode, sums: _Sums, segment: Val, params: Sequence[Val]) -> None:
        b, (result, heads, tails) = code.b, (params[0], params[1:4], params[4:])
        place, found, length = (b.local("i32") for _ in range(3))
        total = _HeldPart(sums)

        def look() -> None:
            entry, step = self._next(code, sums, segment, heads[2], b.get(place, "i32"))
            b.set(found, entry)
            b.set(length, step)

        def more() -> Val:
            return code.test("SGreaterThanEqual", b.get(found, "i32"), 0)

        def go_on() -> None:
            total.set(sums.merged(total.get(), sums.load(heads, b.get(found, "i32"))))
            b.set(place, b.inst("IAdd", "i32", b.get(place, "i32"), b.get(length, "i32")))
            look()

        total.set(sums.load(tails, sums.row))
        b.set(place, code.plus(sums.row, 1))
        look()
        emit_loop(code.e, more, go_on)
        sums.write(result, segment, total.get(), self.onto)

    def _next(self, code: GroupCode, sums: _Sums, segment: Val, segments: Val, place: Val) -> tuple[Val, Val]:
        """The largest block of the segment that begins at this head, -1 where it is of another; and its heads."""
        entry, step, first = code.i32(-1), code.i32(0), 0
        for level, count in enumerate(self.counts):
            shift = BLOCK * level
            number = code.op("ShiftRightLogical", place, shift) if level else place
            begins = code.test("ULessThan", number, count)
            if level:
                low = code.op("BitwiseAnd", place, (1 << shift) - 1)
                begins = code.e.both(begins, code.test("IEqual", low, 0))
            number = code.plus(code.e.select(begins, number, code.i32(0)), first)
            same = code.b.inst("IEqual", "bool", sums.segment(segments, number), segment)
            same = code.e.both(begins, same)
            entry, step = code.e.select(same, number, entry), code.e.select(same, code.i32(1 << shift), step)
            first += count
        return entry, step


def _each_invocation(e: Emitter, tile: Val, count: int, body: Callable[[GroupCode, Val], None]) -> None:
    """body(code, the invocation's number) for the first `count`."""
    code = GroupCode(e)
    number = code.plus(code.op("IMul", tile, code.group), code.wide(code.own))
    e.when(code.test("ULessThan", number, count), lambda: body(code, number))


Part = list[tuple[Val, Val]]
"""Sums of neighbouring columns, each with what it lost."""


class _Sums:
    """Sums of rows in memory, of which the invocation of this number has some columns of row `row` (i32)."""

    def __init__(self, code: GroupCode, dtype: str, width: int, number: Val) -> None:
        self.code, self.b, self.width = code, code.b, width
        self.type = register_type(DTYPES[dtype])
        self.side, self.ops = _side(width, SIZE[self.type]), ScalarOps(code.e)
        row, column = code.divided(number, width // self.side)
        self.row, self.column = code.e.resize(row, "i32"), code.times(column, self.side)

    def place(self, array: Val, row: Val) -> Val:
        element = self.code.plus(self.code.op("IMul", self.code.wide(row), self.width), self.column)
        return self.code.e.at(array, element, SIZE[self.type])

    def load(self, arrays: Sequence[Val], row: Val) -> Part:
        return list(zip(*[self._values(self.place(array, row)) for array in arrays[:2]], strict=True))

    def _values(self, place: Val) -> list[Val]:
        if self.side > 1:
            return self.b.load_vector(place, self.type, self.side)
        return [self.b.load(place, self.type)]

    def store(self, arrays: Sequence[Val], row: Val, part: Part) -> None:
        for array, values in zip(arrays, zip(*part, strict=True), strict=False):
            self._put(array, row, values)

    def _put(self, array: Val, row: Val, values: Sequence[Val]) -> None:
        if self.side > 1:
            self.b.store_vector(self.place(array, row), values)
        else:
            self.b.store(self.place(array, row), values[0])

    def write(self, result: Val, segment: Val, part: Part, onto: bool) -> None:
        """The sum of a whole segment, which nobody else writes."""
        if onto:
            before = self._values(self.place(result, segment))
            part = [added(self.ops, *one, x) for one, x in zip(part, before, strict=True)]
        self._put(result, segment, [rounded(self.ops, total, rest) for total, rest in part])

    def merged(self, x: Part, y: Part) -> Part:
        return [merged(self.ops, *one, *other) for one, other in zip(x, y, strict=True)]

    def segment(self, array: Val, row: Val) -> Val:
        return self.b.load(self.code.at(array, row, 4), "i32")

    def leave_segment(self, array: Val, row: Val, segment: Val) -> None:
        first = self.code.test("IEqual", self.column, 0)
        self.code.e.when(first, lambda: self.b.store(self.code.at(array, row, 4), segment))


class _HeldPart:
    """A part in variables, nothing at first."""

    def __init__(self, sums: _Sums) -> None:
        self.b, self.type = sums.b, sums.type
        self.totals = [(self.b.local(sums.type), self.b.local(sums.type)) for _ in range(sums.side)]
        nothing = self.b.const(sums.type, 0.0)
        self.set([(nothing, nothing)] * sums.side)

    def get(self) -> Part:
        return [(self.b.get(x, self.type), self.b.get(y, self.type)) for x, y in self.totals]

    def set(self, part: Part) -> None:
        for variables, values in zip(self.totals, part, strict=True):
            for variable, value in zip(variables, values, strict=True):
                self.b.set(variable, value)


class _Row(NamedTuple):
    """`segment`: its number (i32); `counts`: whether it is added; its elements."""

    segment: Val
    counts: Val
    elements: list[Val]


class _ChunkWalk:
    """One invocation's columns of a chunk. Of the segment that it is in: `opened`: it began before the chunk; `some`:
    rows of it were added. `headed`: something was left of the segment with which the chunk begins."""

    def __init__(self, code: GroupCode, program: SegmentChunks, number: Val) -> None:
        self.code, self.e, self.b, self.p = code, code.e, code.b, program
        self.dtype = DTYPES[program.dtype]
        self.sums = _Sums(code, sum_dtype(self.dtype).name, program.width, number)
        self.first = code.times(self.sums.row, program.each)
        params = code.e.table.params
        self.source, self.result, self.heads, self.tails = params[:3], params[3], params[4:7], params[7:]
        self.segment = self.b.local("i32")
        self.opened, self.some, self.headed = [self.b.local("bool") for _ in range(3)]
        type = self.sums.type
        self.totals = [(self.b.local(type), self.b.local(type)) for _ in range(program.side)]

    def emit(self) -> None:
        p, b, code = self.p, self.b, self.code
        begin = self._segment(self.first)
        started = code.test("UGreaterThan", self.sums.row, 0)
        self._begin(begin, self._neighbour(code.plus(self.first, -1), started, begin))
        b.set(self.headed, self._false())
        counted(self.e, code.i32(p.each // AT_ONCE), lambda n: self._add_some(code.times(n, AT_ONCE)))
        after = code.plus(self.first, p.each)
        end, opened = b.get(self.segment, "i32"), b.get(self.opened, "bool")
        goes_on = self._neighbour(after, code.test("ULessThan", after, p.rows), end)
        stays = self.e.both(b.get(self.some, "bool"), b.inst("LogicalNot", "bool", opened))
        tailed = self.e.both(stays, goes_on)
        self.e.one_of(tailed, lambda: self.sums.store(self.tails, self.sums.row, self._part()), self._close)
        for array, there, segment in ((self.heads[2], b.get(self.headed, "bool"), begin), (self.tails[2], tailed, end)):
            self.sums.leave_segment(array, self.sums.row, self.e.select(there, segment, code.i32(-1)))

    def _false(self) -> Val:
        return self.b.const("bool", False)

    # rows

    def _segment(self, number: Val) -> Val:
        """Of the row that comes at this place."""
        return self.b.load(self.code.at(self.source[1], number, 4), "i32", invariant=True)

    def _neighbour(self, number: Val, exists: Val, segment: Val) -> Val:
        """Whether the row at this place, if there is one, is of the segment too."""
        other = self._segment(self.e.select(exists, number, self.first))
        return self.e.both(exists, self.b.inst("IEqual", "bool", other, segment))

    def _row(self, number: Val) -> _Row:
        """A row beyond the last is that one, and doesn't count."""
        code, p = self.code, self.p
        inside = code.test("ULessThan", number, p.rows)
        number = self.e.select(inside, number, code.i32(p.rows - 1))
        segment = self._segment(number)
        counts = self.e.both(inside, code.test("ULessThan", segment, p.count))
        place = code.wide(self.b.load(code.at(self.source[2], number, 4), "i32", invariant=True))
        return _Row(segment, counts, self._elements(code.plus(code.op("IMul", place, p.width), self.sums.column)))

    def _elements(self, element: Val) -> list[Val]:
        p, b, stored = self.p, self.b, memory_type(self.dtype)
        size = SIZE[stored]
        address = self.e.at(self.source[0], element, size)
        if p.side * size >= WORD and p.side > 1:
            found = b.load_vector(address, stored, p.side, invariant=True)
        else:
            found = [b.load(self.e.offset(address, k * size), stored, invariant=True) for k in range(p.side)]
        return [self.sums.ops.widened(from_memory(self.e, x, self.dtype), self.dtype) for x in found]

    # sums

    def _begin(self, segment: Val, opened: Val) -> None:
        b = self.b
        b.set(self.segment, segment)
        b.set(self.opened, opened)
        b.set(self.some, self._false())
        for variables in self.totals:
            for variable in variables:
                b.set(variable, b.const(self.sums.type, 0.0))

    def _part(self) -> Part:
        type = self.sums.type
        return [(self.b.get(total, type), self.b.get(rest, type)) for total, rest in self.totals]

    def _add_some(self, first: Val) -> None:
        rows = [self._row(self.code.plus(self.code.plus(self.first, first), k)) for k in range(AT_ONCE)]
        for row in rows:
            self._add(row)

    def _add(self, row: _Row) -> None:
        e, b = self.e, self.b

        def next_segment() -> None:
            self._close()
            self._begin(row.segment, self._false())

        e.when(b.inst("INotEqual", "bool", row.segment, b.get(self.segment, "i32")), next_segment)
        b.set(self.some, e.either(b.get(self.some, "bool"), row.counts))
        nothing = b.const(self.sums.type, 0.0)
        for variables, part, x in zip(self.totals, self._part(), row.elements, strict=True):
            sums = added(self.sums.ops, *part, e.select(row.counts, x, nothing))
            for variable, value in zip(variables, sums, strict=True):
                b.set(variable, value)

    def _close(self) -> None:
        """The segment ends here: its sum, if there is one, is written, or left where the segment began before."""

        def leave() -> None:
            self.sums.store(self.heads, self.sums.row, self._part())
            self.b.set(self.headed, self.b.const("bool", True))

        def write() -> None:
            self.sums.write(self.result, self.b.get(self.segment, "i32"), self._part(), self.p.onto)

        some, opened = self.b.get(self.some, "bool"), self.b.get(self.opened, "bool")
        self.e.when(some, lambda: self.e.one_of(opened, leave, write))


def _copied(dtype: DType, size: int) -> Kernel:
    lane, body = KValue(int64), Body()
    body.store(1, lane, body.one("load", dtype, lane, param=0))
    params = (BufferParam(dtype, size, "read"), BufferParam(dtype, size, "write"))
    return Kernel("copied", (size,), params, Block((lane,), body.ops))


def _chunk(elements: int) -> int:
    """The rows of one, where there are so many elements: fewer where that makes enough invocations."""
    return next((n for n in CHUNKS if elements >= MUCH * n), CHUNKS[-1])


def _make(routine: Routine) -> None:
    """Segments without rows stay as they start."""
    (values, segments, rows_read, *start), (result,) = routine.inputs, routine.outputs
    wide, shape, rank = result.type.dtype, result.type.shape, routine.attrs["rank"]
    assert isinstance(rank, int)
    count, width = prod(shape[:rank]), prod(shape[rank:])
    rows = segments.type.size
    size = count * width
    routine.by_lanes(_copied(wide, size) if start else fill_kernel(wide, 0.0, size), size, *start, result)
    onto = bool(start)
    chunks = SegmentChunks(values.type.dtype.name, rows, width, count, _chunk(rows * width), onto)
    counts = [chunks.chunks]
    while counts[-1] >= 2 << BLOCK:
        counts.append(counts[-1] >> BLOCK)
    heads, tails = (_parts(routine, number, width, wide) for number in (sum(counts), counts[0]))

    def launch(program: SegmentChunks | SegmentBlocks | SegmentEnds, *arrays: Array) -> None:
        routine.by_groups("segment_sums", program, -(-program.invocations // routine.group), *arrays)

    launch(chunks, values, segments, rows_read, result, *heads, *tails)
    for level in range(1, len(counts), 2):
        source, target = sum(counts[: level - 1]), sum(counts[:level])
        launch(SegmentBlocks(wide.name, width, tuple(counts[level : level + 2]), source, target), *heads)
    if chunks.chunks > 1:
        launch(SegmentEnds(wide.name, width, tuple(counts), onto), result, *heads, *tails)


def _parts(routine: Routine, count: int, width: int, dtype: DType) -> list[Array]:
    """Room for so many rows of sums, what these lost, and their segments."""
    return [
        routine.scratch(size, kind) for size, kind in ((count * width, dtype), (count * width, dtype), (count, int32))
    ]


PROVIDER: Final = Provider("sums of sorted rows", lambda _: "", _make)
