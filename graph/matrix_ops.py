"""Emitting what factorisations and their derivatives share: parts of the matrices in the last two dims."""

from __future__ import annotations

from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType, int32

NAN: Final = float("nan")


# ---- the primitives


def cholesky(a: Value) -> Value:
    return emit("cholesky", (a,))[0]


def lu(a: Value) -> tuple[Value, Value, Value]:
    """Packed factors, with which row each was exchanged in turn, and which row of `a` came to each place."""
    packed, swaps, rows = emit("lu", (a,))
    return packed, swaps, rows


def solve_triangular(a: Value, b: Value, *, lower: bool, transpose: bool = False, unit_diagonal: bool = False) -> Value:
    """x with a @ x = b, or a.T @ x = b; the other triangle of `a` isn't read."""
    attrs = {"lower": lower, "transpose": transpose, "unit_diagonal": unit_diagonal}
    return emit("triangular_solve", (a, b), attrs)[0]


def solve_factored(a: Value, packed: Value, rows: Value, b: Value, transpose: bool = False) -> Value:
    """x with a @ x = b, or a.T @ x = b, by what `lu(a)` gave."""
    return emit("solve_factored", (a, packed, rows, b), {"transpose": transpose})[0]


def solve(a: Value, b: Value) -> Value:
    """x with a @ x = b; (..., n, n) and (..., n, k)."""
    packed, _, rows = lu(a)
    return solve_factored(a, packed, rows, b)


# ---- parts


def transposed(v: Value) -> Value:
    rank = len(v.shape)
    return ops.transpose(v, (*range(rank - 2), rank - 1, rank - 2))


def part(v: Value, rows: tuple[int, int], columns: tuple[int, int]) -> Value:
    """v[..., rows[0]:rows[1], columns[0]:columns[1]]"""
    batch = v.shape[:-2]
    none = (0,) * len(batch)
    return ops.slice(v, (*none, rows[0], columns[0]), (*batch, rows[1], columns[1]))


def padded(v: Value, rows: tuple[int, int], columns: tuple[int, int]) -> Value:
    """With so many rows of zeros before and after, and columns."""
    none = (0,) * (len(v.shape) - 2)
    return ops.pad(v, (*none, rows[0], columns[0]), (*none, rows[1], columns[1]))


def diagonal(v: Value) -> Value:
    """The elements (..., i, i) of (..., m, n)."""
    *batch, m, n = v.shape
    k = min(m, n)
    on = _compared("eq", k, k, 0, batch)
    square = v if m == n else part(v, (0, k), (0, k))
    return ops.reduce_sum(ops.select(on, square, 0), (len(batch) + 1,))


def on_diagonal(v: Value) -> Value:
    """(..., k) as the diagonal of (..., k, k)."""
    *batch, k = v.shape
    wide = ops.broadcast(v, (*batch, k, k), range(len(batch) + 1))
    return ops.select(_compared("eq", k, k, 0, batch), wide, 0)


def lower(v: Value, offset: int = 0) -> Value:
    """On and below the diagonal that lies `offset` to the right, 0 elsewhere."""
    *batch, m, n = v.shape
    return ops.select(_compared("le", m, n, offset, batch), v, 0)


def upper(v: Value, offset: int = 0) -> Value:
    *batch, m, n = v.shape
    return ops.select(_compared("ge", m, n, offset, batch), v, 0)


def identity(batch: tuple[int, ...], n: int, dtype: DType) -> Value:
    """(*batch, n, n)"""
    zero = ops.full(0, TensorType((*batch, n, n), dtype))
    return ops.select(_compared("eq", n, n, 0, batch), ops.full(1, TensorType((*batch, n, n), dtype)), zero)


def unit_lower(packed: Value) -> Value:
    """The (..., m, m) factor with ones on its diagonal that lies below the diagonal of (..., m, n)."""
    *batch, m, n = packed.shape
    if n < m:
        packed = padded(packed, (0, 0), (0, m - n))
    elif n > m:
        packed = part(packed, (0, m), (0, m))
    return ops.add(lower(packed, -1), identity(tuple(batch), m, packed.dtype))


def rows_at(v: Value, rows: Value) -> Value:
    """v[..., rows, :] for each matrix by itself."""
    batch = v.shape[:-2]
    index = (*batch, rows.shape[-1])
    own = [ops.iota(TensorType(index, rows.dtype), d) for d in range(len(batch))]
    return ops.gather(v, *own, rows)


def rows_back(v: Value, rows: Value) -> Value:
    """What `rows_at` undoes: row i of (..., m, n) comes to row rows[i]."""
    batch = v.shape[:-2]
    own = [ops.iota(TensorType(rows.shape, rows.dtype), d) for d in range(len(batch))]
    return ops.scatter("add", ops.zeros_like(v), [*own, rows], v)


def _compared(op: str, m: int, n: int, offset: int, batch: object) -> Value:
    """Whether column - row is, in this sense, compared with `offset`."""
    shape = (*batch, m, n)  # type: ignore[misc]
    rank = len(shape)
    row, column = (ops.iota(TensorType(shape, int32), d) for d in (rank - 2, rank - 1))
    return emit(op, (column, ops.add(row, offset) if offset else row))[0]
