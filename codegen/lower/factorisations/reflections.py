"""QR factors by Householder's reflections, as `codegen.factorisations.reflections` has them, in loops.

Those of complex matrices as LAPACK's, whose triangular factors have real diagonals: with x = (alpha, ...) and
beta = -sign(re alpha) |x|, H = 1 - tau v v.H for tau = (beta - alpha) / beta, whose adjoint reflects columns.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Position
from loopgrad.codegen.lower.factorisations.matrices import (
    EachMatrix,
    Matrix,
    MatrixOperand,
    between,
    carried,
    copy,
    scratch,
    total,
)
from loopgrad.codegen.lower.factorisations.numbers import Number, Numbers
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.factorisations import extents


class Reflections:
    """Of the first columns of an (m, n) matrix: those of the triangular factor, and below its diagonal the vectors that
    columns are reflected by, whose first elements count as 1."""

    def __init__(self, ctx: Lowering, packed: Matrix, m: int, n: int) -> None:
        self.ctx, self.packed, self.m, self.n = ctx, packed, m, n
        self.e, self.x = ctx.emitter, packed.numbers
        self.taus = scratch(ctx, min(m, n), 1, self.x.real.dtype, self.x.parts)
        repeated(self.e, min(m, n), self._reflect)

    def _reflect(self, j: KValue) -> None:
        e, x, packed = self.e, self.x.real, self.packed
        below = e.add(j, 1)
        alpha, zero = packed.at(j, j), x.const(0)

        def larger(k: KValue, most: KValue) -> list[KValue]:
            return [x.op("max", most, self.x.largest(packed.at(e.add(below, k), j)))]

        (tail,) = carried(e, e.sub(self.m, below), [zero], larger)
        largest = x.op("max", tail, self.x.largest(alpha))
        scale = x.select(x.test("gt", largest, zero), largest, x.const(1))

        def square(i: Position) -> Number:
            return (self.x.squared(self.x.over(packed.at(i, j), scale)),)

        (squares,) = total(self.ctx, Numbers(x, 1), j, self.m, square)
        length = x.op("mul", scale, x.op("sqrt", squares))
        beta = x.select(x.test("signbit", alpha[0]), length, x.op("neg", length))
        still = x.test("eq", tail, zero)
        for part in alpha[1:]:  # a column that is reflected already
            still = x.both(still, x.test("eq", part, zero))
        real = self.x.of_real(beta)
        tau = self.x.over(self.x.each("sub", real, alpha), x.select(still, x.const(1), beta))
        divisor = self.x.select(still, self.x.const(1), self.x.each("sub", alpha, real))
        between(e, below, self.m, lambda i: packed.put(i, self.x.div(packed.at(i, j), divisor), j))
        packed.put(j, self.x.select(still, alpha, real), j)
        self.taus.put(j, self.x.select(still, self.x.const(0), tau))
        between(e, below, self.n, lambda c: self._apply(packed, j, c, self.x.conj(self.taus.at(j))))

    def _apply(self, target: Matrix, j: Position, c: Position, tau: Number) -> None:
        """Reflect a column."""
        e, x, packed = self.e, self.x, self.packed
        below, first = e.add(j, 1), target.at(j, c)

        def product(i: Position) -> Number:
            return x.mul(x.conj(packed.at(i, j)), target.at(i, c))

        along = total(self.ctx, x, below, self.m, product, first)
        moved = x.mul(tau, along)
        target.put(j, x.each("sub", first, moved), c)
        between(e, below, self.m, lambda i: target.put(i, x.less(target.at(i, c), packed.at(i, j), moved), c))

    def orthogonal(self, q: Matrix, columns: int) -> None:
        """The orthogonal factor's first columns, into `q`."""
        e, x = self.e, self.x

        def unit(i: KValue, j: KValue) -> None:
            q.put(i, x.select(e.compare("eq", i, j), x.const(1), x.const(0)), j)

        repeated(e, self.m, lambda i: repeated(e, columns, lambda j: unit(i, j)))

        def reflect(j: KValue) -> None:
            between(e, j, columns, lambda c: self._apply(q, j, c, self.taus.at(j)))

        repeated(e, min(self.m, self.n), reflect, reverse=True)


def qr(ctx: Lowering, frame: Frame, node: Node) -> None:
    e, (m, n) = ctx.emitter, extents(node, 0)

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), (q, r) = operands, results
        x, packed = q.numbers, scratch(ctx, m, n, node.results[0].dtype, q.parts)
        copy(e, a, packed, m, n)
        Reflections(ctx, packed, m, n).orthogonal(q, q.columns)

        def triangle(i: KValue, j: KValue) -> None:
            r.put(i, x.select(e.compare("ge", j, i), packed.at(i, j), x.const(0)), j)

        repeated(e, q.columns, lambda i: repeated(e, n, lambda j: triangle(i, j)))

    EachMatrix(ctx, frame, node, (2, 2)).run(each)
