"""Singular values by one-sided rotations, in the order of rounds that `rotations` has: M. Hestenes, "Inversion of
matrices by biorthogonalization and related results" (1958).

Columns of w = a v are rotated in pairs until all are orthogonal; their lengths are the singular values. The QR factors
of w, the longest columns first, have orthonormal columns for u even where lengths are 0, and more of them where they
are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from loopgrad.codegen.factorisations.in_lanes import Form
from loopgrad.codegen.factorisations.reflections import qr
from loopgrad.codegen.factorisations.rotations import (
    EPSILON,
    SWEEPS,
    Order,
    ascending,
    nan_where,
    rotation,
    scaled,
    turned_rows,
)
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.region_ops import traced_while
from loopgrad.graph.types import TensorType, int32


def svd(
    attrs: Mapping[str, Any], operands: Sequence[Value], order: Order = ascending, factors: Form = qr
) -> tuple[Value, ...]:
    """`order` sorts, `factors` are the QR factors."""
    (a,) = operands
    *batch, m, n = a.shape
    if m < n:
        results = svd(attrs, (mx.transposed(a),), order, factors)
        if not attrs["vectors"]:
            return results
        u, s, vh = results
        return mx.transposed(vh), s, mx.transposed(u)
    a, scale, lost = scaled(a)
    w, v = _orthogonal(a, attrs["vectors"])
    lengths = ops.sqrt(ops.reduce_sum(ops.mul(w, w), (len(batch) + 1,)))  # of the rows of w
    columns = [mx.transposed(w), v] if v is not None else []
    if v is not None and n % 2:  # the column that was added, of which nothing was rotated, goes last
        bottom = ops.reshape(mx.part(v, (n, n + 1), (0, n + 1)), lengths.shape)
        lengths = ops.select(ops.gt(bottom, 0.5), -1, lengths)
    lengths, *columns = order(ops.neg(lengths), *columns)
    s = ops.slice(lengths, (0,) * len(lengths.shape), (*batch, n))
    s = ops.mul(ops.abs(s), ops.broadcast_leading(scale, s.shape))
    if v is None:
        return nan_where(lost, [s])
    ordered, turned = (mx.part(c, (0, c.shape[-2]), (0, n)) for c in columns)
    q, r = factors({"complete": attrs["full"]}, (ordered,))
    square = mx.part(q, (0, m), (0, n))
    negative = ops.signbit(mx.diagonal(mx.part(r, (0, n), (0, n))))
    signs = ops.select(negative, -1, ops.ones_like(s))
    square = mx.scaled_columns(square, signs)
    u = ops.concat([square, mx.part(q, (0, m), (n, m))], len(batch) + 1) if q.shape[-1] > n else square
    return nan_where(lost, [u, s, mx.transposed(mx.part(turned, (0, n), (0, n)))])


def _orthogonal(a: Value, vectors: bool) -> tuple[Value, Value | None]:
    """The rotated columns as rows, and the rotations, both with a column of zeros where the number was odd."""
    *batch, m, n = a.shape
    size = n + n % 2
    half, rank = size // 2, len(batch)
    rows = mx.transposed(mx.padded(a, (0, 0), (0, size - n)))
    turns = [mx.identity(tuple(batch), size, a.dtype)] if vectors else []
    limit = m * EPSILON[a.dtype.name]
    quiet = ops.full(0, TensorType(tuple(batch), int32))

    def unfinished(trips: Value, quiet: Value, *rest: Value) -> Value:
        """A sweep in which nothing was rotated is the last."""
        return ops.and_(ops.lt(trips, SWEEPS * (size - 1)), ops.lt(quiet, size - 1))

    def body(trips: Value, quiet: Value, rows: Value, *turns: Value) -> tuple[Value, ...]:
        first, second = mx.part(rows, (0, half), (0, m)), mx.part(rows, (half, size), (0, m))
        factors = ((first, first), (second, second), (first, second))
        p, q, r = (ops.reduce_sum(ops.mul(x, y), (rank + 1,)) for x, y in factors)
        small = ops.le(ops.abs(r), ops.mul(ops.mul(ops.sqrt(p), ops.sqrt(q)), limit))
        done = ops.reduce_and(small, (rank,))
        cosine, sine = rotation(p, q, ops.select(small, 0, r))
        moved = [turned_rows(v, cosine, sine, half) for v in (rows, *turns)]
        return (ops.add(trips, 1), ops.select(done, ops.add(quiet, 1), 0), *moved)

    _, _, rows, *turns = traced_while([ops.zeros_like(quiet), quiet, rows, *turns], unfinished, body)
    return rows, mx.transposed(turns[0]) if turns else None


FORMS: Final[dict[str, Form]] = {"svd": svd}
