"""Linear algebra: matmul of (B..., M, K) with (B..., K, N), batch dims equal. K = 0 gives zeros; integers wrap."""

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


def _infer_matmul(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    a, b = tensor_type("matmul", operands[0]), tensor_type("matmul", operands[1])
    if a.dtype is not b.dtype:
        raise dtype_error("matmul", "operands of one dtype", types_text(operands), "cast one of them first")
    require_kinds("matmul", a, "iuf")
    if min(len(a.shape), len(b.shape)) < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise shape_error(
            "matmul", "shapes (..., M, K) and (..., K, N)", types_text(operands), "reshape or broadcast the operands"
        )
    return (sized("matmul", (*a.shape[:-1], b.shape[-1]), a.dtype),)


def _matmul(attrs: Attrs, a: Array, b: Array) -> tuple[Array]:
    with np.errstate(all="ignore"):
        if a.dtype.kind == "V":  # ml_dtypes types have no loop in np.matmul
            return (np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype),)
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
