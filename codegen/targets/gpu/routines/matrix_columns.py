"""Matrices of which neighbouring invocations have a column each, in registers, and hand on what all need in memory of
the workgroup: for many small ones. What is done with all places of a column is written out, steps are a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from loopgrad.codegen.factorisations.in_columns import MOST
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.codegen.targets.gpu.lanes.plan import GroupProgram
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode
from loopgrad.codegen.targets.gpu.routines.routine import Array, Routine, Workgroups
from loopgrad.graph.types import DType

GROUP: Final = 64  # invocations of a workgroup: few wait for each other
NAME: Final = "columns in registers of workgroups"


def element_type(dtype: DType) -> str:
    return {4: "f32", 8: "f64"}[dtype.itemsize]


def members(*columns: int) -> int:
    """Invocations that have a matrix, a power of two."""
    return 1 << (max(columns) - 1).bit_length()


def refuses(routine: Routine) -> str:
    """Why its matrices can't be had by columns."""
    if "pairs" in routine.attrs:
        return "complex numbers"
    matrices = [a.type for a in (*routine.inputs, *routine.outputs) if a.type.dtype.is_float]
    if any(not a.size or max(a.shape[-2:]) > MOST for a in matrices):
        return f"no matrices of up to {MOST} rows and columns"
    return ""


class ColumnProgram(GroupProgram, Protocol):
    """The program of a tile of `count` matrices in all, of which each has so many `members`."""

    @property
    def count(self) -> int: ...

    @property
    def members(self) -> int: ...


def by_columns(routine: Routine, name: str, program: ColumnProgram, *arrays: Array) -> None:
    """Workgroups for all matrices."""
    tiles = -(-program.count * program.members // GROUP)
    routine.by_groups(name, program, tiles, *arrays, needs=Workgroups(group=GROUP))


class MatrixColumns:
    """What an invocation has of one of the `matrices` of a tile, of `count` in all: a column of `rows` elements.
    `members`: invocations that have a matrix."""

    def __init__(self, e: Emitter, tile: Val, type: str, count: int, rows: int, members: int) -> None:
        self.e, self.b, self.type, self.rows = e, e.b, type, rows
        self.x, self.code = ScalarOps(e), GroupCode(e)
        self.matrices, c = GROUP // members, self.code
        self.slot, self.column = c.divided(c.own, members)
        number = e.b.inst("IAdd", "i64", c.op("IMul", tile, self.matrices), c.wide(self.slot))
        self.exists = c.test("SLessThan", number, count)
        self.number = e.select(self.exists, number, e.b.const("i64", 0))
        self.zero, self.one = (e.b.const(type, v) for v in (0.0, 1.0))
        self.elements: list[Variable] = [e.b.local(type) for _ in range(rows)]

    def get(self) -> list[Val]:
        return [self.b.get(element, self.type) for element in self.elements]

    def set(self, values: Sequence[Val]) -> None:
        for element, value in zip(self.elements, values, strict=True):
            self.b.set(element, value)

    def at(self, k: Val, values: Sequence[Val]) -> Val:
        """That at place k."""
        found = values[0]
        for i, value in enumerate(values[1:], 1):
            found = self.x.select(self.code.test("IEqual", k, i), value, found)
        return found

    def behind(self, k: Val) -> list[Val]:
        """Which places are behind place k."""
        return [self.code.test("ULessThan", k, i) for i in range(self.rows)]

    # ---- memory

    def cell(self, step: Val, each: int, steps: int) -> Val:
        """The first of the `each` elements that a step of the matrix leaves in memory of the workgroup."""
        return self.code.times(self.code.op("IAdd", self.code.times(self.slot, steps), step), each)

    def load(self, array: int, columns: int) -> list[Val]:
        return [
            self.b.load(self._address(array, i, columns, self.rows, self.type), self.type) for i in range(self.rows)
        ]

    def load_rows(self, array: int, columns: int, rows: Sequence[Val]) -> list[Val]:
        """The elements of these rows."""
        places = [self._row(array, row, columns) for row in rows]
        return [self.b.load(place, self.type) for place in places]

    def store(self, array: int, columns: int, values: Sequence[Val]) -> None:
        """To a matrix of so many columns, whose rows these are."""
        places = [self._address(array, i, columns, len(values), self.type) for i in range(len(values))]
        self._stored(columns, places, values)

    def store_rows(self, array: int, columns: int, values: Sequence[Val], rows: Sequence[Val]) -> None:
        """To these rows of a matrix of as many rows as the column has."""
        self._stored(columns, [self._row(array, row, columns) for row in rows], values)

    def _stored(self, columns: int, places: Sequence[Val], values: Sequence[Val]) -> None:
        inside = self.e.both(self.exists, self.code.test("ULessThan", self.column, columns))

        def each() -> None:
            for place, value in zip(places, values, strict=True):
                self.b.store(place, value)

        self.e.when(inside, each)

    def _row(self, array: int, row: Val, columns: int) -> Val:
        """Of a row in the invocation's column."""
        distance = self.code.wide(self.code.times(row, columns))
        return self.e.at(self._address(array, 0, columns, self.rows, self.type), distance, SIZE[self.type])

    def _address(self, array: int, i: int, columns: int, rows: int, type: str) -> Val:
        """Of row i in the invocation's column of the matrix; of column 0, where there is none."""
        c, size = self.code, SIZE[type]
        column = self.e.select(c.test("ULessThan", self.column, columns), self.column, c.i32(0))
        place = c.plus(c.op("IMul", self.number, rows * columns), c.wide(column))
        return self.e.offset(self.e.at(self.e.table.params[array], place, size), i * columns * size)
