"""Symmetric eigenvalues and singular values by Jacobi's rotations, in loops: all pairs of rows in turn, until a matrix
is done. G. Golub and C. Van Loan, "Matrix computations", sections 8.5 and 8.6. When a matrix is done, and what becomes
of one that has others than finite elements, is as in `codegen.factorisations`.

Rows of complex matrices turn by the angle of real ones, of which one has first been turned by a phase:

    row p, row q  ->  c row p - s u row q, s conj(u) row p + c row q        for the element beside the diagonal, u |r|
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from loopgrad.codegen.factorisations.rotations import EPSILON, SWEEPS
from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import KernelBuilder, Position
from loopgrad.codegen.lower.factorisations.matrices import (
    EachMatrix,
    Element,
    Matrix,
    MatrixOperand,
    carried,
    in_fours,
    scratch,
    total,
    until,
)
from loopgrad.codegen.lower.factorisations.numbers import Number, Numbers, Reals
from loopgrad.codegen.lower.factorisations.reflections import Reflections
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.factorisations import batch_rank, extents
from loopgrad.graph.types import bool_, int64


class Scaled:
    """An (m, n) matrix divided by its largest element, in `target`, so that squares are numbers. `lost`: it has others
    than finite elements, in whose place stand zeros."""

    def __init__(self, ctx: Lowering, element: Element, target: Matrix, m: int, n: int) -> None:
        e, numbers = ctx.emitter, target.numbers
        self.x = x = numbers.real
        zero, most = x.const(0), x.const(float(np.finfo(x.dtype.np).max))

        def row(i: KValue, *known: KValue) -> Sequence[KValue]:
            return carried(e, n, known, partial(one, i))

        def one(i: KValue, j: KValue, largest: KValue, lost: KValue) -> Sequence[KValue]:
            v = element(i, j)
            target.put(i, v, j)
            for part in v:
                size = x.op("abs", part)
                finite = x.test("le", size, most)
                largest = x.op("max", largest, x.select(finite, size, zero))
                lost = e.op("or", (lost, e.op("invert", (finite,), bool_)), bool_)
            return [largest, lost]

        largest, self.lost = carried(e, m, [zero, e.const(False, bool_)], row)
        self.scale = x.select(x.test("gt", largest, zero), largest, x.const(1))
        whole = target.flat()

        def divided(k: KValue) -> None:
            whole.put(k, (x.select(self.lost, zero, x.op("div", whole.real(k), self.scale)),))

        repeated(e, m * n * target.parts, divided)

    def number(self, v: Number) -> Number:
        """NaN where the matrix is lost."""
        return tuple([self.x.select(self.lost, self.x.const(np.nan), part) for part in v])

    def value(self, v: KValue) -> Number:
        """Of the matrix as it was."""
        return self.number((self.x.op("mul", v, self.scale),))


def rotation(x: Reals, p: KValue, q: KValue, r: KValue) -> tuple[KValue, KValue, KValue]:
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


def turned(x: Numbers, v: Number, w: Number, cosine: KValue, sine: Number) -> tuple[Number, Number]:
    """`sine`: times a phase."""
    first = x.each("sub", x.times(v, cosine), x.mul(sine, w))
    return first, x.each("add", x.mul(x.conj(sine), v), x.times(w, cosine))


def turn_rows(rows: Matrix, p: Position, q: Position, cosine: KValue, sine: Number) -> None:
    def some(columns: list[Position]) -> None:
        for k in columns:
            first, second = turned(rows.numbers, rows.at(p, k), rows.at(q, k), cosine, sine)
            rows.put(p, first, k)
            rows.put(q, second, k)

    in_fours(rows.ctx.emitter, 0, rows.columns, some)


def pairs(e: KernelBuilder, n: int, body: Callable[..., Sequence[KValue]], inits: Sequence[KValue]) -> Sequence[KValue]:
    """body(p, q, *values) for all p < q."""

    def row(p: KValue, *values: KValue) -> Sequence[KValue]:
        first = e.add(p, 1)
        return carried(e, e.sub(n, first), values, lambda k, *v: body(p, e.add(first, k), *v))

    return carried(e, n, inits, row)


def identity(rows: Matrix, n: int) -> None:
    e, x = rows.ctx.emitter, rows.numbers

    def one(i: KValue, j: KValue) -> None:
        rows.put(i, x.select(e.compare("eq", i, j), x.const(1), x.const(0)), j)

    repeated(e, n, lambda i: repeated(e, n, lambda j: one(i, j)))


def sort(before: str, values: Matrix, n: int, rows: Sequence[Matrix]) -> None:
    """Values in order, with their rows: each place gets the first of those that are left."""
    e, x = values.ctx.emitter, values.numbers.real

    def place(i: KValue) -> None:
        def first(k: KValue, best: KValue, found: KValue) -> Sequence[KValue]:
            at = e.value(e.add(e.add(i, 1), k))
            v = values.real(at)
            better = x.test(before, v, best)
            return [x.select(better, v, best), x.select(better, at, found)]

        _, found = carried(e, e.sub(n - 1, i), [values.real(i), i], first)
        for matrix in (values, *rows):
            repeated(e, matrix.columns, partial(exchange, matrix, i, found))

    def exchange(matrix: Matrix, i: KValue, j: KValue, c: KValue) -> None:
        upper, lower = matrix.at(i, c), matrix.at(j, c)
        matrix.put(i, lower, c)
        matrix.put(j, upper, c)

    repeated(e, n, place)


class Symmetric:
    """A symmetric or Hermitian matrix that becomes diagonal, and matrices whose rows turn with it."""

    def __init__(self, ctx: Lowering, whole: Matrix, n: int, turned: Sequence[Matrix]) -> None:
        self.ctx, self.whole, self.n, self.turned = ctx, whole, n, turned
        self.x = whole.numbers

    def diagonalise(self) -> None:
        """Sweeps, until what is beside the diagonal is at the rounding of what is on it."""
        e, x = self.ctx.emitter, self.x.real
        diagonal = self._summed(lambda i: self.x.squared(self.whole.at(i, i)))
        least = x.const((2 * self.n * EPSILON[x.dtype.name]) ** 2)
        limit = x.op("mul", x.op("add", self._beside(), diagonal), least)

        def sweep(count: KValue, _: KValue) -> Sequence[KValue]:
            pairs(e, self.n, self._rotate, [])
            return [e.op("add", (count, e.const(1, int64)), int64), self._beside()]

        def unfinished(count: KValue, beside: KValue) -> KValue:
            return x.both(e.compare("lt", count, e.const(SWEEPS, int64)), x.test("gt", beside, limit))

        until(e, [e.const(0, int64), self._beside()], unfinished, sweep)

    def _summed(self, term: Callable[[Position], KValue]) -> KValue:
        x = self.x.real
        return carried(x.e, self.n, [x.const(0)], lambda i, s: [x.op("add", s, term(i))])[0]

    def _beside(self) -> KValue:
        """The sum of the squares beside the diagonal."""

        def row(i: Position) -> KValue:
            terms = Numbers(self.x.real, 1)
            return total(self.ctx, terms, 0, i, lambda j: (self.x.squared(self.whole.at(i, j)),))[0]

        lower = self._summed(row)
        return self.x.real.op("add", lower, lower)

    def _rotate(self, p: KValue, q: KValue) -> Sequence[KValue]:
        x, whole = self.x, self.whole
        upper, lower = whole.real(p, p), whole.real(q, q)
        across, phase = x.polar(whole.at(p, q))
        cosine, sine, tangent = rotation(x.real, upper, lower, across)
        turn = x.times(phase, sine)

        def some(places: list[Position]) -> None:
            for k in places:
                first, second = turned(x, whole.at(p, k), whole.at(q, k), cosine, turn)
                for row, v in ((p, first), (q, second)):
                    whole.put(row, v, k)
                    whole.put(k, x.conj(v), row)

        in_fours(x.real.e, 0, self.n, some)
        whole.put(p, x.of_real(x.real.less(upper, tangent, across)), p)
        whole.put(q, x.of_real(x.real.op("add", lower, x.real.op("mul", tangent, across))), q)
        for i, j in ((p, q), (q, p)):
            whole.put(i, x.const(0), j)
        for rows in self.turned:
            turn_rows(rows, p, q, cosine, turn)
        return []


def eigh(ctx: Lowering, frame: Frame, node: Node) -> None:
    e, n, dtype = ctx.emitter, extents(node, 0)[-1], node.results[0].dtype

    def lower(a: MatrixOperand, i: KValue, j: KValue) -> Number:
        """The element of the whole matrix, of which the lower triangle is read."""
        row, column = (e.op(which, (i, j), int64) for which in ("max", "min"))
        re, *rest = a.at(row, column)
        x = Reals(e, dtype)
        for im in rest:
            above = x.select(e.compare("lt", i, j), x.op("neg", im), im)
            return re, x.select(e.compare("eq", i, j), x.const(0), above)
        return (re,)

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), values = operands, results[0]
        whole, vectors = scratch(ctx, n, n, dtype, a.parts), [scratch(ctx, n, n, dtype, a.parts) for _ in results[1:]]
        scaled = Scaled(ctx, partial(lower, a), whole, n, n)
        for rows in vectors:
            identity(rows, n)
        Symmetric(ctx, whole, n, vectors).diagonalise()
        repeated(e, n, lambda i: values.put(i, whole.at(i, i)[:1]))
        sort("lt", values, n, vectors)
        repeated(e, n, lambda i: values.put(i, scaled.value(values.real(i))))
        for rows, result in zip(vectors, results[1:], strict=True):

            def adjoint(i: Position, j: Position, rows: Matrix = rows) -> Number:
                return scaled.number(rows.numbers.conj(rows.at(j, i)))

            lay(result, adjoint, n)

    EachMatrix(ctx, frame, node, (1, 2)[: len(node.results)]).run(each)


def lay(result: Matrix, element: Element, rows: int) -> None:
    """All elements of so many rows."""
    e = result.ctx.emitter
    repeated(e, rows, lambda i: repeated(e, result.columns, lambda j: result.put(i, element(i, j), j)))


def orthogonal_columns(ctx: Lowering, rows: Matrix, long: int, short: int, columns: int) -> Matrix:
    """The QR factor q of the transpose, with the signs that the rows have."""
    x = rows.numbers
    packed, q = (scratch(ctx, long, n, x.real.dtype, x.parts) for n in (short, columns))
    lay(packed, lambda i, j: rows.at(j, i), long)
    Reflections(ctx, packed, long, short).orthogonal(q, columns)

    def signed(j: KValue) -> None:
        negative = x.real.test("signbit", packed.real(j, j))

        def one(i: KValue) -> None:
            v = q.at(i, j)
            q.put(i, x.select(negative, x.each("neg", v), v), j)

        repeated(ctx.emitter, long, one)

    repeated(ctx.emitter, short, signed)
    return q


class OrthogonalRows:
    """`rows` that are turned, and `turns` with them, until they are orthogonal. `lengths`: of each."""

    def __init__(self, ctx: Lowering, rows: Matrix, turns: Sequence[Matrix], short: int) -> None:
        self.ctx, self.rows, self.turns, self.short = ctx, rows, turns, short
        self.x = rows.numbers
        self.least = self.x.real.const(rows.columns * EPSILON[self.x.real.dtype.name])
        e = ctx.emitter

        def sweep(count: KValue, _: KValue) -> Sequence[KValue]:
            (quiet,) = pairs(e, short, self._rotate, [e.const(True, bool_)])
            return [e.op("add", (count, e.const(1, int64)), int64), quiet]

        def unfinished(count: KValue, quiet: KValue) -> KValue:
            more = e.compare("lt", count, e.const(SWEEPS, int64))
            return self.x.real.both(more, e.op("invert", (quiet,), bool_))

        until(e, [e.const(0, int64), e.const(False, bool_)], unfinished, sweep)

    def square(self, p: Position) -> KValue:
        terms = Numbers(self.x.real, 1)
        return total(self.ctx, terms, 0, self.rows.columns, lambda k: (self.x.squared(self.rows.at(p, k)),))[0]

    def _rotate(self, p: KValue, q: KValue, quiet: KValue) -> Sequence[KValue]:
        x, numbers, rows = self.x.real, self.x, self.rows
        first, second = self.square(p), self.square(q)

        def product(k: Position) -> Number:
            return numbers.mul(rows.at(p, k), numbers.conj(rows.at(q, k)))

        across, phase = numbers.polar(total(self.ctx, numbers, 0, rows.columns, product))
        lengths = x.op("mul", x.op("sqrt", first), x.op("sqrt", second))
        small = x.test("le", x.op("abs", across), x.op("mul", lengths, self.least))
        cosine, sine, _ = rotation(x, first, second, x.select(small, x.const(0), across))
        for matrix in (rows, *self.turns):
            turn_rows(matrix, p, q, cosine, numbers.times(phase, sine))
        return [x.both(quiet, small)]


def svd(ctx: Lowering, frame: Frame, node: Node) -> None:
    """One-sided: rows of a.T, or of a where that has fewer, are rotated until they are orthogonal; their lengths are
    the values. The QR factors of what they are then, the longest first, have the vectors."""
    e, (m, n), vectors = ctx.emitter, extents(node, 0), node.attrs["vectors"]
    long, short, wide = max(m, n), min(m, n), m < n

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), values = operands, results[1 if vectors else 0]
        dtype, parts = values.numbers.real.dtype, a.parts
        rows = scratch(ctx, short, long, dtype, parts)
        turns = [scratch(ctx, short, short, dtype, parts)] if vectors else []
        scaled = Scaled(ctx, a.at if wide else lambda i, j: a.at(j, i), rows, short, long)
        for matrix in turns:
            identity(matrix, short)
        orthogonal = OrthogonalRows(ctx, rows, turns, short)
        repeated(e, short, lambda i: values.put(i, (values.numbers.real.op("sqrt", orthogonal.square(i)),)))
        sort("gt", values, short, [rows, *turns])
        repeated(e, short, lambda i: values.put(i, scaled.value(values.real(i))))
        if vectors:
            u, _, vh = results
            height = node.results[2].shape[batch_rank(node)]
            q, turn = orthogonal_columns(ctx, rows, long, short, height if wide else u.columns), turns[0]
            conj, number = turn.numbers.conj, scaled.number
            lay(u, lambda i, j: number(conj(turn.at(j, i)) if wide else q.at(i, j)), m)
            lay(vh, lambda i, j: number(q.at(j, i) if wide else conj(turn.at(i, j))), height)

    EachMatrix(ctx, frame, node, (2, 1, 2) if vectors else (1,)).run(each)
