"""Factorisations as LAPACK's functions leave them: library routines of devices whose libraries have these functions.

A matrix of ours lies by rows, and so is the transposed one to functions that take columns. Where that makes no
difference (`syevd`, `gesvd`, `trsm`) nothing is transposed, elsewhere (`potrf`, `getrf`, `geqrf`, `gesvdj`) operand or
results are, and whoever asks for the routine transposes, in kernels that compute these arrays anyway.

    potrf       t: (..., n, n)          ->  u: (..., n, n), failed: int32 (...): of cholesky(t.T), transposed; reads the
                                            upper triangle, and what is below the diagonal of u has no meaning
    getrf       t: (..., n, m)          ->  packed: (..., n, m), pivots: int32 (..., min(m, n)), counted from 1: of
                                            lu(t.T), transposed
    exchanged   swaps: int64 (..., k)   ->  rows: int64 (..., `rows`), of lu
    geqrf       t: (..., n, m)          ->  q: (..., k, m), r: (..., n, m): of qr(t.T), transposed; k = min(m, n), or m
                                            if it is `complete`; what is above the diagonal of r has no meaning
    syevd       a: (..., n, n)          ->  w: (..., n), v: (..., n, n), failed: int32 (...); the rows of v are the
                                            conjugate eigenvectors; without `vectors` no v; reads the lower triangle
    gesvd       a: (..., m, n), m <= n  ->  u, s, vh as of svd, failed: int32 (...); `full`, `vectors` as there
    gesvdj      a: (..., m, n), m <= n  ->  v: (..., m, m), s, w: (..., m, n), or (..., n, n) if it is `full`, failed:
                                            int32 (...): by rotations; svd(a) is conj(v.T), s, w; without `vectors`
                                            only s. Many small ones are `full`
    trsm        a, b                    ->  x, of triangular_solve

`failed` isn't 0 where the results of a matrix have no meaning. What comes of infinities and NaN isn't said.

E. Anderson et al., LAPACK Users' Guide, 1999.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import factorisations
from loopgrad.graph.primitives.factorisations import matrices_of, row, same, square_of
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Kind,
    Primitive,
    Types,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import TensorType, int32, int64

WHY: Final = "it is a part of a factorisation, which has a derivative"


# ---- types


def _failed(type: TensorType) -> TensorType:
    return TensorType(type.shape[:-2], int32)


def _infer_potrf(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = square_of("potrf", operands[0])
    return (type, _failed(type))


def _infer_getrf(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("getrf", operands[0])
    return (type, TensorType((*type.shape[:-2], min(type.shape[-2:])), int32))


def _infer_geqrf(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("geqrf", operands[0])
    *batch, n, m = type.shape
    return (TensorType((*batch, m if attrs["complete"] else min(m, n), m), type.dtype), type)


def _infer_syevd(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = square_of("syevd", operands[0])
    values = TensorType(type.shape[:-1], type.dtype.part)
    return (values, *([type] if attrs["vectors"] else []), _failed(type))


def _infer_gesvd(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("gesvd", operands[0])
    *batch, m, n = type.shape
    if m > n:
        raise shape_error("gesvd", "at most as many rows as columns", type, "transpose the matrix")
    values = TensorType((*batch, m), type.dtype.part)
    if not attrs["vectors"]:
        return (values, _failed(type))
    square = TensorType((*batch, m, m), type.dtype)
    return (square, values, TensorType((*batch, n if attrs["full"] else m, n), type.dtype), _failed(type))


def _infer_exchanged(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = tensor_type("exchanged", operands[0])
    if type.dtype is not int64 or not type.shape:
        raise shape_error("exchanged", "int64 of at least 1 dimension", type, "cast them")
    return (TensorType((*type.shape[:-1], attrs["rows"]), int64),)


def _rows_of_matrices(node: Node, operand: int, axes: Axes) -> Axes | None:
    return axes if all(a < len(node.operands[0].shape) - 1 for a in axes) else None


# ---- references


def _lost(*results: Array) -> Array:
    """Which matrices have NaN in one of these results."""
    rank = results[0].ndim - 2
    found = [np.isnan(x).reshape(*x.shape[:rank], -1).any(-1) for x in results]
    lost: Array = np.any(found, axis=0)
    return lost.astype(np.int32)


def potrf(attrs: Attrs, t: Array) -> tuple[Array, ...]:
    (factors,) = factorisations.cholesky({}, np.tril(np.swapaxes(t, -1, -2)))
    return np.swapaxes(factors, -1, -2), _lost(factors)


def getrf(attrs: Attrs, t: Array) -> tuple[Array, ...]:
    packed, swaps, _ = factorisations.lu({}, np.swapaxes(t, -1, -2))
    return np.swapaxes(packed, -1, -2), (swaps + 1).astype(np.int32)


def geqrf(attrs: Attrs, t: Array) -> tuple[Array, ...]:
    q, r = factorisations.qr(attrs, np.swapaxes(t, -1, -2))
    whole = np.zeros(t.shape, t.dtype)
    whole[..., :, : r.shape[-2]] = np.swapaxes(r, -1, -2)
    return np.swapaxes(q, -1, -2), whole


def syevd(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    w, *vectors = factorisations.eigh(attrs, a)
    return w, *[np.swapaxes(v.conj(), -1, -2) for v in vectors], _lost(w[..., None])


def gesvd(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    results = factorisations.svd(attrs, a)
    s = results[1] if attrs["vectors"] else results[0]
    return *results, _lost(s[..., None])


def gesvdj(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    *vectors, failed = gesvd(attrs, a)
    if not attrs["vectors"]:
        return *vectors, failed
    u, s, vh = vectors
    return np.swapaxes(u.conj(), -1, -2), s, vh, failed


def exchanged(attrs: Attrs, swaps: Array) -> tuple[Array]:
    *batch, k = swaps.shape
    flat = swaps.reshape(-1, k)
    rows = np.tile(np.arange(attrs["rows"]), (len(flat), 1))
    each = np.arange(len(flat))
    for j in range(k):
        rows[each, j], rows[each, flat[:, j]] = rows[each, flat[:, j]].copy(), rows[each, j].copy()
    return (rows.reshape(*batch, attrs["rows"]),)


ROWS: Final[dict[str, Primitive]] = table(
    row("potrf", _infer_potrf, potrf, not_differentiable=WHY),
    row("getrf", _infer_getrf, getrf, not_differentiable=WHY),
    row("geqrf", _infer_geqrf, geqrf, not_differentiable=WHY),
    row("syevd", _infer_syevd, syevd, not_differentiable=WHY),
    row("gesvd", _infer_gesvd, gesvd, not_differentiable=WHY),
    row("gesvdj", _infer_gesvd, gesvdj, not_differentiable=WHY),
    replace(factorisations.ROWS["triangular_solve"], name="trsm", not_differentiable=WHY),
    Primitive(
        name="exchanged", public=None, kind=Kind.LIBRARY, kinds="i", infer=_infer_exchanged, reference=exchanged,
        axes=_rows_of_matrices, batched=same, not_differentiable=WHY,
    ),
)  # fmt: skip
