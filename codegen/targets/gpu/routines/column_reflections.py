"""QR factors of many small matrices (see matrix_columns): column k makes the vector of reflection k, by which it and
those behind it are reflected (Householder); then each invocation makes a column of q by the reflections from the last
to the first, waiting for nobody.

Vectors are made of a column times a power of two that brings its largest element near 1: no square overflows. They are
as long as columns, with zeros before place k and 1 there. Signs are LAPACK's.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class QrColumns:
    """Of `count` matrices of m rows and n columns; q has `columns`. `members`: invocations that have one matrix, a
    power of two. Arrays: the matrices, q, r."""

    type: str
    count: int
    m: int
    n: int
    columns: int
    members: int

    @property
    def reflections(self) -> int:
        return min(self.m - 1, self.n)

    def emit(self, e: Emitter, tile: Val) -> None:
        _Reflections(e, self, tile).emit()


class _Reflections(MatrixColumns):
    def __init__(self, e: Emitter, program: QrColumns, tile: Val) -> None:
        super().__init__(e, tile, program.type, program.count, program.m, program.members)
        self.p, steps = program, self.matrices * program.reflections
        self.vectors = e.b.shared(program.type, max(steps * program.m, 1))
        self.taus = e.b.shared(program.type, max(steps, 1))

    def emit(self) -> None:
        p, c = self.p, self.code
        self.b.barrier()
        self.set(self.load(0, p.n))
        counted(self.e, c.i32(p.reflections), self._step)
        above = [c.test("UGreaterThanEqual", self.column, i) for i in range(p.columns)]
        self.store(2, p.n, [self.x.select(m, v, self.zero) for m, v in zip(above, self.get(), strict=False)])
        self.set([self.e.select(c.test("IEqual", self.column, i), self.one, self.zero) for i in range(p.m)])
        last = c.i32(p.reflections - 1)
        counted(self.e, c.i32(p.reflections), lambda k: self._reflect(c.op("ISub", last, k)))
        self.store(1, p.columns, self.get())

    # ---- reflections

    def _step(self, k: Val) -> None:
        self.e.when(self.b.inst("IEqual", "bool", self.column, k), lambda: self._leave_vector(k))
        self.b.barrier()
        self._reflect(k, self.b.inst("UGreaterThanEqual", "bool", self.column, k))

    def _leave_vector(self, k: Val) -> None:
        """The vector of the reflection that leaves zeros behind place k of the column."""
        x, column = self.x, self.get()
        below = [x.select(m, v, self.zero) for m, v in zip(self.behind(k), column, strict=True)]
        alpha, tail = self.at(k, column), x.abs(below[0])
        for v in below[1:]:
            tail = x.extreme("max", tail, x.abs(v))
        factor = self._factor(x.extreme("max", tail, x.abs(alpha)))
        alpha, below = x.mul(alpha, factor), [x.mul(v, factor) for v in below]
        squares = x.mul(alpha, alpha)
        for v in below:
            squares = x.fma(v, v, squares)
        length, still = x.sqrt(squares), x.eq(tail, self.zero)
        beta = x.select(x.lt(alpha, self.zero), length, x.neg(length))
        tau = x.select(still, self.zero, x.div(x.sub(beta, alpha), x.select(still, self.one, beta)))
        over = x.div(self.one, x.select(still, self.one, x.sub(alpha, beta)))
        self.b.shared_set(self.taus, self._tau_place(k), tau)
        for i, v in enumerate(below):
            found = x.select(self.code.test("IEqual", k, i), self.one, x.mul(v, over))
            self.b.shared_set(self.vectors, self._place(k, i), found)

    def _factor(self, largest: Val) -> Val:
        """A power of two times which the number is near 1."""
        x, digits = self.x, {"f32": 23, "f64": 52}[self.p.type]
        held = x.as_int(largest)
        most = (1 << (x.bits(largest) - 1 - digits)) - 2  # the exponent of the largest numbers, as its bits are
        wanted = x.isub(x.integer(held, most), x.shr(held, digits))
        least = x.integer(held, 1)
        for test, end in (("SLessThan", least), ("SGreaterThan", x.integer(held, most - 1))):
            wanted = x.select(self.b.inst(test, "bool", wanted, end), end, wanted)
        return x.as_float(x.shl(wanted, digits))

    def _reflect(self, k: Val, where: Val | None = None) -> None:
        """The column, `where` that holds."""
        x, column = self.x, self.get()
        vector = [self.b.shared_get(self.vectors, self._place(k, i), self.p.type) for i in range(self.p.m)]
        sums = [self.zero, self.zero]  # two chains of sums take half the time of one
        for i, (v, element) in enumerate(zip(vector, column, strict=True)):
            sums[i % 2] = x.fma(v, element, sums[i % 2])
        moved = x.mul(self.b.shared_get(self.taus, self._tau_place(k), self.p.type), x.add(*sums))
        if where is not None:
            moved = x.select(where, moved, self.zero)
        less = x.neg(moved)
        self.set([x.fma(less, v, element) for v, element in zip(vector, column, strict=True)])

    def _tau_place(self, k: Val) -> Val:
        return self.cell(k, 1, self.p.reflections)

    def _place(self, k: Val, i: int) -> Val:
        return self.code.plus(self.cell(k, self.p.m, self.p.reflections), i)


def _make(routine: Routine) -> None:
    (a,), (q, r) = routine.inputs, routine.outputs
    *batch, m, n = a.type.shape
    columns = q.type.shape[-1]
    program = QrColumns(element_type(a.type.dtype), prod(batch), m, n, columns, members(n, columns))
    by_columns(routine, "qr_columns", program, a, q, r)


QR: Final = Provider(NAME, refuses, _make)
