"""Factorisations of small matrices, each by one lane: every column is a few operations on what is left of a matrix.

A lane holds the elements and computes each by itself, so slices, transpositions and triangles cost nothing, and code
grows as n**3. Rows are exchanged by selection. The results of what has no factorisation are NaN throughout, as those
of the primitives are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int32, int64

Form = Callable[[Mapping[str, Any], Sequence[Value]], tuple[Value, ...]]


def element(v: Value, i: int, j: int) -> Value:
    """(..., i, j), without the last two axes."""
    return ops.reshape(mx.part(v, (i, i + 1), (j, j + 1)), v.shape[:-2])


def across(v: Value, shape: Sequence[int]) -> Value:
    """One value a matrix beside all its elements."""
    return ops.broadcast_leading(v, shape)


def _outer(column: Value, row: Value) -> Value:
    """(..., m, 1) times (..., 1, n)"""
    shape = (*column.shape[:-1], row.shape[-1])
    return mx.mul(ops.broadcast_to(column, shape), ops.broadcast_to(row, shape))


def cholesky(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """Right-looking: a column, and what it takes from those after it."""
    (rest,) = operands
    *batch, n, _ = rest.shape
    columns, positive = [], None
    for j in range(n):
        pivot = mx.real(element(rest, 0, 0))
        known = ops.gt(pivot, 0)
        positive = known if positive is None else ops.and_(positive, known)
        column = mx.part(rest, (0, n - j), (0, 1))
        column = mx.over_real(column, across(ops.sqrt(pivot), column.shape))
        if column.dtype.kind == "c":
            column = mx.real_first(column)
        columns.append(mx.padded(column, (j, 0), (0, 0)))
        if j < n - 1:
            below = mx.part(column, (1, n - j), (0, 1))
            rest = ops.sub(mx.part(rest, (1, n - j), (1, n - j)), _outer(below, mx.adjoint(below)))
    whole = ops.concat(columns, len(batch) + 1)
    assert positive is not None
    return (ops.select(across(positive, whole.shape), whole, mx.NAN),)


def lu(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """Row by row, as LAPACK's getf2: the largest of a column first, NaN before all."""
    (rest,) = operands
    *batch, m, n = rest.shape
    rank = len(batch)
    rows = ops.iota(TensorType((*batch, m, 1), int64), rank)
    packed, places, swaps = [], [], []
    for j in range(min(m, n)):
        found = _largest(mx.part(rest, (0, m - j), (j, j + 1)))
        swaps.append(ops.add(ops.cast(found, int64), j))
        rest, first = _exchanged(rest, found)
        rows, place = _exchanged(rows, found)
        packed.append(first)
        places.append(place)
        if j == m - 1:
            break
        pivot = element(first, 0, j)
        column = mx.part(rest, (0, m - j - 1), (j, j + 1))
        zero = across(ops.eq(pivot, 0), column.shape)
        factors = ops.select(zero, column, mx.div(column, across(pivot, column.shape)))
        pieces = [mx.part(rest, (0, m - j - 1), (0, j)), factors] if j else [factors]
        if j < n - 1:
            taken = _outer(factors, mx.part(first, (0, 1), (j + 1, n)))
            pieces.append(ops.sub(mx.part(rest, (0, m - j - 1), (j + 1, n)), taken))
        rest = ops.concat(pieces, rank + 1)
    if len(packed) < m:
        packed.append(rest)
        places.append(rows)
    order = ops.reshape(ops.concat(places, rank), (*batch, m))
    turns = [ops.reshape(s, (*batch, 1)) for s in swaps]
    return ops.concat(packed, rank), ops.concat(turns, rank), order


def _largest(column: Value) -> Value:
    """Which element of (..., m, 1) has the largest absolute value, the first of equal ones; (...,), int32."""
    *batch, m, _ = column.shape
    best = mx.size(element(column, 0, 0))
    found = ops.full(0, TensorType(tuple(batch), int32))
    for i in range(1, m):
        size = mx.size(element(column, i, 0))
        better = ops.and_(ops.invert(ops.le(size, best)), ops.invert(ops.is_nan(best)))
        best, found = ops.select(better, size, best), ops.select(better, i, found)
    return found


def _exchanged(rest: Value, found: Value) -> tuple[Value, Value]:
    """The first row and the found one exchanged: the rows after the first, and the first."""
    *batch, m, n = rest.shape
    first = chosen = mx.part(rest, (0, 1), (0, n))
    for i in range(1, m):
        here = across(ops.eq(found, i), first.shape)
        chosen = ops.select(here, mx.part(rest, (i, i + 1), (0, n)), chosen)
    if m == 1:
        return mx.part(rest, (1, 1), (0, n)), chosen
    others = mx.part(rest, (1, m), (0, n))
    place = ops.add(ops.iota(TensorType(others.shape, int32), len(batch)), 1)
    taken = ops.eq(place, across(found, others.shape))
    return ops.select(taken, ops.broadcast_to(first, others.shape), others), chosen


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """Row by row; each solved one is taken from all that are left."""
    a, rest = operands
    lower: bool = attrs["lower"]
    if attrs["transpose"]:
        a, lower = mx.transposed(a), not lower
    *batch, n, k = rest.shape
    solved = []
    for step in range(n):
        i = step if lower else n - 1 - step
        at = 0 if lower else rest.shape[-2] - 1
        row = mx.part(rest, (at, at + 1), (0, k))
        if not attrs["unit_diagonal"]:
            row = mx.div(row, across(element(a, i, i), row.shape))
        solved.append(row)
        left = (i + 1, n) if lower else (0, i)
        if left[0] < left[1]:
            column = mx.part(a, left, (i, i + 1))
            others = (1, rest.shape[-2]) if lower else (0, rest.shape[-2] - 1)
            rest = ops.sub(mx.part(rest, others, (0, k)), _outer(column, row))
    return (ops.concat(solved if lower else solved[::-1], len(batch)),)


def solve_factored(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    """Two triangular systems, and the order of rows before or after."""
    _, packed, rows, b = operands
    transpose: bool = attrs["transpose"]
    unit = {"lower": True, "transpose": transpose, "unit_diagonal": True}
    plain = {"lower": False, "transpose": transpose, "unit_diagonal": False}
    if not transpose:
        return triangular_solve(plain, (packed, *triangular_solve(unit, (packed, mx.rows_at(b, rows)))))
    (x,) = triangular_solve(unit, (packed, *triangular_solve(plain, (packed, b))))
    return (_put_back(x, rows),)


def _put_back(x: Value, rows: Value) -> Value:
    """Row i of x at row rows[i]."""
    *batch, n, k = x.shape
    rank = len(batch)
    place = ops.iota(TensorType(x.shape, rows.dtype), rank)
    source = ops.broadcast(rows, x.shape, range(rank + 1))
    result = x
    for i in range(n):
        row, at = mx.part(x, (i, i + 1), (0, k)), mx.part(source, (i, i + 1), (0, k))
        here = ops.eq(place, ops.broadcast_to(at, x.shape))
        result = ops.select(here, ops.broadcast_to(row, x.shape), result)
    return result


FORMS: Final[dict[str, Form]] = {
    "cholesky": cholesky,
    "lu": lu,
    "triangular_solve": triangular_solve,
    "solve_factored": solve_factored,
}
"""Of operations that are no routines."""
