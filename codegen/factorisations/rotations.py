"""Symmetric eigenvalues by Jacobi's rotations, a round of disjoint pairs at a time.

R. Brent and F. Luk, "The solution of singular-value and symmetric eigenvalue problems on multiprocessor arrays" (1985):
rows and columns i and i + n / 2 are a pair, all pairs are rotated at once, and then everything but the first moves on
one place around the ring; after n - 1 rounds each has met each. Nothing is looked up at a place that depends on the
round, so a lane keeps all elements in registers; over whole arrays a round is slices, concatenations and products.

Rotations are those of G. Golub and C. Van Loan, "Matrix computations", section 8.5. A matrix is done when what is
beside its diagonal is at the rounding of what is on it. One with a NaN or an infinity gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from loopgrad.codegen.factorisations.in_lanes import Form
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.region_ops import traced_while
from loopgrad.graph.types import TensorType, int32

Order = Callable[..., tuple[Value, ...]]
SWEEPS: Final = 30  # of which a matrix takes about log2(n) + 4
EPSILON: Final = {"float32": 2.0**-24, "float64": 2.0**-53}


def ascending(values: Value, *columns: Value) -> tuple[Value, ...]:
    """In order, with their columns, by exchanges of neighbours: as many times as there are elements."""
    size = values.shape[-1]
    found: tuple[Value, ...] = (values, *columns)
    for step in range(size):
        start = step % 2
        if size - start > 1:
            found = _exchanged_neighbours(start, *found)
    return found


def eigh(attrs: Mapping[str, Any], operands: Sequence[Value], order: Order = ascending) -> tuple[Value, ...]:
    """`order` sorts."""
    (a,) = operands
    *batch, n, _ = a.shape
    axes = (len(batch), len(batch) + 1)
    vectors: bool = attrs["vectors"]
    symmetric = ops.add(mx.lower(a), mx.transposed(mx.lower(a, -1)))
    symmetric, scale, lost = scaled(symmetric)
    whole = _of_even_size(symmetric)
    limit = ops.mul(_squared(symmetric, axes), (2 * n * EPSILON[a.dtype.name]) ** 2)
    most = SWEEPS * (whole.shape[-1] - 1)
    turns = [mx.identity(tuple(batch), whole.shape[-1], a.dtype)] if vectors else []

    def unfinished(trips: Value, whole: Value, *turns: Value) -> Value:
        return ops.and_(ops.lt(trips, most), ops.gt(_beside(whole), limit))

    def body(trips: Value, *rest: Value) -> tuple[Value, ...]:
        return (ops.add(trips, 1), *_round(*rest))

    start = ops.full(0, TensorType(tuple(batch), int32))
    _, whole, *turns = traced_while([start, whole, *turns], unfinished, body)
    values, *columns = order(mx.diagonal(whole), *turns)
    values = ops.slice(values, (0,) * len(values.shape), (*batch, n))
    values = ops.mul(values, ops.broadcast_leading(scale, values.shape))
    return nan_where(lost, [values, *[mx.part(v, (0, n), (0, n)) for v in columns]])


def scaled(v: Value) -> tuple[Value, Value, Value]:
    """Matrices divided by their largest elements, so that squares are numbers; these elements; and which matrices have
    others than finite ones, in whose place stand zeros."""
    rank = len(v.shape) - 2
    axes = (rank, rank + 1)
    size = ops.abs(v)
    lost = ops.reduce_or(ops.invert(ops.le(size, float(np.finfo(v.dtype.np).max))), axes)
    known = ops.select(ops.broadcast_leading(lost, v.shape), 0, v)
    largest = ops.reduce_max(ops.abs(known), axes)
    scale = ops.select(ops.gt(largest, 0), largest, 1)
    return ops.div(known, ops.broadcast_leading(scale, v.shape)), scale, lost


def nan_where(lost: Value, results: Sequence[Value]) -> tuple[Value, ...]:
    """The results, NaN for these matrices."""
    return tuple([ops.select(ops.broadcast_leading(lost, v.shape), mx.NAN, v) for v in results])


def _of_even_size(v: Value) -> Value:
    """With an eigenvalue more, larger than all others, where the number is odd."""
    *batch, n, _ = v.shape
    if n % 2 == 0:
        return v
    largest = ops.mul(ops.reduce_sum(ops.abs(v), (len(batch), len(batch) + 1)), 2)
    corner = ops.broadcast_leading(largest, (*batch, 1, 1))
    return ops.add(mx.padded(v, (0, 1), (0, 1)), mx.padded(corner, (n, 0), (n, 0)))


def _squared(v: Value, axes: Sequence[int]) -> Value:
    """The sum of all squares, which rotations don't change."""
    return ops.reduce_sum(ops.mul(v, v), axes)


def _beside(whole: Value) -> Value:
    """The sum of the squares beside the diagonal."""
    *batch, size, _ = whole.shape
    eye = mx.identity(tuple(batch), size, whole.dtype)
    return _squared(ops.select(ops.gt(eye, 0), 0, whole), (len(batch), len(batch) + 1))


def _round(whole: Value, *turns: Value) -> tuple[Value, ...]:
    """All pairs rotated, all but the first moved on."""
    half = whole.shape[-1] // 2
    cosine, sine = rotation(*_pairs(whole, half))
    rows = turned_rows(whole, cosine, sine, half)
    both = mx.transposed(turned_rows(mx.transposed(rows), cosine, sine, half))
    return both, *[mx.transposed(turned_rows(mx.transposed(v), cosine, sine, half)) for v in turns]


def _pairs(whole: Value, half: int) -> tuple[Value, Value, Value]:
    """Both diagonal elements of each pair and the one beside them, (..., half)."""
    first, second = (0, half), (half, 2 * half)
    places = ((first, first), (second, second), (first, second))
    p, q, r = (mx.diagonal(mx.part(whole, *place)) for place in places)
    return p, q, r


def rotation(p: Value, q: Value, r: Value) -> tuple[Value, Value]:
    """Cosine and sine of the smaller angle that makes [[p, r], [r, q]] diagonal."""
    still = ops.eq(r, 0)
    tau = ops.div(ops.sub(q, p), ops.mul(ops.select(still, 1, r), 2))
    tangent = ops.div(1, ops.add(ops.abs(tau), ops.sqrt(ops.add(ops.mul(tau, tau), 1))))
    tangent = ops.select(ops.lt(tau, 0), ops.neg(tangent), tangent)
    tangent = ops.select(still, 0, tangent)
    cosine = ops.div(1, ops.sqrt(ops.add(ops.mul(tangent, tangent), 1)))
    return cosine, ops.mul(tangent, cosine)


def turned_rows(v: Value, cosine: Value, sine: Value, half: int) -> Value:
    """Rows i and i + half of v rotated, then moved on around the ring: the first stays, (0 1 2 | 3 4 5) becomes
    (0 3 1 | 4 5 2)."""
    axis, width = len(v.shape) - 2, v.shape[-1]
    top, bottom = mx.part(v, (0, half), (0, width)), mx.part(v, (half, 2 * half), (0, width))
    c, s = ops.broadcast_leading(cosine, top.shape), ops.broadcast_leading(sine, top.shape)
    first = ops.sub(ops.mul(c, top), ops.mul(s, bottom))
    second = ops.add(ops.mul(s, top), ops.mul(c, bottom))
    if half == 1:
        return ops.concat([first, second], axis)
    everything = (0, width)
    pieces = [
        mx.part(first, (0, 1), everything),
        mx.part(second, (0, 1), everything),
        *([mx.part(first, (1, half - 1), everything)] if half > 2 else []),
        mx.part(second, (1, half), everything),
        mx.part(first, (half - 1, half), everything),
    ]
    return ops.concat(pieces, axis)


def _exchanged_neighbours(start: int, values: Value, *columns: Value) -> tuple[Value, ...]:
    """Neighbours (start, start + 1), (start + 2, start + 3) ..., the smaller one first."""
    rank, size = len(values.shape) - 1, values.shape[-1]
    end = start + (size - start) // 2 * 2
    wrong = ops.gt(_every_other(values, start, end), _every_other(values, start + 1, end))

    def ordered(v: Value) -> Value:
        left, right = _every_other(v, start, end), _every_other(v, start + 1, end)
        axes = (*range(rank), len(v.shape) - 1)
        here = ops.broadcast(wrong, left.shape, axes)
        pairs = [ops.select(here, right, left), ops.select(here, left, right)]
        return _with_middle(v, start, end, pairs)

    return tuple([ordered(v) for v in (values, *columns)])


def _every_other(v: Value, start: int, end: int) -> Value:
    """v[..., start:end:2]"""
    lead = v.shape[:-1]
    return ops.slice(v, (*(0,) * len(lead), start), (*lead, end), (*(1,) * len(lead), 2))


def _with_middle(v: Value, start: int, end: int, pairs: Sequence[Value]) -> Value:
    """v with the elements of both, in turn, from start to end."""
    lead, axis = v.shape[:-1], len(v.shape) - 1
    none = (0,) * axis
    middle = ops.concat([ops.reshape(p, (*p.shape, 1)) for p in pairs], axis + 1)
    pieces = [ops.reshape(middle, (*lead, end - start))]
    if start:
        pieces.insert(0, ops.slice(v, (*none, 0), (*lead, start)))
    if end < v.shape[-1]:
        pieces.append(ops.slice(v, (*none, end), v.shape))
    return ops.concat(pieces, axis)


FORMS: Final[dict[str, Form]] = {"eigh": eigh}
