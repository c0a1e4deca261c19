"""Reductions, scans along an axis, and sorting.

reduce_*          attrs axes (sorted): those dims disappear, the dtype stays. Of no elements: sum 0,
                  prod 1, and True, or False; min and max are refused. A sum of floats is added up in
                  more digits than its dtype has, and rounded once; so is every element of cumsum.
argmin, argmax    attrs axis: int64, first occurrence, NaN wins; of no elements refused
cum*              attrs axis, reverse: inclusive; NaN propagates through cummin and cummax
logcumsumexp      likewise: log(cumsum(exp(x))) without overflow
sort, argsort     attrs axis: ascending, stable, NaN last; argsort gives int64
top_positions     attrs axis, k: where the k largest are (int64), from the largest on; NaN first, equal ones in order
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import intervals
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Infer,
    Kind,
    Primitive,
    Reference,
    Silent,
    Types,
    added_in,
    always_exact,
    axes_after_batch,
    axes_in_range,
    axis_after_batch,
    axis_in_range,
    exact_of,
    require_kinds,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import DType, TensorType, int64

NumPyFunction = Callable[..., Any]
NUMBERS: Final = "iuf"
ADDED: Final = "iufc"
ORDERED: Final = "biuf"


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


def _infer_top(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    (t,) = _infer_along("top_positions", ORDERED, int64)(operands, attrs, regions)
    assert isinstance(t, TensorType)
    axis, k = attrs["axis"], attrs["k"]
    if not 0 <= k <= t.shape[axis]:
        fix = "choose a smaller k, or another axis"
        raise ShapeError(explained("top_positions", f"0 to {t.shape[axis]} elements", str(k), fix))
    return (TensorType((*t.shape[:axis], k, *t.shape[axis + 1 :]), int64),)


def _reduce(ufunc: np.ufunc) -> Reference:
    def reference(attrs: Attrs, x: Array) -> tuple[Array]:
        return (np.asarray(ufunc.reduce(x, axis=attrs["axes"], dtype=x.dtype)),)

    return Silent(reference)


def _sum(attrs: Attrs, x: Array) -> tuple[Array]:
    wide = added_in(x.dtype)
    with np.errstate(all="ignore"):
        if wide == x.dtype:
            return (np.asarray(np.add.reduce(x, axis=attrs["axes"], dtype=x.dtype)),)
        nothing = -0.0 if x.size else 0.0  # 0.0 would end sums of -0.0, and is the sum of no elements
        total = np.add.reduce(x.astype(wide), axis=attrs["axes"], initial=nothing)
        return (np.asarray(total).astype(x.dtype),)


def _cumsum(attrs: Attrs, x: Array) -> tuple[Array]:
    (result,) = _accumulate(np.add)(attrs, x.astype(added_in(x.dtype), copy=False))
    with np.errstate(all="ignore"):
        return (np.asarray(result).astype(x.dtype, copy=False),)


def _logcumsumexp(attrs: Attrs, x: Array) -> tuple[Array]:
    (result,) = _accumulate(np.logaddexp)(attrs, x.astype(added_in(x.dtype), copy=False))
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


def _top(attrs: Attrs, x: Array) -> tuple[Array]:
    """Sorting what is turned around, and turning the result, keeps equal elements in their order."""
    axis = attrs["axis"]
    (upwards,) = _argsort(attrs, np.flip(x, axis))
    order = x.shape[axis] - 1 - np.flip(upwards, axis)
    return (np.take(order, np.arange(attrs["k"]), axis=axis),)


# ---- where axes go


def _kept_axes(removed: Sequence[int], axes: Axes) -> Axes | None:
    if any(a in removed for a in axes):
        return None
    return tuple([a - sum(r < a for r in removed) for a in axes])


def _reduce_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    return _kept_axes(node.attrs["axes"], axes)


def _arg_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    return _kept_axes((node.attrs["axis"],), axes)


def _along_axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    return None if node.attrs["axis"] in axes else axes


# ---- the rows


def _fold(name: str, kinds: str, reference: Reference, combine: str, has_identity: bool, **traits: Any) -> Primitive:
    return Primitive(
        name=name, kind=Kind.REDUCTION, kinds=kinds, infer=_infer_reduce(name, kinds, has_identity),
        reference=reference, combine=combine, axes=_reduce_axes, batched=axes_after_batch, exact=exact_of("biu"),
        **traits,
    )  # fmt: skip


def _position(name: str, function: NumPyFunction, finds: str) -> Primitive:
    return Primitive(
        name=name, kind=Kind.REDUCTION, kinds=ORDERED, infer=_infer_arg(name, ORDERED), reference=_arg(function),
        interval=intervals.position, axes=_arg_axes, batched=axis_after_batch, not_differentiable="gives integers",
        heavy=True, exact=always_exact, finds=finds,
    )  # fmt: skip


def _running(name: str, reference: Reference, combine: str, kinds: str = NUMBERS, **traits: Any) -> Primitive:
    return Primitive(
        name=name, kind=Kind.RUNNING_TOTAL, kinds=kinds, infer=_infer_along(name, kinds), reference=reference,
        combine=combine, axes=_along_axes, batched=axis_after_batch, heavy=True, exact=exact_of("biu"), **traits,
    )  # fmt: skip


ROWS: Final[dict[str, Primitive]] = table(
    _fold("reduce_sum", ADDED, _sum, "add", True, public="sum", linear=True, interval=intervals.total),
    _fold("reduce_prod", NUMBERS, _reduce(np.multiply), "mul", True, public="prod"),
    _fold(
        "reduce_min", NUMBERS, _reduce(np.minimum), "min", False, public="min", linear=True,
        interval=intervals.moved,
    ),
    _fold(
        "reduce_max", NUMBERS, _reduce(np.maximum), "max", False, public="max", linear=True,
        interval=intervals.moved,
    ),
    _fold("reduce_and", "b", _reduce(np.logical_and), "and", True, public="all", not_differentiable="bools only"),
    _fold("reduce_or", "b", _reduce(np.logical_or), "or", True, public="any", not_differentiable="bools only"),
    _running("cumsum", _cumsum, "add", ADDED, linear=True, interval=intervals.running_total),
    _running("cumprod", _accumulate(np.multiply), "mul"),
    _running("logcumsumexp", _logcumsumexp, "logaddexp", "f"),
    _running("cummax", _accumulate(np.maximum), "max", linear=True, interval=intervals.moved),
    _running("cummin", _accumulate(np.minimum), "min", linear=True, interval=intervals.moved),
    _position("argmin", np.argmin, "reduce_min"),
    _position("argmax", np.argmax, "reduce_max"),
    Primitive(
        name="sort", kind=Kind.LIBRARY, kinds=ORDERED, infer=_infer_along("sort", ORDERED), reference=_sort,
        interval=intervals.moved, axes=_along_axes, batched=axis_after_batch, linear=True, heavy=True,
        exact=always_exact,
    ),
    Primitive(
        name="argsort", kind=Kind.LIBRARY, kinds=ORDERED, infer=_infer_along("argsort", ORDERED, int64),
        reference=_argsort, interval=intervals.position, axes=_along_axes, batched=axis_after_batch,
        not_differentiable="gives integers", heavy=True, exact=always_exact,
    ),
    Primitive(
        name="top_positions", public="top_k", kind=Kind.LIBRARY, kinds=ORDERED, infer=_infer_top, reference=_top,
        interval=intervals.position, axes=_along_axes, batched=axis_after_batch, not_differentiable="gives integers",
        heavy=True, exact=always_exact,
    ),
)  # fmt: skip
