"""Factorisations of the matrices in the last two dims, one for each index of the dims before: library routines.

    cholesky           a: (..., n, n)                        ->  l; reads the lower triangle of a alone
    lu                 a: (..., m, n), k = min(m, n)         ->  packed: (..., m, n), swaps: int64 (..., k), rows: int64
                                                                 (..., m); a[rows] = l @ u, rows are swapped in turn
    triangular_solve   a: (..., n, n), b: (..., n, k)        ->  x: (..., n, k) with a @ x = b (a.T @ x = b); reads one
                                                                 triangle of a
    solve_factored     a, packed, rows: of lu(a), b          ->  x: (..., n, k) with a @ x = b (a.T @ x = b); a itself,
                                                                 there for derivatives, isn't read

A matrix that has no such factorisation (one that isn't positive definite, or holds a NaN) gives NaN in all elements of
its results. A singular one has an LU factorisation, with zeros on the diagonal of u, by which a solution divides.

The references are plain NumPy: they say what the routines mean, and do the work where no library does.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Kind,
    Primitive,
    Types,
    dtype_error,
    require_kinds,
    shape_error,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import TensorType, int64

KINDS: Final = "f"


# ---- types


def _matrices(op: str, value: Value) -> TensorType:
    type = tensor_type(op, value)
    require_kinds(op, type, KINDS)
    if type.dtype.bits < 32:
        raise dtype_error(op, "float32 or float64 elements", type, "cast the operand first")
    if len(type.shape) < 2:
        raise shape_error(op, "at least 2 dimensions", type, "a matrix has two axes")
    return type


def _square(op: str, value: Value) -> TensorType:
    type = _matrices(op, value)
    if type.shape[-1] != type.shape[-2]:
        raise shape_error(op, "square matrices", type, "the last two axes have the same extent")
    return type


def _infer_cholesky(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    return (_square("cholesky", operands[0]),)


def _infer_lu(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = _matrices("lu", operands[0])
    *batch, m, n = type.shape
    return (type, TensorType((*batch, min(m, n)), int64), TensorType((*batch, m), int64))


def _infer_triangular_solve(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = _square("triangular_solve", operands[0]), _matrices("triangular_solve", operands[1])
    if a.dtype is not b.dtype or a.shape[:-1] != b.shape[:-1]:
        raise shape_error(
            "triangular_solve", "shapes (..., N, N) and (..., N, K) of one dtype", types_text(operands), "broadcast"
        )
    return (b,)


def _infer_solve_factored(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = _square("solve", operands[0]), _matrices("solve", operands[3])
    if a.dtype is not b.dtype or a.shape[:-1] != b.shape[:-1]:
        raise shape_error("solve", "shapes (..., N, N) and (..., N, K) of one dtype", types_text(operands), "broadcast")
    return (b,)


# ---- references


def cholesky(attrs: Attrs, a: Array) -> tuple[Array]:
    return (whole_or_nan(each(np.linalg.cholesky, a, a)),)


def whole_or_nan(factors: Array) -> Array:
    """Triangular factors of which one element isn't a number are none: a NaN reaches the last element."""
    if factors.size:
        factors[np.isnan(factors[..., -1, -1])] = np.nan
    return factors


def each(factor: object, a: Array, like: Array) -> Array:
    """NumPy's factor of all matrices; where it refuses, that of each by itself, NaN for those it refuses."""
    try:
        whole: Array = factor(a)  # type: ignore[operator]
        return whole
    except np.linalg.LinAlgError:
        result = np.full_like(like, np.nan)
        for index in np.ndindex(a.shape[:-2]):
            try:
                result[index] = factor(a[index])  # type: ignore[operator]
            except np.linalg.LinAlgError:
                continue
        return result


def lu(attrs: Attrs, a: Array) -> tuple[Array, Array, Array]:
    """Column by column, the rows of all matrices at once."""
    *batch, m, n = a.shape
    packed, k = a.reshape(-1, m, n).copy(), min(m, n)
    count = len(packed)
    swaps = np.zeros((count, k), np.int64)
    rows = np.tile(np.arange(m), (count, 1))
    each_one = np.arange(count)
    with np.errstate(all="ignore"):
        for j in range(k):
            size = np.abs(packed[:, j:, j])
            swaps[:, j] = found = j + np.argmax(np.where(np.isnan(size), np.inf, size), axis=1)
            for held in (packed, rows):
                held[each_one, j], held[each_one, found] = held[each_one, found].copy(), held[each_one, j].copy()
            pivot = packed[:, j, j][:, None]
            packed[:, j + 1 :, j] = np.where(pivot == 0, packed[:, j + 1 :, j], packed[:, j + 1 :, j] / pivot)
            packed[:, j + 1 :, j + 1 :] -= packed[:, j + 1 :, j, None] * packed[:, j, None, j + 1 :]
    return packed.reshape(a.shape), swaps.reshape(*batch, k), rows.reshape(*batch, m)


def triangular_solve(attrs: Attrs, a: Array, b: Array) -> tuple[Array]:
    """Row by row, those of all matrices at once."""
    lower: bool = attrs["lower"]
    if attrs["transpose"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    n, x = a.shape[-1], b.copy()
    with np.errstate(all="ignore"):
        for i in range(n) if lower else range(n - 1, -1, -1):
            known = slice(0, i) if lower else slice(i + 1, n)
            x[..., i, :] -= np.einsum("...k,...kj->...j", a[..., i, known], x[..., known, :])
            if not attrs["unit_diagonal"]:
                x[..., i, :] /= a[..., i, i][..., None]
    return (x,)


def solve_factored(attrs: Attrs, a: Array, packed: Array, rows: Array, b: Array) -> tuple[Array]:
    """By the factors, of which `rows` says in which order the rows of `a` are theirs."""
    unit = {"lower": True, "transpose": attrs["transpose"], "unit_diagonal": True}
    plain = {"lower": False, "transpose": attrs["transpose"], "unit_diagonal": False}
    places = rows[..., None]
    if not attrs["transpose"]:
        (x,) = triangular_solve(unit, packed, np.take_along_axis(b, places, axis=-2))
        return triangular_solve(plain, packed, x)
    (x,) = triangular_solve(unit, packed, *triangular_solve(plain, packed, b))
    result = np.empty_like(x)
    np.put_along_axis(result, np.broadcast_to(places, x.shape), x, axis=-2)
    return (result,)


# ---- axes


def _batch_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Matrices don't meet, their elements do."""
    return axes if all(a < len(node.operands[operand].shape) - 2 for a in axes) else None


def _solve_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Columns of the right side, the last operand, don't meet either."""
    batch = len(node.results[0].shape) - 2
    right = operand == len(node.operands) - 1
    return axes if all(a < batch or (right and a == batch + 1) for a in axes) else None


def same(attrs: Attrs, size: int) -> Attrs:
    """The batched attributes of what works on the last axes."""
    return attrs


def matrices(shape: tuple[int, ...]) -> int:
    """How many there are."""
    return prod(shape[:-2])


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="cholesky", public=None, kind=Kind.LIBRARY, kinds=KINDS, infer=_infer_cholesky, reference=cholesky,
        axes=_batch_axes, batched=same, heavy=True,
    ),
    Primitive(
        name="lu", public=None, kind=Kind.LIBRARY, kinds=KINDS, infer=_infer_lu, reference=lu,
        axes=_batch_axes, batched=same, heavy=True,
    ),
    Primitive(
        name="triangular_solve", public=None, kind=Kind.LIBRARY, kinds=KINDS, infer=_infer_triangular_solve,
        reference=triangular_solve, axes=_solve_axes, batched=same, heavy=True,
    ),
    Primitive(
        name="solve_factored", public=None, kind=Kind.LIBRARY, kinds=KINDS, infer=_infer_solve_factored,
        reference=solve_factored, axes=_solve_axes, batched=same, heavy=True,
    ),
)  # fmt: skip
