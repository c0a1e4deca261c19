"""Sorting many short rows: a workgroup sorts some of them in its memory.

A bitonic network (Batcher, Sorting networks and their applications, 1968) over pairs of a key and the position in the
row, which are all different: so the order is a stable sort's. Rows are filled up to a power of two with pairs that
come last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.scalar.ordered_bits import ordered
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import emit_loop
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine
from loopgrad.graph.types import DTYPES, DType

LONGEST: Final = 2048  # of a short row
POSITION: Final = 4  # bytes of a position


@dataclass(frozen=True, slots=True)
class SortRows:
    """`rows` of `length` elements; a tile is as many of them as make `size` elements, each filled up to `padded`.
    Arrays: the elements, the result. `positions`: the result has positions (int64) in place of elements."""

    dtype: str
    rows: int
    length: int
    padded: int
    size: int
    positions: bool

    @property
    def per_tile(self) -> int:
        return self.size // self.padded

    def emit(self, e: Emitter, tile: Val) -> None:
        _Tile(e, self, tile).emit()


class _Tile:
    def __init__(self, e: Emitter, program: SortRows, tile: Val) -> None:
        self.e, self.b, self.program, self.m = e, e.b, program, ScalarOps(e)
        self.dtype: DType = DTYPES[program.dtype]
        self.bits = f"i{8 * self.dtype.itemsize}"
        self.key_type = "i64" if self.dtype.itemsize == 8 else "i32"
        self.first_row = e.b.inst("IMul", "i64", tile, e.b.const("i64", program.per_tile))
        self.keys: Variable = e.b.shared(self.key_type, program.size)
        self.places: Variable = e.b.shared("i32", program.size)

    def emit(self) -> None:
        self._each(self._fill)
        self.b.barrier()
        self._sort()
        self._each(self._leave)
        self.b.barrier()  # before the next tile comes to the same memory

    def i32(self, value: int) -> Val:
        return self.b.const("i32", value)

    def op(self, name: str, x: Val, y: Val | int) -> Val:
        return self.b.inst(name, x.type, x, self.b.const(x.type, y) if isinstance(y, int) else y)

    def _each(self, body: Callable[[Val], None], count: int | None = None) -> None:
        """body(number) for this invocation's part of `count` numbers, side by side with its neighbours'."""
        count, group = self.program.size if count is None else count, self.b.group
        for first in range(0, count, group):
            number = self.op("IAdd", self.b.local_id(), first)
            if first + group <= count:
                body(number)
            else:
                self.e.when(self.b.inst("ULessThan", "bool", number, self.i32(count)), partial(body, number))

    def _element(self, number: Val) -> tuple[Val, Val, Val]:
        """Of a number in the tile: where its row begins (i64), its position there (i32), whether there is one."""
        p, b = self.program, self.b
        place = self.op("BitwiseAnd", number, p.padded - 1)
        row = self.op("ShiftRightLogical", number, p.padded.bit_length() - 1)
        row = self.op("IAdd", self.first_row, self.e.resize(row, "i64", signed=False))
        exists = b.inst("SLessThan", "bool", row, b.const("i64", p.rows))
        inside = b.inst("ULessThan", "bool", place, self.i32(p.length))
        return self.op("IMul", row, p.length), place, self.e.both(exists, inside)

    def _load(self, start: Val, place: Val) -> Val:
        """The bits of an element."""
        index = self.op("IAdd", start, self.e.resize(place, "i64", signed=False))
        return self.b.load(self.e.at(self.e.table.params[0], index, self.dtype.itemsize), self.bits)

    def _fill(self, number: Val) -> None:
        start, place, inside = self._element(number)
        key, last = self.b.local(self.key_type), self.b.const(self.key_type, -1)
        self.b.set(key, last)

        def read() -> None:
            bits = self.e.resize(self._load(start, place), self.key_type, signed=False)
            self.b.set(key, ordered(self.m, bits, self.dtype))

        self.e.when(inside, read)
        self.b.shared_set(self.keys, number, self.b.get(key, self.key_type))
        self.b.shared_set(self.places, number, place)

    def _sort(self) -> None:
        """for run in 2, 4 .. padded: for distance in run / 2 .. 1: compare elements so far apart."""
        b, p = self.b, self.program
        if p.padded == 1:
            return
        run, distance = b.local("i32"), b.local("i32")
        b.set(run, self.i32(2))

        def merge() -> None:
            length = b.get(run, "i32")
            b.set(distance, self.op("ShiftRightLogical", length, 1))

            def stage() -> None:
                apart = b.get(distance, "i32")
                self._each(partial(self._exchange, length, apart), p.size // 2)
                b.barrier()
                b.set(distance, self.op("ShiftRightLogical", apart, 1))

            emit_loop(self.e, lambda: b.inst("INotEqual", "bool", b.get(distance, "i32"), self.i32(0)), stage)
            b.set(run, self.op("ShiftLeftLogical", length, 1))

        emit_loop(self.e, lambda: b.inst("ULessThanEqual", "bool", b.get(run, "i32"), self.i32(p.padded)), merge)

    def _exchange(self, run: Val, apart: Val, number: Val) -> None:
        """Pair `number` of those that are so far apart: upwards in every other run, and in the whole row."""
        b, low = self.b, self.op("BitwiseAnd", number, self.op("IAdd", apart, -1))
        above = self.op("ShiftLeftLogical", self.op("ISub", number, low), 1)
        left = self.op("BitwiseOr", above, low)
        right = self.op("BitwiseOr", left, apart)
        x, y = (b.shared_get(self.keys, at, self.key_type) for at in (left, right))
        i, j = (b.shared_get(self.places, at, "i32") for at in (left, right))
        later = b.inst("UGreaterThan", "bool", i, j)
        wrong = self.e.either(b.inst("UGreaterThan", "bool", x, y), self.e.both(b.inst("IEqual", "bool", x, y), later))
        within = self.op("BitwiseAnd", left, self.program.padded - 1)
        down = b.inst("INotEqual", "bool", self.op("BitwiseAnd", within, run), self.i32(0))

        def swap() -> None:
            for array, first, second in ((self.keys, x, y), (self.places, i, j)):
                b.shared_set(array, left, second)
                b.shared_set(array, right, first)

        self.e.when(b.inst("LogicalNotEqual", "bool", wrong, down), swap)

    def _leave(self, number: Val) -> None:
        start, place, inside = self._element(number)

        def write() -> None:
            origin = self.b.shared_get(self.places, number, "i32")
            index = self.op("IAdd", start, self.e.resize(place, "i64", signed=False))
            value = self._load(start, origin)
            size = self.dtype.itemsize
            if self.program.positions:
                value, size = self.e.resize(origin, "i64", signed=False), 8
            self.b.store(self.e.at(self.e.table.params[1], index, size), value)

        self.e.when(inside, write)


def _rows(routine: Routine) -> SortRows | None:
    """How short rows are sorted; None where they aren't short, or the axis isn't the last."""
    type, group = routine.inputs[0].type, routine.geometry.group
    if routine.attrs["axis"] != len(type.shape) - 1 or not 0 < type.shape[-1] <= LONGEST:
        return None
    length = type.shape[-1]
    padded = 1 << (length - 1).bit_length()
    room = routine.geometry.memory // ((8 if type.dtype.itemsize == 8 else 4) + POSITION)
    size = max(padded, 2 * group)
    if size > room:
        size = padded
    if size > room:
        return None
    positions = routine.name == "argsort"
    return SortRows(type.dtype.name, type.size // length, length, padded, size, positions)


def _refuses(routine: Routine) -> str:
    if not routine.inputs[0].type.size or _rows(routine) is not None:
        return ""
    return f"rows are longer than {LONGEST} elements"


def _make(routine: Routine) -> None:
    program = _rows(routine)
    if program is not None:
        tiles = -(-program.rows // program.per_tile)
        routine.by_groups(routine.name, program, tiles, *routine.inputs, *routine.outputs)


PROVIDER: Final = Provider("rows in memory of workgroups", _refuses, _make)
