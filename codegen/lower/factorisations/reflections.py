"""QR factors by Householder's reflections, as `codegen.factorisations.reflections` has them, in loops."""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Position
from loopgrad.codegen.lower.factorisations.matrices import (
    EachMatrix,
    LaneArithmetic,
    Matrix,
    MatrixOperand,
    between,
    carried,
    copy,
    scratch,
    total,
)
from loopgrad.graph.nodes import Node


class Reflections:
    """Of the first columns of an (m, n) matrix: those of the triangular factor, and below its diagonal the vectors that
    columns are reflected by, whose first elements count as 1."""

    def __init__(self, ctx: Lowering, packed: Matrix, m: int, n: int) -> None:
        self.ctx, self.packed, self.m, self.n = ctx, packed, m, n
        self.e, self.dtype = ctx.emitter, ctx.arrays[packed.array].dtype
        self.x = LaneArithmetic(self.e, self.dtype)
        self.taus = scratch(ctx, min(m, n), 1, self.dtype)
        repeated(self.e, min(m, n), self._reflect)

    def _reflect(self, j: KValue) -> None:
        e, x, packed = self.e, self.x, self.packed
        below = e.add(j, 1)
        alpha, zero = packed.at(j, j), x.const(0)

        def larger(k: KValue, most: KValue) -> list[KValue]:
            return [x.op("max", most, x.op("abs", packed.at(e.add(below, k), j)))]

        (tail,) = carried(e, e.sub(self.m, below), [zero], larger)
        largest = x.op("max", tail, x.op("abs", alpha))
        scale = x.select(x.test("gt", largest, zero), largest, x.const(1))

        def square(i: Position) -> KValue:
            small = x.op("div", packed.at(i, j), scale)
            return x.op("mul", small, small)

        length = x.op("mul", scale, x.op("sqrt", total(self.ctx, self.dtype, j, self.m, square)))
        beta = x.select(x.test("signbit", alpha), length, x.op("neg", length))
        still = x.test("eq", tail, zero)
        tau = x.op("div", x.op("sub", beta, alpha), x.select(still, x.const(1), beta))
        divisor = x.select(still, x.const(1), x.op("sub", alpha, beta))
        between(e, below, self.m, lambda i: packed.put(i, x.op("div", packed.at(i, j), divisor), j))
        packed.put(j, x.select(still, alpha, beta), j)
        self.taus.put(j, x.select(still, zero, tau))
        between(e, below, self.n, lambda c: self._apply(packed, j, c))

    def _apply(self, target: Matrix, j: Position, c: Position) -> None:
        """Reflect a column."""
        e, x, packed = self.e, self.x, self.packed
        below, first = e.add(j, 1), target.at(j, c)

        def product(i: Position) -> KValue:
            return x.op("mul", packed.at(i, j), target.at(i, c))

        along = total(self.ctx, self.dtype, below, self.m, product, first)
        moved = x.op("mul", self.taus.at(j), along)
        target.put(j, x.op("sub", first, moved), c)
        between(e, below, self.m, lambda i: target.put(i, x.less(target.at(i, c), packed.at(i, j), moved), c))

    def orthogonal(self, q: Matrix, columns: int) -> None:
        """The orthogonal factor's first columns, into `q`."""
        e, x = self.e, self.x

        def unit(i: KValue, j: KValue) -> None:
            q.put(i, x.select(e.compare("eq", i, j), x.const(1), x.const(0)), j)

        repeated(e, self.m, lambda i: repeated(e, columns, lambda j: unit(i, j)))

        def reflect(j: KValue) -> None:
            between(e, j, columns, lambda c: self._apply(q, j, c))

        repeated(e, min(self.m, self.n), reflect, reverse=True)


def qr(ctx: Lowering, frame: Frame, node: Node) -> None:
    e, (m, n), x = ctx.emitter, node.operands[0].shape[-2:], LaneArithmetic(ctx.emitter, node.results[0].dtype)
    columns = node.results[0].shape[-1]

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), (q, r), packed = operands, results, scratch(ctx, m, n, node.results[0].dtype)
        copy(e, a, packed, m, n)
        Reflections(ctx, packed, m, n).orthogonal(q, columns)

        def triangle(i: KValue, j: KValue) -> None:
            r.put(i, x.select(e.compare("ge", j, i), packed.at(i, j), x.const(0)), j)

        repeated(e, columns, lambda i: repeated(e, n, lambda j: triangle(i, j)))

    EachMatrix(ctx, frame, node, (2, 2)).run(each)


ROUTINES: Final = {"qr": qr}
