"""Reductions, scans along an axis, and sorting.

reduce_*          attrs axes (sorted): those dims disappear, the dtype stays. Of no elements: sum 0,
                  prod 1, and True, or False; min and max are refused. A sum of floats is added up in
                  more digits than its dtype has, and rounded once; so is every element of cumsum.
argmin, argmax    attrs axis: int64, first occurrence, NaN wins; of no elements refused
cum*              attrs axis, reverse: inclusive; NaN propagates through cummin and cummax
sort, argsort     attrs axis: ascending, stable, NaN last; argsort gives int64
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Infer,
    Primitive,
    Reference,
    Types,
    added_in,
    axes_in_range,
    axis_in_range,
    require_kinds,
    shape_error,
    tensor_type,
)
from loopgrad.graph.types import DType, TensorType, int64

NumPyFunction = Callable[..., Any]


def _infer_reduce(op: str, kinds: str, has_identity: bool) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        axes: tuple[int, ...] = attrs["axes"]
        t = tensor_type(op, operands[0])
        require_kinds(op, t, kinds)
        axes_in_range(op, axes, len(t.shape))
        if not has_identity and any(t.shape[a] == 0 for a in axes):
            raise shape_error(op, "at least one element to reduce", f"{t} over axes {axes}", "handle the empty case")
        return (TensorType(tuple([n for d, n in enumerate(t.shape) if d not in axes]), t.dtype),)

    return infer


def _infer_arg(op: str, kinds: str) -> Infer:
    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        axis: int = attrs["axis"]
        t = tensor_type(op, operands[0])
        require_kinds(op, t, kinds)
        axis_in_range(op, axis, len(t.shape))
        if t.shape[axis] == 0:
            raise shape_error(op, "at least one element", f"{t} along axis {axis}", "handle the empty case")
        return (TensorType(t.shape[:axis] + t.shape[axis + 1 :], int64),)

    return infer


def _infer_along(op: str, kinds: str, dtype: DType | None = None) -> Infer:
    """One result of the operand's shape."""

    def infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
        t = tensor_type(op, operands[0])
        require_kinds(op, t, kinds)
        axis_in_range(op, attrs["axis"], len(t.shape))
        return (t if dtype is None else TensorType(t.shape, dtype),)

    return infer


def _reduce(ufunc: np.ufunc) -> Reference:
    def reference(attrs: Attrs, x: Array) -> tuple[Array]:
        with np.errstate(all="ignore"):
            return (np.asarray(ufunc.reduce(x, axis=attrs["axes"], dtype=x.dtype)),)

    return reference


def _sum(attrs: Attrs, x: Array) -> tuple[Array]:
    wide = added_in(x.dtype)
    with np.errstate(all="ignore"):
        if wide == x.dtype:
            return (np.asarray(np.add.reduce(x, axis=attrs["axes"], dtype=x.dtype)),)
        total = np.add.reduce(x.astype(wide), axis=attrs["axes"], initial=-0.0)  # 0.0 would end sums of -0.0
        return (np.asarray(total).astype(x.dtype),)


def _cumsum(attrs: Attrs, x: Array) -> tuple[Array]:
    (result,) = _accumulate(np.add)(attrs, x.astype(added_in(x.dtype), copy=False))
    with np.errstate(all="ignore"):
        return (np.asarray(result).astype(x.dtype, copy=False),)


def _arg(function: NumPyFunction) -> Reference:
    def reference(attrs: Attrs, x: Array) -> tuple[Array]:
        return (np.asarray(function(x, axis=attrs["axis"]), dtype=np.int64),)

    return reference


def _accumulate(ufunc: np.ufunc) -> Reference:
    def reference(attrs: Attrs, x: Array) -> tuple[Array]:
        axis = attrs["axis"]
        with np.errstate(all="ignore"):
            if attrs["reverse"]:
                return (np.flip(ufunc.accumulate(np.flip(x, axis), axis=axis, dtype=x.dtype), axis),)
            return (ufunc.accumulate(x, axis=axis, dtype=x.dtype),)

    return reference


def _ordered(x: Array) -> Array:
    """`x` in a dtype that NumPy sorts with NaN last: to ml_dtypes' bfloat16 NaN has no place."""
    return x.astype(np.float32) if x.dtype.kind == "V" else x


def _sort(attrs: Attrs, x: Array) -> tuple[Array]:
    return (np.sort(_ordered(x), axis=attrs["axis"], kind="stable").astype(x.dtype, copy=False),)


def _argsort(attrs: Attrs, x: Array) -> tuple[Array]:
    return (np.argsort(_ordered(x), axis=attrs["axis"], kind="stable").astype(np.int64, copy=False),)


# op -> (kinds of dtype allowed, ufunc, whether it has an identity)
REDUCE: Final[dict[str, tuple[str, np.ufunc, bool]]] = {
    "reduce_sum": ("iuf", np.add, True),
    "reduce_prod": ("iuf", np.multiply, True),
    "reduce_min": ("iuf", np.minimum, False),
    "reduce_max": ("iuf", np.maximum, False),
    "reduce_and": ("b", np.logical_and, True),
    "reduce_or": ("b", np.logical_or, True),
}

ACCUMULATE: Final[dict[str, tuple[str, np.ufunc]]] = {
    "cumsum": ("iuf", np.add),
    "cumprod": ("iuf", np.multiply),
    "cummax": ("iuf", np.maximum),
    "cummin": ("iuf", np.minimum),
}

ROWS: Final[dict[str, Primitive]] = {
    **{op: Primitive(_infer_reduce(op, kinds, known), _reduce(f)) for op, (kinds, f, known) in REDUCE.items()},
    **{op: Primitive(_infer_along(op, kinds), _accumulate(f)) for op, (kinds, f) in ACCUMULATE.items()},
    "reduce_sum": Primitive(_infer_reduce("reduce_sum", *REDUCE["reduce_sum"][::2]), _sum),
    "cumsum": Primitive(_infer_along("cumsum", ACCUMULATE["cumsum"][0]), _cumsum),
    "argmin": Primitive(_infer_arg("argmin", "biuf"), _arg(np.argmin)),
    "argmax": Primitive(_infer_arg("argmax", "biuf"), _arg(np.argmax)),
    "sort": Primitive(_infer_along("sort", "biuf"), _sort),
    "argsort": Primitive(_infer_along("argsort", "biuf", int64), _argsort),
}
