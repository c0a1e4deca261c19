"""Symmetric eigenvalues and singular values by Jacobi's rotations, in loops: all pairs of rows in turn, until a matrix
is done. G. Golub and C. Van Loan, "Matrix computations", sections 8.5 and 8.6. When a matrix is done, and what becomes
of one that has others than finite elements, is as in `codegen.factorisations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from loopgrad.codegen.factorisations.rotations import EPSILON, SWEEPS
from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Position
from loopgrad.codegen.lower.factorisations.matrices import (
    EachMatrix,
    Element,
    LaneArithmetic,
    Matrix,
    MatrixOperand,
    carried,
    in_fours,
    scratch,
    total,
    until,
)
from loopgrad.codegen.lower.factorisations.reflections import Reflections
from loopgrad.graph.nodes import Node
from loopgrad.graph.types import bool_, int64


class Scaled:
    """An (m, n) matrix divided by its largest element, in `target`, so that squares are numbers. `lost`: it has others
    than finite elements, in whose place stand zeros."""

    def __init__(self, ctx: Lowering, element: Element, target: Matrix, m: int, n: int) -> None:
        e = ctx.emitter
        self.x = x = LaneArithmetic(e, ctx.arrays[target.array].dtype)
        zero, most = x.const(0), x.const(float(np.finfo(x.dtype.np).max))

        def row(i: KValue, *known: KValue) -> Sequence[KValue]:
            return carried(e, n, known, partial(one, i))

        def one(i: KValue, j: KValue, largest: KValue, lost: KValue) -> Sequence[KValue]:
            v = element(i, j)
            target.put(i, v, j)
            size = x.op("abs", v)
            finite = x.test("le", size, most)
            return [
                x.op("max", largest, x.select(finite, size, zero)),
                e.op("or", (lost, e.op("invert", (finite,), bool_)), bool_),
            ]

        largest, self.lost = carried(e, m, [zero, e.const(False, bool_)], row)
        self.scale = x.select(x.test("gt", largest, zero), largest, x.const(1))
        whole = Matrix(ctx, target.array, 1, target.start)

        def divided(k: KValue) -> None:
            whole.put(k, x.select(self.lost, zero, x.op("div", whole.at(k), self.scale)))

        repeated(e, m * n, divided)

    def value(self, v: KValue) -> KValue:
        """NaN where the matrix is lost."""
        return self.x.select(self.lost, self.x.const(np.nan), v)


def rotation(x: LaneArithmetic, p: KValue, q: KValue, r: KValue) -> tuple[KValue, KValue, KValue]:
    """Cosine, sine and tangent of the smaller angle that makes [[p, r], [r, q]] diagonal."""
    one, zero = x.const(1), x.const(0)
    still = x.test("eq", r, zero)
    tau = x.op("div", x.op("sub", q, p), x.op("mul", x.select(still, one, r), x.const(2)))
    root = x.op("sqrt", x.op("add", x.op("mul", tau, tau), one))
    tangent = x.op("div", one, x.op("add", x.op("abs", tau), root))
    tangent = x.select(x.test("lt", tau, zero), x.op("neg", tangent), tangent)
    tangent = x.select(still, zero, tangent)
    cosine = x.op("div", one, x.op("sqrt", x.op("add", x.op("mul", tangent, tangent), one)))
    return cosine, x.op("mul", tangent, cosine), tangent


def turned(x: LaneArithmetic, v: KValue, w: KValue, cosine: KValue, sine: KValue) -> tuple[KValue, KValue]:
    first = x.op("sub", x.op("mul", cosine, v), x.op("mul", sine, w))
    return first, x.op("add", x.op("mul", sine, v), x.op("mul", cosine, w))


def turn_rows(x: LaneArithmetic, rows: Matrix, p: Position, q: Position, cosine: KValue, sine: KValue) -> None:
    def some(columns: list[Position]) -> None:
        for k in columns:
            first, second = turned(x, rows.at(p, k), rows.at(q, k), cosine, sine)
            rows.put(p, first, k)
            rows.put(q, second, k)

    in_fours(x.e, 0, rows.columns, some)


def pairs(
    x: LaneArithmetic, n: int, body: Callable[..., Sequence[KValue]], inits: Sequence[KValue]
) -> Sequence[KValue]:
    """body(p, q, *values) for all p < q."""

    def row(p: KValue, *values: KValue) -> Sequence[KValue]:
        first = x.e.add(p, 1)
        return carried(x.e, x.e.sub(n, first), values, lambda k, *v: body(p, x.e.add(first, k), *v))

    return carried(x.e, n, inits, row)


def identity(x: LaneArithmetic, rows: Matrix, n: int) -> None:
    def one(i: KValue, j: KValue) -> None:
        rows.put(i, x.select(x.e.compare("eq", i, j), x.const(1), x.const(0)), j)

    repeated(x.e, n, lambda i: repeated(x.e, n, lambda j: one(i, j)))


def sort(x: LaneArithmetic, before: str, values: Matrix, n: int, rows: Sequence[Matrix]) -> None:
    """Values in order, with their rows: each place gets the first of those that are left."""
    e = x.e

    def place(i: KValue) -> None:
        def first(k: KValue, best: KValue, found: KValue) -> Sequence[KValue]:
            at = e.value(e.add(e.add(i, 1), k))
            v = values.at(at)
            better = x.test(before, v, best)
            return [x.select(better, v, best), x.select(better, at, found)]

        _, found = carried(e, e.sub(n - 1, i), [values.at(i), i], first)
        for matrix in (values, *rows):
            repeated(e, matrix.columns, partial(exchange, matrix, i, found))

    def exchange(matrix: Matrix, i: KValue, j: KValue, c: KValue) -> None:
        upper, lower = matrix.at(i, c), matrix.at(j, c)
        matrix.put(i, lower, c)
        matrix.put(j, upper, c)

    repeated(e, n, place)


class Symmetric:
    """A symmetric matrix that becomes diagonal, and matrices whose rows turn with it."""

    def __init__(self, ctx: Lowering, whole: Matrix, n: int, turned: Sequence[Matrix]) -> None:
        self.ctx, self.whole, self.n, self.turned = ctx, whole, n, turned
        self.x = LaneArithmetic(ctx.emitter, ctx.arrays[whole.array].dtype)

    def diagonalise(self) -> None:
        """Sweeps, until what is beside the diagonal is at the rounding of what is on it."""
        e, x = self.x.e, self.x
        diagonal = self._summed(lambda i: x.op("mul", self.whole.at(i, i), self.whole.at(i, i)))
        least = x.const((2 * self.n * EPSILON[x.dtype.name]) ** 2)
        limit = x.op("mul", x.op("add", self._beside(), diagonal), least)

        def sweep(count: KValue, _: KValue) -> Sequence[KValue]:
            pairs(x, self.n, self._rotate, [])
            return [e.op("add", (count, e.const(1, int64)), int64), self._beside()]

        def unfinished(count: KValue, beside: KValue) -> KValue:
            more = e.compare("lt", count, e.const(SWEEPS, int64))
            return e.op("and", (more, x.test("gt", beside, limit)), bool_)

        until(e, [e.const(0, int64), self._beside()], unfinished, sweep)

    def _summed(self, term: Callable[[Position], KValue]) -> KValue:
        x = self.x
        return carried(x.e, self.n, [x.const(0)], lambda i, s: [x.op("add", s, term(i))])[0]

    def _beside(self) -> KValue:
        """The sum of the squares beside the diagonal."""

        def row(i: Position) -> KValue:
            def square(j: Position) -> KValue:
                return self.x.op("mul", self.whole.at(i, j), self.whole.at(i, j))

            return total(self.ctx, self.x.dtype, 0, i, square)

        lower = self._summed(row)
        return self.x.op("add", lower, lower)

    def _rotate(self, p: KValue, q: KValue) -> Sequence[KValue]:
        x, whole = self.x, self.whole
        upper, lower, across = whole.at(p, p), whole.at(q, q), whole.at(p, q)
        cosine, sine, tangent = rotation(x, upper, lower, across)

        def some(places: list[Position]) -> None:
            for k in places:
                first, second = turned(x, whole.at(p, k), whole.at(q, k), cosine, sine)
                for row, v in ((p, first), (q, second)):
                    whole.put(row, v, k)
                    whole.put(k, v, row)

        in_fours(x.e, 0, self.n, some)
        whole.put(p, x.less(upper, tangent, across), p)
        whole.put(q, x.op("add", lower, x.op("mul", tangent, across)), q)
        for i, j in ((p, q), (q, p)):
            whole.put(i, x.const(0), j)
        for rows in self.turned:
            turn_rows(x, rows, p, q, cosine, sine)
        return []


def eigh(ctx: Lowering, frame: Frame, node: Node) -> None:
    e, n, dtype = ctx.emitter, node.operands[0].shape[-1], node.results[0].dtype
    x = LaneArithmetic(e, dtype)

    def lower(a: MatrixOperand, i: Position, j: Position) -> KValue:
        row, column = (e.op(which, (e.value(i), e.value(j)), int64) for which in ("max", "min"))
        return a.at(row, column)

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), values = operands, results[0]
        whole, vectors = scratch(ctx, n, n, dtype), [scratch(ctx, n, n, dtype) for _ in results[1:]]
        scaled = Scaled(ctx, partial(lower, a), whole, n, n)
        for rows in vectors:
            identity(x, rows, n)
        Symmetric(ctx, whole, n, vectors).diagonalise()
        repeated(e, n, lambda i: values.put(i, whole.at(i, i)))
        sort(x, "lt", values, n, vectors)
        repeated(e, n, lambda i: values.put(i, scaled.value(x.op("mul", values.at(i), scaled.scale))))
        for rows, result in zip(vectors, results[1:], strict=True):
            lay(x, result, rows, scaled.value, n, transposed=True)

    EachMatrix(ctx, frame, node, (1, 2)[: len(node.results)]).run(each)


def lay(
    x: LaneArithmetic, result: Matrix, source: Matrix, value: Callable[[KValue], KValue], rows: int, transposed: bool
) -> None:
    """What is made of each element of the source, or of its transpose, which has so many rows."""

    def one(i: KValue, j: KValue) -> None:
        result.put(i, value(source.at(j, i) if transposed else source.at(i, j)), j)

    repeated(x.e, rows, lambda i: repeated(x.e, result.columns, lambda j: one(i, j)))


def orthogonal_columns(ctx: Lowering, rows: Matrix, long: int, short: int, columns: int) -> Matrix:
    """The QR factor q of the transpose, with the signs that the rows have."""
    x = LaneArithmetic(ctx.emitter, ctx.arrays[rows.array].dtype)
    packed, q = scratch(ctx, long, short, x.dtype), scratch(ctx, long, columns, x.dtype)
    lay(x, packed, rows, lambda v: v, long, transposed=True)
    Reflections(ctx, packed, long, short).orthogonal(q, columns)

    def signed(j: KValue) -> None:
        negative = x.test("signbit", packed.at(j, j))

        def one(i: KValue) -> None:
            v = q.at(i, j)
            q.put(i, x.select(negative, x.op("neg", v), v), j)

        repeated(x.e, long, one)

    repeated(x.e, short, signed)
    return q


def svd(ctx: Lowering, frame: Frame, node: Node) -> None:
    """One-sided: rows of a.T, or of a where that has fewer, are rotated until they are orthogonal; their lengths are
    the values. The QR factors of what they are then, the longest first, have the vectors."""
    e, (m, n), dtype = ctx.emitter, node.operands[0].shape[-2:], node.operands[0].dtype
    long, short, wide, vectors = max(m, n), min(m, n), m < n, node.attrs["vectors"]
    x = LaneArithmetic(e, dtype)
    least = x.const(long * EPSILON[dtype.name])

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), values = operands, results[1 if vectors else 0]
        rows, turns = scratch(ctx, short, long, dtype), [scratch(ctx, short, short, dtype)] if vectors else []
        scaled = Scaled(ctx, a.at if wide else lambda i, j: a.at(j, i), rows, short, long)
        for matrix in turns:
            identity(x, matrix, short)

        def product(p: Position, q: Position) -> KValue:
            return total(ctx, dtype, 0, long, lambda k: x.op("mul", rows.at(p, k), rows.at(q, k)))

        def rotate(p: KValue, q: KValue, quiet: KValue) -> Sequence[KValue]:
            first, second, across = product(p, p), product(q, q), product(p, q)
            lengths = x.op("mul", x.op("sqrt", first), x.op("sqrt", second))
            small = x.test("le", x.op("abs", across), x.op("mul", lengths, least))
            cosine, sine, _ = rotation(x, first, second, x.select(small, x.const(0), across))
            for matrix in (rows, *turns):
                turn_rows(x, matrix, p, q, cosine, sine)
            return [e.op("and", (quiet, small), bool_)]

        def sweep(count: KValue, _: KValue) -> Sequence[KValue]:
            (quiet,) = pairs(x, short, rotate, [e.const(True, bool_)])
            return [e.op("add", (count, e.const(1, int64)), int64), quiet]

        def unfinished(count: KValue, quiet: KValue) -> KValue:
            more = e.compare("lt", count, e.const(SWEEPS, int64))
            return e.op("and", (more, e.op("invert", (quiet,), bool_)), bool_)

        until(e, [e.const(0, int64), e.const(False, bool_)], unfinished, sweep)
        repeated(e, short, lambda i: values.put(i, x.op("sqrt", product(i, i))))
        sort(x, "gt", values, short, [rows, *turns])
        repeated(e, short, lambda i: values.put(i, scaled.value(x.op("mul", values.at(i), scaled.scale))))
        if vectors:
            u, _, vh = results
            columns = node.results[2].shape[-2] if wide else node.results[0].shape[-1]
            orthogonal = orthogonal_columns(ctx, rows, long, short, columns)
            lay(x, u, turns[0] if wide else orthogonal, scaled.value, m, transposed=wide)
            lay(x, vh, orthogonal if wide else turns[0], scaled.value, node.results[2].shape[-2], transposed=wide)

    EachMatrix(ctx, frame, node, (2, 1, 2) if vectors else (1,)).run(each)


ROUTINES: Final = {"eigh": eigh, "svd": svd}
