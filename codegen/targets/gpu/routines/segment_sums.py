"""Sums of rows that belong to the same segment, in an order that only the number of rows fixes, without atomics.

Rows are read in the order of their segments, some that follow each other, a chunk, by the same invocations, each of
which has a few neighbouring columns. It writes the sums of segments that begin and end in the chunk. Of those that go
beyond it a part is left: an entry for the segment with which the chunk begins, and one for that with which it ends.
Entries are rows again, in the order of their segments, and are added up in the same way, until there is one chunk
(after the segmented scans of Sengupta, Harris, Zhang and Owens, Scan primitives for GPU computing, 2007). What
additions lose is carried along (`codegen.math.compensated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KValue
from loopgrad.codegen.math.compensated import added, merged, rounded
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter, memory_type, register_type
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.emit.memory_form import from_memory
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import DTYPES, DType, int32, int64, sum_dtype

CHUNKS: Final = (32, 16, 8)  # rows of one
MUCH: Final = 1 << 18  # elements of as many rows as there are chunks, which keep a device busy
AT_ONCE: Final = 8  # rows that are read before they are added up
ENTRIES_AT_ONCE: Final = 16  # of which there are few, so that a device has registers for many


@dataclass(frozen=True, slots=True)
class SegmentChunks:
    """Sums of `rows` rows of `width` elements, in chunks of `each`, by segments numbered below `count`.

    Arrays: rows, the segments in their order, and which row is of each of these (both int32); or, of `entries`, their
    sums, what these lost, and their marks (int32). The result. Where there are several chunks, the same three of two
    entries for each of them. A mark is a segment's number, inverted where nothing was left."""

    dtype: str
    rows: int
    width: int
    count: int
    each: int
    entries: bool

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.each)

    @property
    def side(self) -> int:
        """Columns of an invocation."""
        most = VECTOR_BYTES // sum_dtype(DTYPES[self.dtype]).itemsize
        return next(n for n in (most, 2, 1) if self.width % n == 0)

    @property
    def invocations(self) -> int:
        return self.chunks * (self.width // self.side)

    def emit(self, e: Emitter, tile: Val) -> None:
        code = GroupCode(e)
        number = code.plus(code.op("IMul", tile, code.group), code.wide(code.own))
        e.when(code.test("ULessThan", number, self.invocations), lambda: _ChunkWalk(code, self, number).emit())


class _Row(NamedTuple):
    """`segment`: its number (i32); `counts`: whether it is added; `sums`, and of entries the `rests` of these."""

    segment: Val
    counts: Val
    sums: list[Val]
    rests: list[Val]


class _ChunkWalk:
    """One invocation's columns of a chunk. Of the segment that it is in: `opened`: it began before the chunk; `some`:
    rows of it were added. `carried`: something was left of the segment with which the chunk begins."""

    def __init__(self, code: GroupCode, program: SegmentChunks, number: Val) -> None:
        self.code, self.e, self.b, self.p = code, code.e, code.b, program
        self.ops, self.dtype = ScalarOps(code.e), DTYPES[program.dtype]
        self.wide = register_type(sum_dtype(self.dtype))
        chunk, column = code.divided(number, program.width // program.side)
        self.chunk, self.column = code.e.resize(chunk, "i32"), code.times(column, program.side)
        self.first = code.times(self.chunk, program.each)
        params = code.e.table.params
        self.source, self.result, self.left = params[:3], params[3], params[4:]
        self.segment = self.b.local("i32")
        self.opened, self.some, self.carried = [self.b.local("bool") for _ in range(3)]
        self.sums, self.rests = [[self.b.local(self.wide) for _ in range(program.side)] for _ in range(2)]

    def emit(self) -> None:
        p, b, code = self.p, self.b, self.code
        begin = self._segment(self.first)
        self._begin(begin, self._neighbour(code.plus(self.first, -1), code.test("UGreaterThan", self.chunk, 0), begin))
        b.set(self.carried, self._false())
        at_once = ENTRIES_AT_ONCE if p.entries else AT_ONCE
        counted(self.e, code.i32(p.each // at_once), lambda n: self._add_some(code.times(n, at_once), at_once))
        if not self.left:
            self._close()
            return
        after = code.plus(self.first, p.each)
        end, opened = b.get(self.segment, "i32"), b.get(self.opened, "bool")
        goes_on = self._neighbour(after, code.test("ULessThan", after, p.rows), end)
        stays = self.e.both(b.get(self.some, "bool"), b.inst("LogicalNot", "bool", opened))
        ends = self.e.both(stays, goes_on)
        self.e.one_of(ends, partial(self._leave, 1), self._close)
        self.e.when(code.test("IEqual", self.column, 0), partial(self._mark, begin, end, ends))

    def _false(self) -> Val:
        return self.b.const("bool", False)

    # rows

    def _place(self, number: Val) -> Val:
        """Where the row that comes at this place lies (i64)."""
        if self.p.entries:
            return self.code.wide(number)
        return self.code.wide(self.b.load(self.code.at(self.source[2], number, 4), "i32", invariant=True))

    def _marked(self, number: Val) -> tuple[Val, Val]:
        """The segment of the row that comes at this place, and whether anything is to be added to it."""
        code, b = self.code, self.b
        array = self.source[2 if self.p.entries else 1]
        found = b.load(code.at(array, number, 4), "i32", invariant=True)
        if not self.p.entries:
            return found, code.test("ULessThan", found, self.p.count)
        segment = code.op("BitwiseXor", found, code.op("ShiftRightArithmetic", found, 31))
        return segment, code.test("SGreaterThanEqual", found, 0)

    def _segment(self, number: Val) -> Val:
        return self._marked(number)[0]

    def _neighbour(self, number: Val, exists: Val, segment: Val) -> Val:
        """Whether the row at this place, if there is one, is of the segment too."""
        other = self._segment(self.e.select(exists, number, self.first))
        return self.e.both(exists, self.b.inst("IEqual", "bool", other, segment))

    def _row(self, number: Val) -> _Row:
        """A row beyond the last is that one, and doesn't count."""
        code, p = self.code, self.p
        inside = code.test("ULessThan", number, p.rows)
        number = self.e.select(inside, number, code.i32(p.rows - 1))
        segment, counts = self._marked(number)
        element = code.plus(code.op("IMul", self._place(number), p.width), self.column)
        sums, *rests = [self._elements(array, element) for array in self.source[: 2 if p.entries else 1]]
        return _Row(segment, self.e.both(inside, counts), sums, rests[0] if rests else [])

    def _elements(self, array: Val, element: Val) -> list[Val]:
        p, b = self.p, self.b
        stored = memory_type(self.dtype)
        size = SIZE[stored]
        address = self.e.at(array, element, size)
        if p.side * size >= 4 and p.side > 1:
            found = b.load_vector(address, stored, p.side, invariant=True)
        else:
            found = [b.load(self.e.offset(address, k * size), stored, invariant=True) for k in range(p.side)]
        return [self.ops.widened(from_memory(self.e, x, self.dtype), self.dtype) for x in found]

    # sums

    def _begin(self, segment: Val, opened: Val) -> None:
        b = self.b
        b.set(self.segment, segment)
        b.set(self.opened, opened)
        b.set(self.some, self._false())
        for variable in (*self.sums, *self.rests):
            b.set(variable, b.const(self.wide, 0.0))

    def _add_some(self, first: Val, count: int) -> None:
        rows = [self._row(self.code.plus(self.code.plus(self.first, first), k)) for k in range(count)]
        for row in rows:
            self._add(row)

    def _add(self, row: _Row) -> None:
        e, b = self.e, self.b

        def next_segment() -> None:
            self._close()
            self._begin(row.segment, self._false())

        e.when(b.inst("INotEqual", "bool", row.segment, b.get(self.segment, "i32")), next_segment)
        b.set(self.some, e.either(b.get(self.some, "bool"), row.counts))
        nothing = b.const(self.wide, 0.0)
        for k, (sum, rest) in enumerate(zip(self.sums, self.rests, strict=True)):
            term = e.select(row.counts, row.sums[k], nothing)
            total, lost = b.get(sum, self.wide), b.get(rest, self.wide)
            if row.rests:
                total, lost = merged(self.ops, total, lost, term, e.select(row.counts, row.rests[k], nothing))
            else:
                total, lost = added(self.ops, total, lost, term)
            b.set(sum, total)
            b.set(rest, lost)

    # what becomes of them

    def _close(self) -> None:
        """The segment ends here: its sum, if there is one, is written, or left where the segment began before."""

        def leave() -> None:
            self._leave(0)
            self.b.set(self.carried, self.b.const("bool", True))

        def close() -> None:
            if self.left:
                self.e.one_of(self.b.get(self.opened, "bool"), leave, self._write)
            else:
                self._write()

        self.e.when(self.b.get(self.some, "bool"), close)

    def _write(self) -> None:
        pairs = zip(self.sums, self.rests, strict=True)
        found = [rounded(self.ops, self.b.get(x, self.wide), self.b.get(y, self.wide)) for x, y in pairs]
        self._store(self.result, self.b.get(self.segment, "i32"), found)

    def _leave(self, number: int) -> None:
        """As the chunk's first or second entry."""
        entry = self.code.plus(self.code.times(self.chunk, 2), number)
        for array, variables in zip(self.left, (self.sums, self.rests), strict=False):
            self._store(array, entry, [self.b.get(v, self.wide) for v in variables])

    def _store(self, array: Val, row: Val, values: Sequence[Val]) -> None:
        element = self.code.plus(self.code.op("IMul", self.code.wide(row), self.p.width), self.column)
        address = self.e.at(array, element, SIZE[self.wide])
        if len(values) > 1:
            self.b.store_vector(address, values)
        else:
            self.b.store(address, values[0])

    def _mark(self, begin: Val, end: Val, ends: Val) -> None:
        code, b = self.code, self.b
        for number, segment, counts in ((0, begin, b.get(self.carried, "bool")), (1, end, ends)):
            mark = self.e.select(counts, segment, b.inst("Not", "i32", segment))
            entry = code.plus(code.times(self.chunk, 2), number)
            b.store(code.at(self.left[2], entry, 4), mark)


def _zeros(dtype: DType, size: int) -> Kernel:
    lane, body = KValue(int64), Body()
    body.store(0, lane, body.const(0.0, dtype))
    return Kernel("zeros", (size,), (BufferParam(dtype, size, "write"),), Block((lane,), body.ops))


def _chunk(elements: int) -> int:
    """The rows of one, where there are so many elements: fewer where that makes enough invocations."""
    return next((n for n in CHUNKS if elements >= MUCH * n), CHUNKS[-1])


def _make(routine: Routine) -> None:
    """Segments without rows stay zero."""
    (values, segments, _), (result,) = routine.inputs, routine.outputs
    wide, shape, rank = result.type.dtype, result.type.shape, routine.attrs["rank"]
    assert isinstance(rank, int)
    count, width = prod(shape[:rank]), prod(shape[rank:])
    routine.by_lanes(_zeros(wide, count * width), count * width, result)
    source: Sequence[Array] = routine.inputs
    each = _chunk(values.type.size)
    program = SegmentChunks(values.type.dtype.name, segments.type.size, width, count, each, entries=False)
    while True:
        left = 2 * program.chunks if program.chunks > 1 else 0
        sizes = ((left * width, wide), (left * width, wide), (left, int32))
        entries = [routine.scratch(size, dtype) for size, dtype in sizes]
        tiles = -(-program.invocations // routine.group)
        routine.by_groups("segment_sums", program, tiles, *source, result, *(entries if left else ()))
        if not left:
            return
        source, program = entries, SegmentChunks(wide.name, left, width, count, CHUNKS[0], entries=True)


PROVIDER: Final = Provider("sums of sorted rows", lambda _: "", _make)
