"""LU factors of many small matrices, solutions by them, and Cholesky's factors (see matrix_columns).

    lu                column k finds its pivot, the largest element from place k on (a NaN is larger than all), and is
                      left; each invocation makes one quotient; each column exchanges two elements and is eliminated
    solve_factored    the factors wait in memory of the workgroup; who has a column of b solves for it alone
    cholesky          column k is left, divided by the root of its pivot, an element by each invocation, and taken
                      times one of them from the columns behind it; what isn't positive makes NaN of the last element,
                      and that of the matrix

In the order of `graph.primitives.factorisations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted
from loopgrad.codegen.targets.gpu.routines.matrix_columns import (
    NAME,
    MatrixColumns,
    by_columns,
    element_type,
    members,
    refuses,
)
from loopgrad.codegen.targets.gpu.routines.routine import Provider, Routine

INDEX: Final = 8  # bytes of a row's number


@dataclass(frozen=True, slots=True)
class LuColumns:
    """Of `count` matrices of m rows and n columns. Arrays: the matrices, their factors, with which row each is
    exchanged, and which row is at each place in the end (i64)."""

    type: str
    count: int
    m: int
    n: int
    members: int

    @property
    def steps(self) -> int:
        return min(self.m, self.n)

    def emit(self, e: Emitter, tile: Val) -> None:
        _Elimination(e, self, tile).emit()


class _Elimination(MatrixColumns):
    def __init__(self, e: Emitter, program: LuColumns, tile: Val) -> None:
        super().__init__(e, tile, program.type, program.count, program.m, program.members)
        self.p, steps = program, self.matrices * program.steps
        self.quotients = e.b.shared(program.type, steps * program.m)
        self.raw = e.b.shared(program.type, self.matrices * program.m)
        self.pivots = e.b.shared("i32", steps)
        self.order = e.b.shared("i32", self.matrices * program.m)

    def emit(self) -> None:
        p, c, b = self.p, self.code, self.b
        b.barrier()
        self.set(self.load(0, p.n))
        leads = c.test("IEqual", self.column, 0)
        self.e.when(leads, self._in_order)
        counted(self.e, c.i32(p.steps), self._step)
        self.store(1, p.n, self.get())
        first = self.e.both(leads, self.exists)
        for array, held, size in ((2, self.pivots, p.steps), (3, self.order, p.m)):
            self.e.when(first, partial(self._leave_numbers, array, held, size))

    def _in_order(self) -> None:
        for i in range(self.p.m):
            self.b.shared_set(self.order, self._order_place(self.code.i32(i)), self.code.i32(i))

    def _leave_numbers(self, array: int, held: object, size: int) -> None:
        """The numbers of a matrix."""
        c = self.code
        base = self.e.at(self.e.table.params[array], self.number, size * INDEX)
        for i in range(size):
            number = self.b.shared_get(held, c.plus(c.times(self.slot, size), i), "i32")
            self.b.store(self.e.offset(base, i * INDEX), c.wide(number))

    def _order_place(self, i: Val) -> Val:
        return self.code.op("IAdd", self.code.times(self.slot, self.p.m), i)

    def _place(self, k: Val, i: int) -> Val:
        return self.code.plus(self.cell(k, self.p.m, self.p.steps), i)

    def _step(self, k: Val) -> None:
        b, x, c = self.b, self.x, self.code
        own = b.inst("IEqual", "bool", self.column, k)
        self.e.when(own, lambda: self._leave(k))
        b.barrier()
        self.e.when(c.test("ULessThan", self.column, self.p.m), lambda: self._divide(k))
        b.barrier()
        pivot = b.shared_get(self.pivots, self.cell(k, 1, self.p.steps), "i32")
        self.e.when(c.test("IEqual", self.column, 0), lambda: self._exchange(k, pivot))
        column = self.get()
        upper, lower = self.at(pivot, column), self.at(k, column)
        later = b.inst("UGreaterThan", "bool", self.column, k)
        factor = x.neg(x.select(later, upper, self.zero))
        found = []
        for i, (behind, v) in enumerate(zip(self.behind(k), column, strict=True)):
            moved = x.select(c.test("IEqual", k, i), upper, x.select(c.test("IEqual", pivot, i), lower, v))
            quotient = b.shared_get(self.quotients, self._place(k, i), self.type)
            less = x.fma(factor, quotient, moved)
            done = x.select(later, less, x.select(own, quotient, moved))
            found.append(x.select(behind, done, moved))
        self.set(found)

    def _exchange(self, k: Val, pivot: Val) -> None:
        """The numbers of two rows."""
        places = self._order_place(k), self._order_place(pivot)
        numbers = [self.b.shared_get(self.order, place, "i32") for place in places]
        for place, number in zip(places, reversed(numbers), strict=True):
            self.b.shared_set(self.order, place, number)

    def _leave(self, k: Val) -> None:
        """The column, and where its pivot is."""
        x, c, column = self.x, self.code, self.get()
        endless = self.b.const(self.type, float("inf"))
        best, pivot = self.b.const(self.type, -1.0), k
        for i, v in enumerate(column):
            size = x.select(x.is_nan(v), endless, x.abs(v))
            larger = x.both(x.lt(best, size), x.invert(c.test("UGreaterThan", k, i)))
            best, pivot = x.select(larger, size, best), self.e.select(larger, c.i32(i), pivot)
            self.b.shared_set(self.raw, self._order_place(c.i32(i)), v)
        self.b.shared_set(self.pivots, self.cell(k, 1, self.p.steps), pivot)

    def _divide(self, k: Val) -> None:
        """What is at the invocation's place, once the pivot is at its own, by the pivot."""
        b, x = self.b, self.x
        pivot = b.shared_get(self.pivots, self.cell(k, 1, self.p.steps), "i32")
        moved = self.e.select(b.inst("IEqual", "bool", pivot, self.column), k, self.column)
        value, divisor = (b.shared_get(self.raw, self._order_place(i), self.type) for i in (moved, pivot))
        divisor = x.select(x.eq(divisor, self.zero), self.one, divisor)
        place = self.code.op("IAdd", self.cell(k, self.p.m, self.p.steps), self.column)
        b.shared_set(self.quotients, place, x.div(value, divisor))


@dataclass(frozen=True, slots=True)
class CholeskyColumns:
    """Of `count` matrices of n rows, of which the lower triangles are read. Arrays: the matrices, their factors."""

    type: str
    count: int
    n: int
    members: int

    def emit(self, e: Emitter, tile: Val) -> None:
        _Roots(e, self, tile).emit()


class _Roots(MatrixColumns):
    def __init__(self, e: Emitter, program: CholeskyColumns, tile: Val) -> None:
        super().__init__(e, tile, program.type, program.count, program.n, program.members)
        self.n, self.none = program.n, e.b.const(program.type, float("nan"))
        self.finished = e.b.shared(program.type, self.matrices * program.n * program.n)
        self.raw = e.b.shared(program.type, self.matrices * program.n)

    def emit(self) -> None:
        c, x, n = self.code, self.x, self.n
        self.b.barrier()
        self.set(self.load(0, n))
        counted(self.e, c.i32(n), self._step)
        lost = x.is_nan(self._get(c.i32(n - 1), c.i32(n - 1)))
        lower = [x.select(c.test("ULessThanEqual", self.column, i), v, self.zero) for i, v in enumerate(self.get())]
        self.store(1, n, [x.select(lost, self.none, v) for v in lower])

    def _get(self, k: Val, i: Val) -> Val:
        return self.b.shared_get(self.finished, self.code.op("IAdd", self.cell(k, self.n, self.n), i), self.type)

    def _step(self, k: Val) -> None:
        b, x, c, column = self.b, self.x, self.code, self.get()
        own = b.inst("IEqual", "bool", self.column, k)
        self.e.when(own, self._leave)
        b.barrier()
        self.e.when(c.test("ULessThan", self.column, self.n), lambda: self._finish(k))
        b.barrier()
        place = self.e.select(c.test("ULessThan", self.column, self.n), self.column, k)
        less = x.neg(self._get(k, place))
        later = b.inst("UGreaterThan", "bool", self.column, k)
        for i, (element, v) in enumerate(zip(self.elements, column, strict=True)):
            finished = self._get(k, c.i32(i))
            b.set(element, x.select(later, x.fma(less, finished, v), x.select(own, finished, v)))

    def _raw_place(self, i: Val) -> Val:
        return self.code.op("IAdd", self.code.times(self.slot, self.n), i)

    def _leave(self) -> None:
        for i, v in enumerate(self.get()):
            self.b.shared_set(self.raw, self._raw_place(self.code.i32(i)), v)

    def _finish(self, k: Val) -> None:
        """The element at the invocation's place."""
        b, x = self.b, self.x
        pivot, value = (b.shared_get(self.raw, self._raw_place(i), self.type) for i in (k, self.column))
        root = x.select(x.lt(self.zero, pivot), x.sqrt(pivot), self.none)
        behind, own = (b.inst(test, "bool", self.column, k) for test in ("UGreaterThan", "IEqual"))
        found = x.select(behind, x.div(value, root), x.select(own, root, self.zero))
        place = self.code.op("IAdd", self.cell(k, self.n, self.n), self.column)
        b.shared_set(self.finished, place, found)


@dataclass(frozen=True, slots=True)
class SolveColumns:
    """Of `count` systems of n equations, for `columns` right sides. Arrays: the factors, which row is at each place
    (i64), the right sides, the solutions. `transpose`: of the transposed matrices."""

    type: str
    count: int
    n: int
    columns: int
    transpose: bool
    members: int

    def emit(self, e: Emitter, tile: Val) -> None:
        _Solution(e, self, tile).emit()


class _Solution(MatrixColumns):
    def __init__(self, e: Emitter, program: SolveColumns, tile: Val) -> None:
        super().__init__(e, tile, program.type, program.count, program.n, program.members)
        self.p = program
        self.factors = e.b.shared(program.type, self.matrices * program.n * program.n)

    def emit(self) -> None:
        p, c = self.p, self.code
        self.b.barrier()
        inside = c.test("ULessThan", self.column, p.n)
        for i, value in enumerate(self.load(0, p.n)):
            self.e.when(inside, partial(self.b.shared_set, self.factors, self._factor(c.i32(i), self.column), value))
        self.b.barrier()
        rows = [c.i32(i) for i in range(p.n)]
        order = [self.e.resize(self.b.load(self._number(i), "i64"), "i32") for i in range(p.n)]
        self.set(self.load_rows(2, p.columns, rows if p.transpose else order))
        counted(self.e, c.i32(p.n), lambda k: self._eliminate(k, self.behind(k), divides=p.transpose))
        last = c.i32(p.n - 1)
        counted(self.e, c.i32(p.n), lambda k: self._from_end(c.op("ISub", last, k)))
        self.store_rows(3, p.columns, self.get(), order if p.transpose else rows)

    def _number(self, i: int) -> Val:
        return self.e.offset(self.e.at(self.e.table.params[1], self.number, self.p.n * INDEX), i * INDEX)

    def _factor(self, row: Val, column: Val) -> Val:
        """Where an element of the factors waits."""
        return self.code.op("IAdd", self.cell(row, self.p.n, self.p.n), column)

    def _from_end(self, k: Val) -> None:
        before = [self.code.test("UGreaterThan", k, i) for i in range(self.p.n)]
        self._eliminate(k, before, divides=not self.p.transpose)

    def _eliminate(self, k: Val, where: list[Val], divides: bool) -> None:
        """Unknown k from the equations `where` it is left; its own is divided by its factor, unless that is 1."""
        x, c, column = self.x, self.code, self.get()
        value = self.at(k, column)
        if divides:
            value = x.div(value, self.b.shared_get(self.factors, self._factor(k, k), self.type))
        less, found = x.neg(value), []
        for i, (left, v) in enumerate(zip(where, column, strict=True)):
            places = (k, c.i32(i)) if self.p.transpose else (c.i32(i), k)
            factor = self.b.shared_get(self.factors, self._factor(*places), self.type)
            own = x.select(c.test("IEqual", k, i), value, v)
            found.append(x.select(left, x.fma(less, factor, v), own))
        self.set(found)


def _make_lu(routine: Routine) -> None:
    (a,) = routine.inputs
    *batch, m, n = a.type.shape
    program = LuColumns(element_type(a.type.dtype), prod(batch), m, n, members(m, n))
    by_columns(routine, "lu_columns", program, a, *routine.outputs)


def _make_solve(routine: Routine) -> None:
    _, packed, rows, b = routine.inputs
    *batch, n, columns = b.type.shape
    transpose = bool(routine.attrs["transpose"])
    program = SolveColumns(element_type(b.type.dtype), prod(batch), n, columns, transpose, members(n, columns))
    by_columns(routine, "solve_columns", program, packed, rows, b, *routine.outputs)


def _make_cholesky(routine: Routine) -> None:
    (a,), (factor,) = routine.inputs, routine.outputs
    *batch, n, _ = a.type.shape
    program = CholeskyColumns(element_type(a.type.dtype), prod(batch), n, members(n))
    by_columns(routine, "cholesky_columns", program, a, factor)


CHOLESKY: Final = Provider(NAME, refuses, _make_cholesky)
LU: Final = Provider(NAME, refuses, _make_lu)
SOLVE: Final = Provider(NAME, refuses, _make_solve)
