"""Factorisations by the functions of a device's library (`graph/primitives/lapack.py`), and what makes them ours: NaN
for matrices that have no factors, triangles, transposes. That is kernels, fused with what is around.

A library may go on for ever where a matrix holds a NaN; eigenvalues and singular values are asked of zeros then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

from loopgrad.codegen.factorisations import whole
from loopgrad.codegen.factorisations.in_lanes import Form
from loopgrad.codegen.factorisations.rotations import nan_where
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import complex64, complex128, float32, float64, int64


def cholesky(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    n = a.shape[-1]
    upper, failed = emit("potrf", (mx.transposed(a),), {})  # columns of lower triangles take half the time
    last = ops.reshape(mx.part(upper, (n - 1, n), (n - 1, n)), a.shape[:-2])
    return nan_where(ops.or_(ops.ne(failed, 0), ops.is_nan(mx.real(last))), [mx.lower(mx.transposed(upper))])


def lu(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    packed, pivots = emit("getrf", (mx.transposed(a),), {})
    swaps = ops.sub(ops.cast(pivots, int64), 1)
    return mx.transposed(packed), swaps, emit("exchanged", (swaps,), {"rows": a.shape[-2]})[0]


def qr(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    (a,) = operands
    m, n = a.shape[-2:]
    q, r = emit("geqrf", (mx.transposed(a),), {"complete": attrs["complete"]})
    kept = m if attrs["complete"] else min(m, n)
    return mx.transposed(q), mx.upper(mx.part(mx.transposed(r), (0, kept), (0, n)))


def eigh(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    lost, a = _finite(mx.lower(operands[0]))
    w, *vectors, failed = emit("syevd", (a,), {"vectors": attrs["vectors"]})
    return nan_where(ops.or_(lost, ops.ne(failed, 0)), [w, *map(mx.adjoint, vectors)])


def svd(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    lost, a = _finite(operands[0])
    tall, how = a.shape[-2] > a.shape[-1], {name: attrs[name] for name in ("full", "vectors")}
    *results, failed = _singular(mx.adjoint(a) if tall else a, how)
    if tall and attrs["vectors"]:
        u, s, vh = results
        results = [mx.adjoint(vh), s, mx.adjoint(u)]
    return nan_where(ops.or_(lost, ops.ne(failed, 0)), results)


def _singular(a: Value, how: Mapping[str, bool]) -> tuple[Value, ...]:
    """By rotations where that takes less time, on a GPU, for matrices that aren't large. They lose some hundred units
    in the last place, and take less time with twice the digits than what loses a few: so single ones have these."""
    *batch, m, n = a.shape
    together = prod(batch) > 1 and n <= MOST_ROTATED
    if n > LARGEST_ROTATED:
        return emit("gesvd", (a,), how)
    wide = a if together else ops.cast(a, TWICE.get(a.dtype, a.dtype))
    *results, failed = emit("gesvdj", (wide,), {**how, "full": together or how["full"]})
    if how["vectors"]:
        v, s, vh = results
        results = [mx.adjoint(v), s, mx.part(vh, (0, n if how["full"] else m), (0, n))]
    return (*[ops.cast(v, a.dtype.part if v.dtype.part is v.dtype else a.dtype) for v in results], failed)


def _finite(a: Value) -> tuple[Value, Value]:
    """Which matrices aren't, and the matrices with zeros in place of those."""
    rank = len(a.shape)
    size = mx.size(a)
    lost = ops.reduce_or(ops.or_(ops.is_nan(size), ops.is_inf(size)), (rank - 2, rank - 1))
    return lost, ops.select(ops.broadcast_leading(lost, a.shape), 0, a)


def triangular_solve(attrs: Mapping[str, Any], operands: Sequence[Value]) -> tuple[Value, ...]:
    how = {name: attrs[name] for name in ("lower", "transpose", "unit_diagonal")}
    return emit("trsm", operands, how)


MOST_ROTATED: Final = 32  # rows and columns of many matrices whose eigenvalues or singular values are one call
LARGEST_ROTATED: Final = 1024  # those of a matrix whose singular values are found by rotations
TWICE: Final = {float32: float64, complex64: complex128}
NEEDED: Final = "potrf"  # a library with this function has the others
FORMS: Final[dict[str, Form]] = {
    "cholesky": cholesky,
    "lu": lu,
    "qr": qr,
    "eigh": eigh,
    "svd": svd,
    "triangular_solve": triangular_solve,
    "solve_factored": whole.solve_factored,
}
