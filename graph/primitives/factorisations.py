"""Factorisations of the matrices in the last two dims, one for each index of the dims before: library routines.

    cholesky           a: (..., n, n)                        ->  l; reads the lower triangle of a alone
    lu                 a: (..., m, n), k = min(m, n)         ->  packed: (..., m, n), swaps: int64 (..., k), rows: int64
                                                                 (..., m); a[rows] = l @ u, rows are swapped in turn
    triangular_solve   a: (..., n, n), b: (..., n, k)        ->  x: (..., n, k) with a @ x = b (a.T @ x = b); reads one
                                                                 triangle of a
    solve_factored     a, packed, rows: of lu(a), b          ->  x: (..., n, k) with a @ x = b (a.T @ x = b); a itself,
                                                                 there for derivatives, isn't read
    qr                 a: (..., m, n), k = min(m, n)         ->  q: (..., m, k), r: (..., k, n); with `complete` k = m
    eigh               a: (..., n, n)                        ->  w: (..., n) ascending, v: (..., n, n), a @ v = v * w;
                                                                 without `vectors` w alone; reads the lower triangle
    eig                a: (..., n, n)                        ->  complex w: (..., n) and v: (..., n, n), a @ v = v * w;
                                                                 without `vectors` w alone
    pinv               a: (..., m, n), ratio: (...)          ->  p: (..., n, m), of the singular values above
                                                                 ratio times the largest
    svd                a: (..., m, n), k = min(m, n)         ->  u: (..., m, k), s: (..., k) descending,
                                                                 vh: (..., k, n); u and vh square if `full`; s alone
                                                                 without `vectors`

A matrix that has no such factorisation (one that isn't positive definite, or holds a NaN) gives NaN in all elements of
its results. A singular one has an LU factorisation, with zeros on the diagonal of u, by which a solution divides.

The references are plain NumPy: they say what the routines mean, and do the work where no library does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    AxisRule,
    Infer,
    Kind,
    Primitive,
    Reference,
    Types,
    dtype_error,
    require_kinds,
    shape_error,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import StackType, TensorType, complex_dtype_of, int64

KINDS: Final = "fc"
COMPLEX: Final = "c"


# ---- types


def matrices_of(op: str, value: Value) -> TensorType:
    type = tensor_type(op, value)
    require_kinds(op, type, KINDS)
    if type.dtype.part.bits < 32:
        raise dtype_error(op, "parts of at least 32 bits", type, "cast the operand first")
    if len(type.shape) < 2:
        raise shape_error(op, "at least 2 dimensions", type, "a matrix has two axes")
    return type


def square_of(op: str, value: Value) -> TensorType:
    type = matrices_of(op, value)
    if type.shape[-1] != type.shape[-2]:
        raise shape_error(op, "square matrices", type, "the last two axes have the same extent")
    return type


def _infer_cholesky(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    return (square_of("cholesky", operands[0]),)


def _infer_lu(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("lu", operands[0])
    *batch, m, n = type.shape
    return (type, TensorType((*batch, min(m, n)), int64), TensorType((*batch, m), int64))


def _infer_triangular_solve(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = square_of("triangular_solve", operands[0]), matrices_of("triangular_solve", operands[1])
    if a.dtype is not b.dtype or a.shape[:-1] != b.shape[:-1]:
        raise shape_error(
            "triangular_solve", "shapes (..., N, N) and (..., N, K) of one dtype", types_text(operands), "broadcast"
        )
    return (b,)


def _infer_solve_factored(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = square_of("solve", operands[0]), matrices_of("solve", operands[3])
    if a.dtype is not b.dtype or a.shape[:-1] != b.shape[:-1]:
        raise shape_error("solve", "shapes (..., N, N) and (..., N, K) of one dtype", types_text(operands), "broadcast")
    return (b,)


def _infer_qr(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("qr", operands[0])
    *batch, m, n = type.shape
    k = m if attrs["complete"] else min(m, n)
    return (TensorType((*batch, m, k), type.dtype), TensorType((*batch, k, n), type.dtype))


def _infer_eigh(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = square_of("eigh", operands[0])
    values = TensorType(type.shape[:-1], type.dtype.part)
    return (values, type) if attrs["vectors"] else (values,)


def _infer_svd(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("svd", operands[0])
    *batch, m, n = type.shape
    k = min(m, n)
    values = TensorType((*batch, k), type.dtype.part)
    if not attrs["vectors"]:
        return (values,)
    rows, columns = (m, n) if attrs["full"] else (k, k)
    return (TensorType((*batch, m, rows), type.dtype), values, TensorType((*batch, columns, n), type.dtype))


def _infer_pinv(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = matrices_of("pinv", operands[0])
    *batch, m, n = type.shape
    if tensor_type("pinv", operands[1]) != TensorType(tuple(batch), type.dtype.part):
        raise shape_error("pinv", "a ratio for each matrix", types_text(operands), "broadcast")
    return (TensorType((*batch, n, m), type.dtype),)


def _infer_eig(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    type = square_of("eig", operands[0])
    dtype = type.dtype if type.dtype.kind == COMPLEX else complex_dtype_of(type.dtype)
    values = TensorType(type.shape[:-1], dtype)
    return (values, TensorType(type.shape, dtype)) if attrs["vectors"] else (values,)


# ---- pairs of reals for complex numbers: `pairs` says of which operands, "cr" of the first of two


def _of_pairs(infer: Infer) -> Infer:
    def inferred(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        if "pairs" not in attrs:
            return infer(operands, attrs, regions)
        kinds = attrs["pairs"]
        whole = [Value(joined_type(v.type)) if kind == COMPLEX else v for v, kind in zip(operands, kinds, strict=True)]
        return tuple([_apart(t) for t in infer(tuple(whole), attrs, regions)])

    return inferred


def joined_type(type: TensorType | StackType) -> TensorType:
    """Of the complex numbers that pairs of reals are."""
    assert isinstance(type, TensorType)
    return TensorType(type.shape[:-1], complex_dtype_of(type.dtype))


def _apart(type: TensorType | StackType) -> TensorType:
    assert isinstance(type, TensorType)
    return TensorType((*type.shape, 2), type.dtype.part) if type.dtype.kind == COMPLEX else type


def on_pairs(routine: Callable[..., tuple[Array, ...]]) -> Reference:
    """A routine on complex arrays as one that takes and gives pairs where the attributes say so."""

    def done(attrs: Attrs, *operands: Array) -> tuple[Array, ...]:
        if "pairs" not in attrs:
            return routine(attrs, *operands)
        kinds = attrs["pairs"]
        whole = [_whole(x) if kind == COMPLEX else x for x, kind in zip(operands, kinds, strict=True)]
        plain = {name: value for name, value in attrs.items() if name != "pairs"}
        return tuple([_parts(x) if x.dtype.kind == COMPLEX else x for x in routine(plain, *whole)])

    return done


def _whole(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.result_type(x.dtype, np.complex64))[..., 0]


def _parts(x: Array) -> Array:
    dense = np.ascontiguousarray(x)
    return dense.view(dense.real.dtype).reshape(*x.shape, 2)


# ---- references


def cholesky(attrs: Attrs, a: Array) -> tuple[Array]:
    (factors,) = each(lambda a: (np.linalg.cholesky(a),), a)
    return (whole_or_nan(factors),)


def whole_or_nan(factors: Array) -> Array:
    """Triangular factors of which one element isn't a number are none: a NaN reaches the last element."""
    if factors.size:
        factors[np.isnan(factors[..., -1, -1])] = np.nan
    return factors


def each(factor: Callable[[Array], tuple[Array, ...]], a: Array) -> tuple[Array, ...]:
    """NumPy's factors of all matrices; where it refuses, those of each by itself, NaN for those it refuses."""
    try:
        return factor(a)
    except np.linalg.LinAlgError:
        results = [np.broadcast_to(x, (*a.shape[:-2], *x.shape)).copy() for x in _nothing(factor, a)]
        for index in np.ndindex(a.shape[:-2]):
            with suppress(np.linalg.LinAlgError):
                for result, found in zip(results, factor(a[index]), strict=True):
                    result[index] = found
        return tuple(results)


def _nothing(factor: Callable[[Array], tuple[Array, ...]], a: Array) -> list[Array]:
    """NaN in the shapes of one matrix' factors."""
    return [np.full_like(x, np.nan) for x in factor(np.eye(*a.shape[-2:], dtype=a.dtype))]


def qr(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    return each(lambda a: tuple(np.linalg.qr(a, "complete" if attrs["complete"] else "reduced")), a)


def eigh(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    return each(lambda a: tuple(np.linalg.eigh(a)) if attrs["vectors"] else (np.linalg.eigvalsh(a),), a)


def eig(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    """NumPy gives reals where no value has an imaginary part."""
    wide = np.result_type(a.dtype, np.complex64)
    found = each(lambda a: tuple(np.linalg.eig(a)) if attrs["vectors"] else (np.linalg.eigvals(a),), a)
    return tuple([x.astype(wide) for x in found])


def pinv(attrs: Attrs, a: Array, ratio: Array) -> tuple[Array]:
    u, s, vh = svd({"full": False, "vectors": True}, a)
    with np.errstate(all="ignore"):
        kept = s > ratio[..., None] * np.max(s, axis=-1, keepdims=True, initial=0)
        inverse = np.where(kept, 1 / np.where(kept, s, 1), np.where(np.isnan(s), s, 0)).astype(s.dtype)
        return (np.swapaxes(vh.conj(), -1, -2) * inverse[..., None, :] @ np.swapaxes(u.conj(), -1, -2),)


def svd(attrs: Attrs, a: Array) -> tuple[Array, ...]:
    if not attrs["vectors"]:
        return each(lambda a: (np.linalg.svd(a, compute_uv=False),), a)
    return each(lambda a: tuple(np.linalg.svd(a, full_matrices=attrs["full"])), a)


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
            size = np.abs(packed[:, j:, j].real) + np.abs(packed[:, j:, j].imag)
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
    return axes if all(a < batch_rank(node) for a in axes) else None


def batch_rank(node: Node) -> int:
    """How many axes stand before those of the matrices."""
    kinds: str = node.attrs.get("pairs", "r")
    return len(node.operands[0].shape) - (3 if kinds[0] == COMPLEX else 2)


def extents(node: Node, operand: int) -> tuple[int, ...]:
    """Of the operand's matrices, or of its vectors."""
    shape = node.operands[operand].shape
    return shape[batch_rank(node) : len(shape) - (part_count(node, operand) > 1)]


def part_count(node: Node, operand: int) -> int:
    """Of one of the operand's numbers."""
    return 2 if node.attrs.get("pairs", "r" * len(node.operands))[operand] == COMPLEX else 1


def _solve_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """Columns of the right side, the last operand, don't meet either."""
    batch = batch_rank(node)
    right = operand == len(node.operands) - 1
    return axes if all(a < batch or (right and a == batch + 1) for a in axes) else None


def same(attrs: Attrs, size: int) -> Attrs:
    """The batched attributes of what works on the last axes."""
    return attrs


def matrices(shape: tuple[int, ...]) -> int:
    """How many there are."""
    return prod(shape[:-2])


def row(
    name: str,
    infer: Infer,
    reference: Callable[..., tuple[Array, ...]],
    axes: AxisRule = _batch_axes,
    not_differentiable: str = "",
) -> Primitive:
    return Primitive(
        name=name, public=None, kind=Kind.LIBRARY, kinds=KINDS, infer=_of_pairs(infer), reference=on_pairs(reference),
        axes=axes, batched=same, heavy=True, pairs=True, not_differentiable=not_differentiable,
    )  # fmt: skip


ROWS: Final[dict[str, Primitive]] = table(
    row("cholesky", _infer_cholesky, cholesky),
    row("qr", _infer_qr, qr),
    row("eigh", _infer_eigh, eigh),
    row("eig", _infer_eig, eig),
    row("svd", _infer_svd, svd),
    row("pinv", _infer_pinv, pinv),
    row("lu", _infer_lu, lu),
    row("triangular_solve", _infer_triangular_solve, triangular_solve, _solve_axes),
    row("solve_factored", _infer_solve_factored, solve_factored, _solve_axes),
)
