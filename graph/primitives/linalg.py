"""Linear algebra: matmul of (B..., M, K) with (B..., K, N), batch dims equal. K = 0 gives zeros; integers wrap.

Of 16-bit floats it adds up in float32 and rounds once. Scheduling makes such products with {dtype=float32}, which don't
round at all."""

from __future__ import annotations

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
    exact_of,
    require_kinds,
    shape_error,
    sized,
    table,
    tensor_type,
    types_text,
)
from loopgrad.graph.types import sum_dtype


def _infer_matmul(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = tensor_type("matmul", operands[0]), tensor_type("matmul", operands[1])
    if a.dtype is not b.dtype:
        raise dtype_error("matmul", "operands of one dtype", types_text(operands), "cast one of them first")
    require_kinds("matmul", a, "iuf")
    if min(len(a.shape), len(b.shape)) < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise shape_error(
            "matmul", "shapes (..., M, K) and (..., K, N)", types_text(operands), "reshape or broadcast the operands"
        )
    dtype = attrs.get("dtype", a.dtype)
    if dtype not in (a.dtype, sum_dtype(a.dtype)):
        fix = "leave the dtype out, and cast the result"
        raise dtype_error("matmul", f"dtype={sum_dtype(a.dtype)}, in which it adds up", f"dtype={dtype}", fix)
    return (sized("matmul", (*a.shape[:-1], b.shape[-1]), dtype),)


def _matmul(attrs: Attrs, a: Array, b: Array) -> tuple[Array]:
    """Of dense copies: how operands lie in memory decides in which order NumPy's BLAS adds up."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    with np.errstate(all="ignore"):
        if a.dtype.itemsize == 2 and a.dtype.kind in "fV":  # ml_dtypes types have no loop in np.matmul
            sums = np.matmul(a.astype(np.float32), b.astype(np.float32))
            return (sums if "dtype" in attrs else sums.astype(a.dtype),)
        return (np.matmul(a, b),)


def _axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    contracted = len(node.operands[operand].shape) - (1 if operand == 0 else 2)
    return None if contracted in axes else axes


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="matmul", kind=Kind.CONTRACTION, kinds="iuf", infer=_infer_matmul, reference=_matmul,
        axes=_axes, heavy=True, exact=exact_of("iu"),
    )
)  # fmt: skip
