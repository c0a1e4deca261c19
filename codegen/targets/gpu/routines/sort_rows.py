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
    the sorted ones where there are `values`; where they were (int64) where there are `positions`."""

    dtype: str
    rows: int
    length: int
    members: int
    each: int
    values: bool
    positions: bool

    def emit(self, e: Emitter, tile: Val) -> None:
        _Rows(e, self, tile).emit()


class _Rows:
    def __init__(self, e: Emitter, program: SortRows, tile: Val) -> None:
        self.e, self.b, self.program = e, e.b, program
        self.code = code = GroupCode(e)
        self.elements = Elements(e, code, program.dtype)
        self.order = DigitOrder(code, program.members, program.each, self.elements.held)
        self.first_row = e.b.inst("IMul", "i64", tile, e.b.const("i64", code.group // program.members))
        self.first = code.op("IMul", self.first_row, program.length)

    def emit(self) -> None:
        p, b = self.program, self.b
        held, places = self.order.held(), self.order.in_turn()
        numbers = [self._number(k) for k in range(p.each)]
        values = self.order.exchanged([self._load(*found) for found in numbers], places, held)
        keys = [b.local(self.elements.held) for _ in values]
        for key, value in zip(keys, values, strict=True):
            b.set(key, value)
        origins = [b.local("i32") for _ in keys] if p.positions else []
        _, member = self.code.divided(self.code.own, p.members)
        for k, origin in enumerate(origins):
            b.set(origin, self.code.plus(self.code.times(member, p.each), k))
        b.barrier()
        digits = -(-self.elements.dtype.bits // DIGIT)
        counted(self.e, self.code.i32(digits), lambda n: self._pass(self.code.times(n, DIGIT), keys, origins))
        self._leave(numbers, [b.get(key, self.elements.held) for key in keys], [b.get(o, "i32") for o in origins])

    def _number(self, k: int) -> tuple[Val, Val]:
        """Of the element that this invocation loads in turn k: its number from `first` on, whether there is one."""
        p, c = self.program, self.code
        row, column = c.divided(c.plus(c.own, k * c.group), p.members * p.each)
        exists = c.test("SLessThan", c.plus(self.first_row, c.wide(row)), p.rows)
        inside = c.e.both(exists, c.test("ULessThan", column, p.length))
        return c.plus(c.op("IMul", row, p.length), column), inside

    def _base(self, array: int, size: int) -> Val:
        return self.e.at(self.e.table.params[array], self.first, size)

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
        p, b, order, array = self.program, self.b, self.order, 1
        held, places = order.held(), order.in_turn()
        b.barrier()
        if p.values:
            base = self._base(array, self.elements.size)
            for (number, inside), value in zip(numbers, order.exchanged(values, held, places), strict=True):
                self.e.when(inside, partial(self.elements.store, base, number, value))
            b.barrier()
            array += 1
        if p.positions:
            base = self._base(array, 8)
            for (number, inside), origin in zip(numbers, order.exchanged(origins, held, places), strict=True):
                self.e.when(inside, partial(b.store, self.code.at(base, number, 8), self.code.wide(origin)))
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


def few_tiles(rows: int, length: int, size: int) -> bool:
    """Whether tiles of half the size make better use of a device."""
    return length <= size // 2 and rows * length < FEW_TILES * size


def _program(routine: Routine) -> SortRows | None:
    """How these rows are sorted; None where they are too long."""
    source, group = routine.inputs[0].type, routine.group
    if routine.attrs["axis"] != len(source.shape) - 1:
        return None
    length = source.shape[-1]
    each = most_held(source.dtype, group, routine.memory)
    if not each or length > group * each:
        return None
    rows = source.size // length
    while each > FEWEST_HELD and (each >= 2 * length or few_tiles(rows, length, group * each)):
        each //= 2
    members = 1 << (-(-length // each) - 1).bit_length()
    values, positions = wanted(routine)
    return SortRows(source.dtype.name, rows, length, members, each, values, positions)


def _refuses(routine: Routine) -> str:
    if not routine.inputs[0].type.size or _program(routine) is not None:
        return ""
    return "a row is more than a workgroup holds"


def _make(routine: Routine) -> None:
    if not routine.inputs[0].type.size:
        return
    program = _program(routine)
    assert program is not None
    tiles = -(-program.rows // (routine.group // program.members))
    routine.by_groups("sort_rows", program, tiles, *routine.inputs, *routine.outputs)


PROVIDER: Final = Provider("rows in registers of workgroups", _refuses, _make)
