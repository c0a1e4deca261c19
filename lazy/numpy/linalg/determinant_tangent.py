"""The derivative of a determinant, which singular matrices have, too.

A determinant is a polynomial, but a derivative by way of its factors divides by pivots. So `det` is a call with a rule
for its tangent. With the columns of the three smallest pivots last, and in the order of rows of a second factorisation,

    A = [[B, C], [D, E]]        det A = +- det B det S,  S = E - D inv(B) C,  of three rows

B is regular unless A lacks more than three ranks, and det S is written out: the rule divides by nothing that may be 0,
and has derivatives of every order itself. Where more than three ranks are missing, derivatives up to the third order
are 0; what higher ones are, B can't say, nor where it is regular by rounding errors alone: they are NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import enter, trace
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, bool_, int64

Elements: TypeAlias = Callable[[int, int], Value]  # at a row and a column
KNOWN: Final = 2  # derivatives of a tangent that are 0 where four ranks are missing


def by_pivots(packed: Value, swaps: Value) -> Value:
    """The determinant by factors."""
    diagonal = counted_pivots(packed)
    product = computed("reduce_prod", diagonal, axes=(len(packed.shape) - 2,))
    return ops.select(odd_exchanges(swaps), ops.neg(product), product)


def counted_pivots(packed: Value) -> Value:
    """The diagonal of u. Beside a 0 infinities and NaN count as 1: as NumPy has it, the matrix is singular then."""
    diagonal = mx.diagonal(packed)
    size = mx.size(diagonal)
    singular = ops.reduce_or(ops.eq(size, 0), (len(size.shape) - 1,))
    lost = ops.and_(ops.broadcast_leading(singular, size.shape), ops.or_(ops.is_nan(size), ops.is_inf(size)))
    return ops.select(lost, 1, diagonal)


def odd_exchanges(swaps: Value) -> Value:
    """Whether an odd number of rows was exchanged."""
    axis = len(swaps.shape) - 1
    return _odd(ops.ne(swaps, ops.iota(TensorType(swaps.shape, swaps.dtype), axis)), (axis,))


def _odd(there: Value, axes: tuple[int, ...]) -> Value:
    return ops.cast(ops.and_(_count(there, axes), 1), bool_)


def _count(there: Value, axes: tuple[int, ...]) -> Value:
    return ops.reduce_sum(ops.cast(there, int64), axes)


# ---- written out


def written_out(at: Elements, n: int) -> Value:
    """A determinant of up to three rows, by products of elements."""

    def minor(i: int, j: int, k: int, m: int) -> Value:
        return ops.sub(mx.mul(at(i, k), at(j, m)), mx.mul(at(i, m), at(j, k)))

    if n == 1:
        return at(0, 0)
    if n == 2:
        return minor(0, 1, 0, 1)
    terms = [mx.mul(at(0, j), minor(1, 2, (j + 1) % 3, (j + 2) % 3)) for j in range(3)]
    return ops.add(ops.add(terms[0], terms[1]), terms[2])


def elements(a: Value) -> Elements:
    return lambda i, j: ops.reshape(mx.part(a, (i, i + 1), (j, j + 1)), a.shape[:-2])


def _moving(a: Value, t: Value) -> Value:
    """The tangent of what is written out of three rows: with each row in turn replaced."""
    still, moved = elements(a), elements(t)

    def replaced(row: int) -> Value:
        return written_out(lambda i, j: moved(i, j) if i == row else still(i, j), 3)

    return ops.add(ops.add(replaced(0), replaced(1)), replaced(2))


# ---- the rule


def with_tangent(a: Value, t: Value) -> list[Value]:
    """The determinants of matrices of more than three rows, and their derivatives along t."""
    packed, swaps, _ = mx.lu(a)
    order, turned = _smallest_last(mx.size(mx.diagonal(ops.stop_gradient(packed))))
    turned_packed, turned_swaps, rows = mx.lu(_columns_at(ops.stop_gradient(a), order))
    negative = ops.xor(turned, odd_exchanges(turned_swaps))
    b, db = [mx.rows_at(_columns_at(v, order), rows) for v in (a, t)]
    k = a.shape[-1] - 3
    leading = mx.part(turned_packed, (0, k), (0, k))
    pivots = mx.size(mx.diagonal(leading))
    smallest, largest = [reduce(pivots, (len(a.shape) - 2,)) for reduce in (ops.reduce_min, ops.reduce_max)]
    lost = ops.eq(smallest, 0)
    tangent = _by_blocks(b, db, k, lost)
    zero = ops.zeros_like(tangent)
    tangent = ops.select(lost, zero, ops.select(negative, ops.neg(tangent), tangent))
    doubtful = ops.le(smallest, ops.mul(largest, a.shape[-1] * float(np.finfo(a.dtype.np).eps)))
    return [by_pivots(packed, swaps), ops.add(tangent, _unknown(a, t, doubtful))]


def _unknown(a: Value, t: Value, doubtful: Value) -> Value:
    """0, and so are its derivatives, but those that can't be known of a tangent where that is `doubtful`."""
    still, moving = _weighted(a), _weighted(t)
    (nothing,) = region_ops.call((still, doubtful), _vanishing(still.type, KNOWN), "jvp", arguments=1, name="det")
    return ops.select(doubtful, mx.mul(nothing, moving), 0)


def _weighted(v: Value) -> Value:
    """A sum of the elements that is 0 of none but zeros, unless somebody looked for such: a cotangent of 0 would stop
    NaN."""
    rank, (m, n) = len(v.shape) - 2, v.shape[-2:]
    row, column = [ops.iota(TensorType((m, n), v.dtype.part), d) for d in range(2)]
    weights = ops.broadcast(ops.sqrt(ops.add(ops.add(ops.mul(row, n), column), 1)), v.shape, (rank, rank + 1))
    return computed("reduce_sum", mx.mul(v, weights), axes=(rank, rank + 1))


@lru_cache(maxsize=256)
def _vanishing(type: TensorType, order: int) -> tuple[Graph, Graph]:
    """A function that is 0, with so many derivatives that are 0 as well; the next one is NaN where its second argument
    holds."""

    def rule(v: Value, doubtful: Value, t: Value) -> list[Value]:
        if not order:
            slope = ops.select(doubtful, mx.NAN, ops.zeros_like(v))
        else:
            regions = _vanishing(type, order - 1)
            (slope,) = region_ops.call((v, doubtful), regions, "jvp", arguments=1, name="det")
        return [ops.zeros_like(v), mx.mul(slope, t)]

    known = TensorType(type.shape, bool_)
    with enter(None):  # what is kept belongs to no function that is being traced
        zero, _ = trace(lambda v, _: [ops.zeros_like(v)], [type, known])
        return zero, trace(rule, [type, known, type])[0]


def _by_blocks(b: Value, db: Value, k: int, lost: Value) -> Value:
    """The tangent of det(b), but where `lost`."""
    n, rank = b.shape[-1], len(b.shape)
    corner = mx.part(b, (0, k), (0, k))
    unit = mx.identity(b.shape[:-2], k, b.dtype)
    corner = ops.select(ops.broadcast_leading(lost, corner.shape), unit, corner)
    packed, swaps, rows = mx.lu(corner)
    right, below = mx.part(b, (0, k), (k, n)), mx.part(b, (k, n), (0, k))
    x = mx.solve_factored(corner, packed, rows, right)
    rest = ops.sub(mx.part(b, (k, n), (k, n)), ops.matmul(below, x))
    d_corner = mx.part(db, (0, k), (0, k))
    d_right = ops.sub(mx.part(db, (0, k), (k, n)), ops.matmul(d_corner, x))
    both = mx.solve_factored(corner, packed, rows, ops.concat([d_corner, d_right], rank - 1))
    share, dx = mx.part(both, (0, k), (0, k)), mx.part(both, (0, k), (k, n))
    moved = ops.add(ops.matmul(mx.part(db, (k, n), (0, k)), x), ops.matmul(below, dx))
    d_rest = ops.sub(mx.part(db, (k, n), (k, n)), moved)
    trace = computed("reduce_sum", mx.diagonal(share), axes=(rank - 2,))
    grown = ops.add(mx.mul(trace, written_out(elements(rest), 3)), _moving(rest, d_rest))
    return mx.mul(by_pivots(packed, swaps), grown)


def _smallest_last(size: Value) -> tuple[Value, Value]:
    """An order of columns with those of the three smallest pivots last, and whether that is an odd permutation."""
    *batch, n = size.shape
    rank, square = len(batch), (*batch, n, n)
    own, other = [ops.broadcast(size, square, (*range(rank), d)) for d in (rank, rank + 1)]
    place, others_place = [ops.iota(TensorType(square, int64), d) for d in (rank, rank + 1)]
    before = ops.lt(others_place, place)
    below = ops.or_(ops.lt(other, own), ops.and_(ops.eq(other, own), ops.lt(place, others_place)))
    small = ops.lt(_count(below, (rank + 1,)), 3)
    mine, theirs = [ops.broadcast(small, square, (*range(rank), d)) for d in (rank, rank + 1)]
    alike = _count(ops.and_(before, ops.eq(mine, theirs)), (rank + 1,))
    target = ops.select(small, ops.add(alike, n - 3), alike)
    there = ops.eq(ops.broadcast(target, square, (*range(rank), rank)), others_place)
    order = ops.reduce_sum(ops.select(there, place, 0), (rank,))
    passed = ops.and_(ops.and_(mine, ops.ne(mine, theirs)), ops.lt(place, others_place))
    return order, _odd(passed, (rank, rank + 1))


def _columns_at(v: Value, columns: Value) -> Value:
    return mx.transposed(mx.rows_at(mx.transposed(v), columns))
