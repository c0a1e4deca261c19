"""Emitting what factorisations and their derivatives share: parts of the matrices in the last two dims."""

from __future__ import annotations

from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.graph.complex_numbers.table import computed
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType, int32

NAN: Final = float("nan")


# ---- numbers, complex ones too: arithmetic of these is that of parts


def mul(a: Value, b: Value | float) -> Value:
    """A product; of a complex and a real one too."""
    if not isinstance(b, Value) or a.dtype.kind != b.dtype.kind:
        if isinstance(b, Value) and b.dtype.kind == "c":
            a, b = b, a
        if a.dtype.kind == "c":
            return ops.join(ops.mul(ops.real(a), b), ops.mul(ops.imag(a), b))
        return ops.mul(a, b)
    return computed("mul", a, b)


def div(a: Value, b: Value) -> Value:
    return computed("div", a, b)


def absolute(v: Value) -> Value:
    return computed("abs", v)


def over_real(v: Value, by: Value) -> Value:
    """Divided by real numbers."""
    if v.dtype.kind != "c":
        return ops.div(v, by)
    return ops.join(ops.div(ops.real(v), by), ops.div(ops.imag(v), by))


def size(v: Value) -> Value:
    """By which rows are exchanged: absolute values, of complex numbers the sum of those of the parts, as in LAPACK."""
    return ops.add(ops.abs(ops.real(v)), ops.abs(ops.imag(v))) if v.dtype.kind == "c" else ops.abs(v)


def real_first(column: Value) -> Value:
    """Without the imaginary part of the first of (..., m, 1)."""
    first = ops.eq(ops.iota(TensorType(column.shape, int32), len(column.shape) - 2), 0)
    return ops.join(ops.real(column), ops.select(first, 0, ops.imag(column)))


def squared(v: Value) -> Value:
    """Squares of absolute values."""
    if v.dtype.kind != "c":
        return ops.mul(v, v)
    re, im = ops.real(v), ops.imag(v)
    return ops.add(ops.mul(re, re), ops.mul(im, im))


def conj(v: Value) -> Value:
    return conjugate(v) if v.dtype.kind == "c" else v


def real(v: Value) -> Value:
    return ops.real(v) if v.dtype.kind == "c" else v


def adjoint(v: Value) -> Value:
    """The transpose, complex conjugated."""
    return conj(transposed(v))


def hermitian_of_lower(v: Value) -> Value:
    """The symmetric or Hermitian matrices whose lower triangles these are, without imaginary parts on the diagonal."""
    return _of_real_diagonal(ops.add(lower(v), adjoint(lower(v, -1))))


def to_lower(v: Value) -> Value:
    """The transpose of `hermitian_of_lower`, for derivatives."""
    return _of_real_diagonal(ops.add(lower(v), adjoint(upper(v, 1))))


def _of_real_diagonal(v: Value) -> Value:
    if v.dtype.kind != "c":
        return v
    *batch, n, _ = v.shape
    return ops.join(ops.real(v), ops.select(_compared("eq", n, n, 0, batch), 0, ops.imag(v)))


def imaginary_diagonal(v: Value) -> Value:
    """The imaginary parts on the diagonal alone, as complex matrices."""
    imaginary = on_diagonal(diagonal(ops.imag(v)))
    return ops.join(ops.zeros_like(imaginary), imaginary)


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


def qr(a: Value, complete: bool = False) -> tuple[Value, Value]:
    q, r = emit("qr", (a,), {"complete": complete})
    return q, r


def eigh(a: Value) -> tuple[Value, Value]:
    w, v = emit("eigh", (a,), {"vectors": True})
    return w, v


def eigvalsh(a: Value) -> Value:
    return emit("eigh", (a,), {"vectors": False})[0]


def svd(a: Value, full: bool = False) -> tuple[Value, Value, Value]:
    """u, s and the transpose of v."""
    u, s, vh = emit("svd", (a,), {"full": full, "vectors": True})
    return u, s, vh


def pinv(a: Value, ratio: Value) -> Value:
    """The pseudo-inverse by the singular values above `ratio` times the largest; a ratio for each matrix."""
    return emit("pinv", (a, ratio))[0]


def svdvals(a: Value) -> Value:
    return emit("svd", (a,), {"full": False, "vectors": False})[0]


def solve_adjoint(a: Value, b: Value, *, lower: bool, transpose: bool = False, unit_diagonal: bool = False) -> Value:
    """As `solve_triangular` of the adjoint of the matrix."""
    x = solve_triangular(a, conj(b), lower=lower, transpose=not transpose, unit_diagonal=unit_diagonal)
    return conj(x)


def eig(a: Value) -> tuple[Value, Value]:
    w, v = emit("eig", (a,), {"vectors": True})
    return w, v


def eigvals(a: Value) -> Value:
    return emit("eig", (a,), {"vectors": False})[0]


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


def scaled_columns(v: Value, by: Value) -> Value:
    """v * by[..., None, :]"""
    return mul(v, ops.broadcast(by, v.shape, (*range(len(v.shape) - 2), len(v.shape) - 1)))


def scaled_rows(v: Value, by: Value) -> Value:
    """v * by[..., :, None]"""
    return mul(v, ops.broadcast_leading(by, v.shape))


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


def diagonal_alone(v: Value) -> Value:
    """On the diagonal, 0 elsewhere."""
    *batch, m, n = v.shape
    return ops.select(_compared("eq", m, n, 0, batch), v, 0)


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
