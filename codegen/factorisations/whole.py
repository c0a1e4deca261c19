"""Factorisations of matrices too large for a lane, as operations on whole arrays: kernels of all elements, products of
matrices, and loops around them.

cholesky, triangular_solve     halves: the blocks beside the diagonal are products (E. Elmroth et al., "Recursive
                               blocked algorithms and hybrid data structures for dense matrix library software", 2004)
lu, qr                         a loop over columns, each of which changes all of the matrix
eigh, svd                      rounds of rotations (`rotations`, `one_sided`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from loopgrad.codegen.factorisations import one_sided, rotations
from loopgrad.codegen.factorisations.in_lanes import Form
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, int64

SMALL: Final = 16  # rows of what a lane takes


def _half(n: int) -> int:
    """Where a matrix is cut: so that most blocks have the same sizes, and their kernels are the same."""
    if n <= SMALL:  # which a lane refused: complex numbers take more code
        return n // 2
    half = SMALL
    while 2 * half < n:
        half *= 2
    return half


# ---- halves


def cholesky(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    found, n = _halved(a), a.shape[-1]
    last = ops.reshape(mx.part(found, (n - 1, n), (n - 1, n)), a.shape[:-2])
    return rotations.nan_where(ops.is_nan(last), [found])


def _cholesky(a: Value) -> Value:
    return mx.cholesky(a) if a.shape[-1] <= SMALL else _halved(a)


def _halved(a: Value) -> Value:
    n, axis = a.shape[-1], len(a.shape) - 1
    h = _half(n)
    first = _cholesky(mx.part(a, (0, h), (0, h)))
    across = mx.solve_triangular(first, mx.adjoint(mx.part(a, (h, n), (0, h))), lower=True)
    below = mx.adjoint(across)
    second = _cholesky(ops.sub(mx.part(a, (h, n), (h, n)), ops.matmul(below, across)))
    top = mx.padded(first, (0, 0), (0, n - h))
    return ops.concat([top, ops.concat([below, second], axis)], axis - 1)


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    a, b = operands
    lower: bool = attrs["lower"]
    if attrs["transpose"]:
        a, lower = mx.transposed(a), not lower
    unit: bool = attrs["unit_diagonal"]
    n, k = b.shape[-2:]
    if n <= SMALL and k > 1:
        return (_by_column(a, b, lower, unit),)
    return (_halves_solved(a, b, lower, unit),)


def _solved(a: Value, b: Value, lower: bool, unit: bool) -> Value:
    n, k = b.shape[-2:]
    if n > SMALL:
        return _halves_solved(a, b, lower, unit)
    if k > SMALL:
        return _by_column(a, b, lower, unit)
    return mx.solve_triangular(a, b, lower=lower, unit_diagonal=unit)


def _halves_solved(a: Value, b: Value, lower: bool, unit: bool) -> Value:
    n, k = b.shape[-2:]
    h, columns = _half(n), (0, k)
    halves = [(0, h), (h, n)] if lower else [(h, n), (0, h)]
    (first, second), axis = halves, len(b.shape) - 2
    x = _solved(mx.part(a, first, first), mx.part(b, first, columns), lower, unit)
    rest = ops.sub(mx.part(b, second, columns), ops.matmul(mx.part(a, second, first), x))
    y = _solved(mx.part(a, second, second), rest, lower, unit)
    return ops.concat([x, y] if lower else [y, x], axis)


def _by_column(a: Value, b: Value, lower: bool, unit: bool) -> Value:
    """A lane for each column, where there are more than one lane would take."""
    *batch, n, k = b.shape
    rank = len(batch)
    shared = ops.broadcast(a, (*batch, k, n, n), (*range(rank), rank + 1, rank + 2))
    columns = ops.reshape(mx.transposed(b), (*batch, k, n, 1))
    x = mx.solve_triangular(shared, columns, lower=lower, unit_diagonal=unit)
    return mx.transposed(ops.reshape(x, (*batch, k, n)))


def solve_factored(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    _, packed, rows, b = operands
    if not attrs["transpose"]:
        x = mx.solve_triangular(packed, mx.rows_at(b, rows), lower=True, unit_diagonal=True)
        return (mx.solve_triangular(packed, x, lower=False),)
    x = mx.solve_triangular(packed, b, lower=False, transpose=True)
    x = mx.solve_triangular(packed, x, lower=True, transpose=True, unit_diagonal=True)
    return (mx.rows_back(x, rows),)


def pinv(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """v diag(1 / s) u.T of the singular values that count."""
    a, ratio = operands
    u, s, vh = mx.svd(a)
    least = ops.mul(ops.reduce_max(s, (len(s.shape) - 1,)), ratio)
    counts = ops.invert(ops.le(s, ops.broadcast_leading(least, s.shape)))  # a NaN counts: it shall be seen
    inverse = ops.select(counts, ops.div(1, ops.select(counts, s, 1)), 0)
    return (ops.matmul(mx.adjoint(vh), mx.scaled_rows(mx.adjoint(u), inverse)),)


# ---- columns


class _Places:
    """Rows and columns of (..., m, n) in a loop whose trip is `j`."""

    def __init__(self, v: Value, j: Value) -> None:
        self.batch, (self.m, self.n) = v.shape[:-2], v.shape[-2:]
        self.row = ops.iota(TensorType((*self.batch, self.m), int64), len(self.batch))
        self.column = ops.iota(TensorType((*self.batch, self.n), int64), len(self.batch))
        self.trip = ops.broadcast(j, self.batch, ())
        self.own = [ops.iota(TensorType(self.batch, int64), d) for d in range(len(self.batch))]

    def wide(self, v: Value, extent: int) -> Value:
        """One number a matrix beside `extent` ones."""
        return ops.broadcast_leading(v, (*self.batch, extent))

    def down(self, v: Value) -> Value:
        """(..., m) beside all elements."""
        return ops.broadcast_leading(v, (*self.batch, self.m, self.n))

    def along(self, v: Value) -> Value:
        """(..., n) beside all elements."""
        rank = len(self.batch)
        return ops.broadcast(v, (*self.batch, self.m, self.n), (*range(rank), rank + 1))

    def row_at(self, v: Value, at: Value) -> Value:
        return ops.gather(v, *self.own, at)

    def column_at(self, v: Value, at: Value) -> Value:
        own = [ops.iota(TensorType((*self.batch, self.m), int64), d) for d in range(len(self.batch))]
        return ops.gather(v, *own, self.row, self.wide(at, self.m))


def lu(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    *batch, m, n = a.shape
    k, rank = min(m, n), len(batch)

    def step(j: Value, packed: Value, swaps: Value, rows: Value) -> tuple[Value, ...]:
        at = _Places(packed, j)
        size = mx.size(at.column_at(packed, at.trip))
        size = ops.select(ops.is_nan(size), float("inf"), size)
        later = ops.ge(at.row, at.wide(at.trip, m))
        found = ops.argmax(ops.select(later, size, -1), rank)
        here, there = ops.eq(at.row, at.wide(at.trip, m)), ops.eq(at.row, at.wide(found, m))
        source = ops.select(here, at.wide(found, m), ops.select(there, at.wide(at.trip, m), at.row))
        packed = mx.rows_at(packed, source)
        rows = ops.reshape(mx.rows_at(ops.reshape(rows, (*batch, m, 1)), source), rows.shape)
        pivots = at.row_at(packed, at.trip)
        pivot = at.wide(ops.gather(pivots, *at.own, at.trip), m)
        below = ops.gt(at.row, at.wide(at.trip, m))
        column = at.column_at(packed, at.trip)
        factors = ops.select(ops.and_(below, ops.ne(pivot, 0)), mx.div(column, ops.select(below, pivot, 1)), 0)
        right = ops.select(ops.gt(at.column, at.wide(at.trip, n)), pivots, 0)
        less = ops.sub(packed, mx.mul(at.down(factors), at.along(right)))
        after = ops.and_(at.down(below), at.along(ops.ge(at.column, at.wide(at.trip, n))))
        in_column = ops.and_(at.down(below), at.along(ops.eq(at.column, at.wide(at.trip, n))))
        packed = ops.select(in_column, at.down(factors), ops.select(after, less, packed))
        turn = ops.iota(TensorType((*batch, k), int64), rank)
        swaps = ops.select(ops.eq(turn, at.wide(at.trip, k)), at.wide(found, k), swaps)
        return packed, swaps, rows

    swaps = ops.full(0, TensorType((*batch, k), int64))
    rows = ops.iota(TensorType((*batch, m), int64), rank)
    return traced_for(ops.full(k, TensorType((), int64)), [a, swaps, rows], step)


def qr(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """Reflections are kept below r, where zeros come in the end; q is made by them from the last to the first."""
    (a,) = operands
    *batch, m, n = a.shape
    k, rank = min(m, n), len(batch)
    columns = m if attrs["complete"] else k

    def step(j: Value, packed: Value, taus: Value) -> tuple[Value, ...]:
        at = _Places(packed, j)
        column = at.column_at(packed, at.trip)
        v, tau, beta = _reflection(at, column)
        along = ops.reshape(ops.matmul(ops.reshape(v, (*batch, 1, m)), packed), (*batch, n))
        later = ops.gt(at.column, at.wide(at.trip, n))
        along = ops.select(later, ops.mul(at.wide(tau, n), along), 0)
        packed = ops.sub(packed, ops.mul(at.down(v), at.along(along)))
        diagonal = ops.eq(at.row, at.wide(at.trip, m))
        kept = ops.select(diagonal, at.wide(beta, m), ops.select(ops.gt(at.row, at.wide(at.trip, m)), v, column))
        packed = ops.select(at.along(ops.eq(at.column, at.wide(at.trip, n))), at.down(kept), packed)
        turn = ops.iota(TensorType((*batch, k), int64), rank)
        return packed, ops.select(ops.eq(turn, at.wide(at.trip, k)), at.wide(tau, k), taus)

    count = ops.full(k, TensorType((), int64))
    packed, taus = traced_for(count, [a, ops.full(0, TensorType((*batch, k), a.dtype))], step)

    def reflected(j: Value, q: Value) -> tuple[Value]:
        at, of_q = _Places(packed, j), _Places(q, j)
        column = at.column_at(packed, at.trip)
        here = at.wide(at.trip, m)
        v = ops.select(ops.gt(at.row, here), column, ops.cast(ops.eq(at.row, here), a.dtype))
        tau = ops.gather(taus, *at.own, at.trip)
        along = ops.reshape(ops.matmul(ops.reshape(v, (*batch, 1, m)), q), (*batch, columns))
        return (ops.sub(q, ops.mul(of_q.down(ops.mul(at.wide(tau, m), v)), of_q.along(along))),)

    eye = mx.part(mx.identity(tuple(batch), m, a.dtype), (0, m), (0, columns))
    (q,) = traced_for(count, [eye], reflected, reverse=True)
    r = mx.upper(mx.part(packed, (0, min(columns, m)), (0, n)))
    return q, r


def _reflection(at: _Places, column: Value) -> tuple[Value, Value, Value]:
    """v (..., m), with a 1 at the trip's place and zeros before it, tau, and what the place becomes."""
    rank = len(at.batch)
    here = at.wide(at.trip, at.m)
    below, later = ops.gt(at.row, here), ops.ge(at.row, here)
    alpha = ops.gather(column, *at.own, at.trip)
    size = ops.reduce_max(ops.select(later, ops.abs(column), 0), (rank,))
    scale = ops.select(ops.gt(size, 0), size, 1)
    small = ops.select(later, ops.div(column, at.wide(scale, at.m)), 0)
    length = ops.mul(scale, ops.sqrt(ops.reduce_sum(ops.mul(small, small), (rank,))))
    still = ops.eq(ops.reduce_max(ops.select(below, ops.abs(column), 0), (rank,)), 0)
    beta = ops.select(still, alpha, ops.select(ops.signbit(alpha), length, ops.neg(length)))
    tau = ops.select(still, 0, ops.div(ops.sub(beta, alpha), ops.select(still, 1, beta)))
    divisor = at.wide(ops.select(still, 1, ops.sub(alpha, beta)), at.m)
    one = ops.cast(ops.eq(at.row, here), column.dtype)
    return ops.select(below, ops.div(column, divisor), one), tau, beta


# ---- rotations


def _sorted(values: Value, *columns: Value) -> tuple[Value, ...]:
    axis = len(values.shape) - 1
    order = ops.argsort(values, axis)
    found = ops.reshape(mx.rows_at(ops.reshape(values, (*values.shape, 1)), order), values.shape)
    return found, *[mx.transposed(mx.rows_at(mx.transposed(v), order)) for v in columns]


def eigh(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    return rotations.eigh(attrs, operands, _sorted)


def svd(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    return one_sided.svd(attrs, operands, _sorted, lambda attrs, operands: mx.qr(operands[0], attrs["complete"]))


FORMS: Final[dict[str, Form]] = {
    "cholesky": cholesky,
    "lu": lu,
    "triangular_solve": triangular_solve,
    "solve_factored": solve_factored,
    "qr": qr,
    "eigh": eigh,
    "svd": svd,
}
