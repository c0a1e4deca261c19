"""Matrices of 16-bit floats and matrix units: rows in registers, and rows in memory of the workgroup.

A warp has 16 rows of a matrix, or some times 16, as the left factors of its products (`MatrixUnits`), and sums of such
products. The right factors are rows that the workgroup copies to its memory, one block after the other, where a row
begins 16 bytes after the end of the one before: eight of them lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.assembler import WARP, MatrixUnits, Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

SIDE: Final = 16  # of the left factor of a product; of a right factor and sums in pairs
CHUNK: Final = 8  # elements that are copied at once
BYTES: Final = 2  # of an element

Sums = list[list[Val]]  # of each 8 columns the four of an invocation


class MatrixRows(NamedTuple):
    """Rows of 16-bit floats in memory, one after the other from `base` (i64) on."""

    base: Val
    total: int
    width: int

    @property
    def padded(self) -> int:
        return padded(self.width)


class HeldRows(NamedTuple):
    """Rows of a block in memory of the workgroup, with zeros up to a multiple of SIDE; the first begins at `start`."""

    array: Variable
    width: int
    start: Val

    @property
    def pitch(self) -> int:
        return self.width + CHUNK


def padded(width: int) -> int:
    return -(-width // SIDE) * SIDE


def held_elements(block: int, width: int) -> int:
    return block * (padded(width) + CHUNK)


@dataclass(slots=True)
class RowVariables:
    """Sums in variables, so that loops can change them: of each 16 rows, of each 8 columns, four."""

    values: list[list[list[Variable]]]


class MatrixCode(GroupCode):
    """Instructions of one invocation, number `lane` of warp number `warp`. It has, of 16 rows, number `row` and the one
    8 after it, and the columns from `column` on, in pairs."""

    def __init__(self, e: Emitter, type: str) -> None:
        super().__init__(e)
        units = e.b.matrix_units
        assert units is not None, "a target without matrix units has no such programs"
        self.units: MatrixUnits = units
        self.type = type
        self.warp, self.lane = self.divided(self.own, WARP)
        self.row, quarter = self.divided(self.lane, 4)
        self.column = self.times(quarter, 2)
        self.zero = self.b.const("f32", 0.0)

    # variables

    def variables(self, tiles: int, columns: int) -> RowVariables:
        """With zeros."""
        found = [[[self.b.local("f32") for _ in range(4)] for _ in range(columns // 8)] for _ in range(tiles)]
        for variable in [v for tile in found for eight in tile for v in eight]:
            self.b.set(variable, self.zero)
        return RowVariables(found)

    def taken(self, held: RowVariables, tile: int) -> Sums:
        return [[self.b.get(v, "f32") for v in eight] for eight in held.values[tile]]

    def put(self, held: RowVariables, tile: int, sums: Sums) -> None:
        for eight, values in zip(held.values[tile], sums, strict=True):
            for variable, value in zip(eight, values, strict=True):
                self.b.set(variable, value)

    # float arithmetic

    def f32(self, value: float) -> Val:
        return self.b.const("f32", value)

    def sum(self, x: Val, y: Val) -> Val:
        return self.b.exact("FAdd", "f32", x, y)

    def less(self, x: Val, y: Val) -> Val:
        return self.b.exact("FSub", "f32", x, y)

    def scaled(self, x: Val, y: Val) -> Val:
        return self.b.exact("FMul", "f32", x, y)

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        return self.b.extended("Fma", "f32", x, y, z)

    def over_columns(self, x: Val, how: str) -> Val:
        """Folded over the four invocations that have columns of the same rows."""
        for distance in (1, 2):
            other = self.units.across(x, distance)
            x = self.units.larger(x, other) if how == "max" else self.sum(x, other)
        return x

    def below(self, x: Val, most: int) -> Val:
        """x (i32), or the last number below `most`."""
        return self.e.select(self.test("SLessThan", x, most), x, self.i32(most - 1))

    # rows in registers

    def own_rows(self, rows: MatrixRows, first: Val) -> list[list[Val]]:
        """The left factors of 16 rows from `first` (i32) on, of each 16 columns. Rows beyond the end are the last."""
        places = []
        for further in (0, 8):
            row = self.below(self.plus(self.plus(first, self.row), further), rows.total)
            places.append(self.plus(self.op("IMul", row, rows.width), self.column))
        nothing = self.i32(0)
        found = []
        for k in range(0, rows.padded, SIDE):
            read = [self.b.load(self.at(rows.base, self.plus(place, k), BYTES), "i32", True) for place in places]
            if k + CHUNK < rows.width:
                beside = [self.plus(place, k + CHUNK) for place in places]
                read += [self.b.load(self.at(rows.base, place, BYTES), "i32", True) for place in beside]
            else:
                read += [nothing, nothing]
            found.append(read)
        return found

    def store_rows(self, rows: MatrixRows, first: Val, sums: Sums, factors: Sequence[Val]) -> None:
        """Sums of 16 rows from `first` on, of which each is multiplied by its factor (of a row and of that 8 on)."""
        for half, factor in enumerate(factors):
            row = self.plus(self.plus(first, self.row), 8 * half)
            inside = self.test("SLessThan", row, rows.total)
            self.e.when(inside, partial(self._store_row, rows, row, [s[2 * half : 2 * half + 2] for s in sums], factor))

    def _store_row(self, rows: MatrixRows, row: Val, pairs: Sequence[Sequence[Val]], factor: Val) -> None:
        place = self.plus(self.op("IMul", row, rows.width), self.column)
        for n, (low, high) in enumerate(pairs):
            if 8 * n < rows.width:
                pair = self.units.pair(self.scaled(low, factor), self.scaled(high, factor), self.type)
                self.b.store(self.at(rows.base, self.plus(place, 8 * n), BYTES), pair)

    # rows in memory of the workgroup

    def held(self, block: int, width: int) -> HeldRows:
        return HeldRows(self.b.shared("i16", held_elements(block, width)), padded(width), self.i32(0))

    def held_twice(self, block: int, width: int) -> Callable[[Val], HeldRows]:
        """Memory for two blocks; gives one of them by a number (i32)."""
        size = held_elements(block, width)
        array = self.b.shared("i16", 2 * size)
        return lambda number: HeldRows(array, padded(width), self.op("IMul", self.divided(number, 2)[1], size))

    def copy_block(self, held: HeldRows, rows: MatrixRows, first: Val, block: int) -> None:
        """Begin to copy so many rows from `first` (i32) on; zeros beyond the end."""
        chunks = held.width // CHUNK
        self.each(block * chunks, partial(self._copy_chunk, held, rows, first, chunks))

    def _copy_chunk(self, held: HeldRows, rows: MatrixRows, first: Val, chunks: int, number: Val) -> None:
        line, chunk = self.divided(number, chunks)
        row = self.plus(first, line)
        valid = self.test("SLessThan", row, rows.total)
        column = self.times(chunk, CHUNK)
        if rows.width < held.width:
            whole = self.test("SLessThan", column, rows.width)
            valid = self.b.inst("LogicalAnd", "bool", valid, whole)
        place = self.plus(self.op("IMul", row, rows.width), column)
        source = self.at(rows.base, self.e.select(valid, place, self.i32(0)), BYTES)
        target = self.plus(self.plus(self.op("IMul", line, held.pitch), column), held.start)
        self.units.copy(held.array, target, source, valid)

    def _cell(self, held: HeldRows, line: Val, chunk: Val) -> Val:
        return self.plus(self.plus(self.op("IMul", line, held.pitch), self.times(chunk, CHUNK)), held.start)

    def times_held(self, left: Sequence[Sequence[Sequence[Val]]], held: HeldRows, block: int) -> list[Sums]:
        """left @ held.T of each of the tiles: `block` columns."""
        found: list[Sums] = [[[self.zero] * 4 for _ in range(block // 8)] for _ in left]
        eight, own = self.divided(self.lane, 8)
        upper, half = self.divided(eight, 2)
        line = self.plus(self.times(upper, 8), own)
        start = self._cell(held, line, half)
        for n in range(block // SIDE):
            for k in range(held.width // SIDE):
                place = self.plus(start, n * SIDE * held.pitch + k * SIDE)
                right = self.units.parts(held.array, place, False)
                for tile, sums in zip(left, found, strict=True):
                    for side in (0, 1):
                        pair = right[2 * side : 2 * side + 2]
                        sums[2 * n + side] = self.units.product(tile[k], pair, sums[2 * n + side], self.type)
        return found

    def add_product(self, totals: RowVariables, left: Sequence[Sums], held: HeldRows) -> None:
        """totals + left @ held, of each of the tiles; `left` are sums, rounded to the type."""
        block = 8 * len(left[0])
        eight, own = self.divided(self.lane, 8)
        upper, half = self.divided(eight, 2)
        line = self.plus(self.times(half, 8), own)
        start = self._cell(held, line, upper)
        found = [self.taken(totals, tile) for tile in range(len(left))]
        for k in range(block // SIDE):
            factors = [self._as_factor(sums[2 * k], sums[2 * k + 1]) for sums in left]
            for n in range(held.width // SIDE):
                right = self.units.parts(held.array, self.plus(start, k * SIDE * held.pitch + n * SIDE), True)
                for factor, sums in zip(factors, found, strict=True):
                    for side in (0, 1):
                        pair = right[2 * side : 2 * side + 2]
                        sums[2 * n + side] = self.units.product(factor, pair, sums[2 * n + side], self.type)
        for tile, sums in enumerate(found):
            self.put(totals, tile, sums)

    def _as_factor(self, low: Sequence[Val], high: Sequence[Val]) -> list[Val]:
        """Sums of 16 columns as a left factor."""
        return [self.units.pair(x[i], x[i + 1], self.type) for x in (low, high) for i in (0, 2)]
