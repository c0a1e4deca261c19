"""Sorting rows that fit into the registers of a workgroup: some of them at a time, all digits in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.digit_order import DIGIT, DigitOrder, tile_bytes
from loopgrad.codegen.targets.gpu.routines.elements import Elements, held_type
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.graph.types import DType

MOST_HELD: Final = 16  # elements of an invocation, of 4 bytes; half as many of 8
FEWEST_HELD: Final = 4
FEW_TILES: Final = 512


@dataclass(frozen=True, slots=True)
class SortRows:
    """`rows` of `length` elements, each held by `members` invocations that hold `each` elements. Arrays: the elements;
    their positions (int32) where these are `given`; the sorted elements where there are `values`; where they were
    (int64, or int32 where that is `narrow`) where there are `positions`.

    `chunk`: so many elements of a row are sorted by themselves by a whole workgroup, 0: all of it. `count`: so many of
    what is sorted are left, 0: all; of a row with less, what no element comes before. `descending`: from the
    largest. `bits`: no more low ones of integers differ."""

    dtype: str
    rows: int
    length: int
    members: int
    each: int
    values: bool
    positions: bool
    chunk: int = 0
    count: int = 0
    descending: bool = False
    given: bool = False
    narrow: bool = False
    bits: int = 64

    @property
    def chunks(self) -> int:
        """Of a row."""
        return -(-self.length // self.chunk) if self.chunk else 1

    def tiles(self, group: int) -> int:
        return -(-self.rows * self.chunks // (group // self.members))

    def emit(self, e: Emitter, tile: Val) -> None:
        _Rows(e, self, tile).emit()


class _Rows:
    def __init__(self, e: Emitter, program: SortRows, tile: Val) -> None:
        self.e, self.b, self.program = e, e.b, program
        self.code = code = GroupCode(e)
        self.elements = Elements(e, code, program.dtype, program.descending)
        self.order = DigitOrder(code, program.members, program.each, self.elements.held)
        self.first_row = e.b.inst("IMul", "i64", tile, e.b.const("i64", code.group // program.members))
        self.first = code.op("IMul", self.first_row, program.length)
        self.begin, self.length = code.i32(0), code.i32(program.length)
        if program.chunk:
            row, chunk = code.divided(tile, program.chunks)
            begin = code.op("IMul", chunk, program.chunk)
            self.first = code.plus(code.op("IMul", row, program.length), begin)
            self.begin = e.resize(begin, "i32")
            self.length = code.op("ISub", self.length, self.begin)

    def emit(self) -> None:
        p, b = self.program, self.b
        held, places = self.order.held(), self.order.in_turn()
        numbers = [self._number(k, p.length, self.length) for k in range(p.each)]
        values = self.order.exchanged([self._load(*found) for found in numbers], places, held)
        keys = [b.local(self.elements.held) for _ in values]
        for key, value in zip(keys, values, strict=True):
            b.set(key, value)
        origins = [b.local("i32") for _ in keys] if p.positions else []
        if p.positions:
            for origin, position in zip(origins, self._positions(numbers), strict=True):
                b.set(origin, position)
        b.barrier()
        digits = -(-min(p.bits, self.elements.dtype.bits) // DIGIT)
        counted(self.e, self.code.i32(digits), lambda n: self._pass(self.code.times(n, DIGIT), keys, origins))
        if p.count:
            self.first = self.code.op("IMul", self.first_row, p.count)
            numbers = [self._number(k, p.count, self.code.i32(p.count)) for k in range(p.each)]
        self._leave(numbers, [b.get(key, self.elements.held) for key in keys], [b.get(o, "i32") for o in origins])

    def _number(self, k: int, pitch: int, length: Val) -> tuple[Val, Val]:
        """Of the element that is this invocation's in turn k: its number from `first` on where rows are `pitch` apart,
        and whether there is one in a row of that length."""
        p, c = self.program, self.code
        row, column = c.divided(c.plus(c.own, k * c.group), p.members * p.each)
        exists = c.test("SLessThan", c.plus(self.first_row, c.wide(row)), p.rows * p.chunks)
        inside = c.e.both(exists, c.test("SLessThan", column, length))
        return c.plus(c.op("IMul", row, pitch), column), inside

    def _base(self, array: int, size: int) -> Val:
        return self.e.at(self.e.table.params[array], self.first, size)

    def _positions(self, numbers: Sequence[tuple[Val, Val]]) -> list[Val]:
        """Of the elements that this invocation holds, in the row."""
        p, c, b = self.program, self.code, self.b
        if p.given:
            base = self._base(1, 4)
            found = [b.load(c.at(base, self.e.select(i, number, c.i32(0)), 4), "i32") for number, i in numbers]
            b.barrier()
            return self.order.exchanged(found, self.order.in_turn(), self.order.held())
        _, member = c.divided(c.own, p.members)
        first = c.plus(self.begin, c.times(member, p.each))
        return [c.plus(first, k) for k in range(p.each)]

    def _load(self, number: Val, inside: Val) -> Val:
        base = self._base(0, self.elements.size)
        loaded = self.elements.load(base, self.e.select(inside, number, self.code.i32(0)))
        return self.e.select(inside, loaded, self.elements.last)

    def _pass(self, shift: Val, keys: Sequence[object], origins: Sequence[object]) -> None:
        """Order by the digit at `shift`."""
        b, held, type = self.b, self.order.held(), self.elements.held
        values = [b.get(key, type) for key in keys]
        places = self.order.places([self.elements.digit(value, shift, DIGIT) for value in values])
        for key, value in zip(keys, self.order.exchanged(values, places, held), strict=True):
            b.set(key, value)
        if origins:
            b.barrier()
            moved = self.order.exchanged([b.get(origin, "i32") for origin in origins], places, held)
            for origin, value in zip(origins, moved, strict=True):
                b.set(origin, value)

    def _leave(self, numbers: Sequence[tuple[Val, Val]], values: list[Val], origins: list[Val]) -> None:
        p, b, order, array = self.program, self.b, self.order, 2 if self.program.given else 1
        held, places = order.held(), order.in_turn()
        b.barrier()
        if p.values:
            base = self._base(array, self.elements.size)
            for (number, inside), value in zip(numbers, order.exchanged(values, held, places), strict=True):
                self.e.when(inside, partial(self.elements.store, base, number, value))
            b.barrier()
            array += 1
        if p.positions:
            size = 4 if p.narrow else 8
            base = self._base(array, size)
            for (number, inside), origin in zip(numbers, order.exchanged(origins, held, places), strict=True):
                position = origin if p.narrow else self.code.wide(origin)
                self.e.when(inside, partial(b.store, self.code.at(base, number, size), position))
            b.barrier()


def most_held(dtype: DType, group: int, memory: int) -> int:
    """Elements of an invocation, as many as registers and memory of the workgroup allow; 0 where few are too many."""
    each, type = MOST_HELD if held_type(dtype) == "i32" else MOST_HELD // 2, held_type(dtype)
    while each >= FEWEST_HELD and tile_bytes(group, each, type) > memory:
        each //= 2
    return each if each >= FEWEST_HELD else 0


def wanted(routine: Routine) -> tuple[bool, bool]:
    """Whether the sorted elements are, and where they were."""
    return routine.name != "argsort", routine.name != "sort"


def differing_bits(routine: Routine) -> int:
    """Of integers the low bits that may differ, of which there is one at least; else all."""
    bits = routine.attrs.get("bits", routine.inputs[0].type.dtype.bits)
    assert isinstance(bits, int)
    return max(bits, 1)


def few_tiles(rows: int, length: int, size: int) -> bool:
    """Whether tiles of half the size make better use of a device."""
    return length <= size // 2 and rows * length < FEW_TILES * size


def fitting(routine: Routine, length: int = 0) -> SortRows | None:
    """How the rows are sorted, or as many of that length; None where they are too long."""
    source, group = routine.inputs[0].type, routine.group
    if routine.attrs["axis"] != len(source.shape) - 1:
        return None
    rows = source.size // source.shape[-1]
    length = length or source.shape[-1]
    each = most_held(source.dtype, group, routine.memory)
    if not each or length > group * each:
        return None
    while each > FEWEST_HELD and (each >= 2 * length or few_tiles(rows, length, group * each)):
        each //= 2
    members = 1 << (-(-length // each) - 1).bit_length()
    values, positions = wanted(routine)
    return SortRows(source.dtype.name, rows, length, members, each, values, positions, bits=differing_bits(routine))


def _refuses(routine: Routine) -> str:
    if not routine.inputs[0].type.size or fitting(routine) is not None:
        return ""
    return "a row is more than a workgroup holds"


def _make(routine: Routine) -> None:
    if not routine.inputs[0].type.size:
        return
    program = fitting(routine)
    assert program is not None
    routine.by_groups("sort_rows", program, program.tiles(routine.group), *routine.inputs, *routine.outputs)


PROVIDER: Final = Provider("rows in registers of workgroups", _refuses, _make)
