"""Reductions, running sums, sorting and searching.

`axis` is None (all), an int or a tuple. Sums of bools and integers are 64-bit, as in NumPy; `mean`,
`var` and `std` of integers compute in the default float. Reducing no elements: sum 0, prod 1, all
True, any False; min, max, argmin and argmax refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod as product_of
from typing import TYPE_CHECKING, Any

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, bool_, float32, int64
from loopgrad.lazy.core import ArrayLike, as_tensor, cast, cast_value, requested_dtype, wrap
from loopgrad.lazy.elementwise import (
    add,
    as_bool,
    divide,
    equal,
    exp,
    isinf,
    less,
    less_equal,
    log,
    logical_and,
    logical_or,
    multiply,
    not_equal,
    sqrt,
    subtract,
    where,
)
from loopgrad.lazy.movement import broadcast_to, flip, ravel, reshape
from loopgrad.lazy.operands import dtype_refused, normal_axes, normal_axis
from loopgrad.lazy.promotion import float_dtype, sum_dtype

if TYPE_CHECKING:
    from loopgrad.lazy.tensor import Tensor


def _reduced(op: str, value: Value, axis: Any, keepdims: bool) -> Value:
    axes = normal_axes(op, axis, len(value.shape))
    if not axes:
        return value
    result = emit(op, (value,), {"axes": axes})[0]
    if keepdims:
        result = ops.reshape(result, [1 if d in axes else n for d, n in enumerate(value.shape)])
    return result


def sum(x: ArrayLike, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum."""
    value = as_tensor(x)._value
    return wrap(_reduced("reduce_sum", cast_value(value, _wide(value, dtype)), axis, keepdims))


def prod(x: ArrayLike, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product."""
    value = as_tensor(x)._value
    return wrap(_reduced("reduce_prod", cast_value(value, _wide(value, dtype)), axis, keepdims))


def _wide(value: Value, dtype: Any) -> DType:
    return requested_dtype(dtype) or sum_dtype(value.dtype)


def _extremum(op: str, on_bool: str, name: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        value = as_tensor(x)._value
        return wrap(_reduced(on_bool if value.dtype is bool_ else op, value, axis, keepdims))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'smallest' if name == 'min' else 'largest'} element; NaN where any is NaN."
    return function


min = _extremum("reduce_min", "reduce_and", "min")
max = _extremum("reduce_max", "reduce_or", "max")


def all(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Whether every element is true (not 0)."""
    return wrap(_reduced("reduce_and", as_bool(x)._value, axis, keepdims))


def any(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """Whether some element is true (not 0)."""
    return wrap(_reduced("reduce_or", as_bool(x)._value, axis, keepdims))


def count_nonzero(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """How many elements are true (not 0)."""
    return sum(as_bool(x), axis=axis, keepdims=keepdims)


def mean(x: ArrayLike, /, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The mean; NaN of no elements."""
    value = as_tensor(x)._value
    work = requested_dtype(dtype) or float_dtype(value.dtype)
    axes = normal_axes("mean", axis, len(value.shape))
    count = product_of(value.shape[d] for d in axes)
    total = sum(cast(wrap(value), _accumulator(work)), axis=axes, keepdims=keepdims)
    return cast(divide(total, float(count)), work)


def _accumulator(dtype: DType) -> DType:
    """The dtype to add up in: 16-bit floats run out of digits."""
    return float32 if dtype.kind == "f" and dtype.bits == 16 else dtype


def var(
    x: ArrayLike, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """The variance; the sum of squares is divided by the count less `correction` (NumPy: `ddof`)."""
    value = as_tensor(x)._value
    axes = normal_axes("var", axis, len(value.shape))
    t = cast(wrap(value), float_dtype(value.dtype))
    count = product_of(value.shape[d] for d in axes) - (correction if ddof is None else ddof)
    gap = subtract(t, mean(t, axis=axes, keepdims=True))
    return divide(sum(multiply(gap, gap), axis=axes, keepdims=keepdims), float(count) if count > 0 else 0.0)


def std(
    x: ArrayLike, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False, ddof: float | None = None
) -> Tensor:
    """The standard deviation, the root of `var`."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof))


def logsumexp(x: ArrayLike, /, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) without overflow."""
    value = as_tensor(x)._value
    t = cast(wrap(value), float_dtype(value.dtype))
    top = wrap(emit("stop_gradient", (max(t, axis=axis, keepdims=True)._value,))[0])
    top = where(isinf(top), 0.0, top)
    total = log(sum(exp(subtract(t, top)), axis=axis, keepdims=True))
    result = add(total, top)
    return result if keepdims else reshape(result, max(t, axis=axis)._value.shape)


# ---- positions


def _position(op: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        t = as_tensor(x)
        rank = len(t._value.shape)
        if axis is None:
            result = wrap(emit(op, (ravel(t)._value,), {"axis": 0})[0])
            return reshape(result, (1,) * rank) if keepdims else result
        d = normal_axis(op, axis, rank)
        result = wrap(emit(op, (t._value,), {"axis": d})[0])
        return reshape(result, (*t._value.shape[:d], 1, *t._value.shape[d + 1 :])) if keepdims else result

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"The index of the {'smallest' if op == 'argmin' else 'largest'} element; the first of equals."
    return function


argmin = _position("argmin")
argmax = _position("argmax")


# ---- along an axis


def _running(op: str, widen: bool, text: str) -> Callable[..., Tensor]:
    def function(x: ArrayLike, /, axis: int | None = None, *, dtype: Any = None, reverse: bool = False) -> Tensor:
        t = as_tensor(x)
        if axis is None:
            t, axis = ravel(t), 0
        d = normal_axis(op, axis, len(t._value.shape))
        value = cast_value(t._value, _wide(t._value, dtype)) if widen else t._value
        if not widen and value.dtype is bool_:
            raise dtype_refused(op, "iuf", bool_)
        return wrap(emit(op, (value,), {"axis": d, "reverse": reverse})[0])

    function.__name__ = function.__qualname__ = op
    function.__doc__ = text
    return function


cumsum = _running("cumsum", True, "The running sum along an axis (of all elements where None).")
cumprod = _running("cumprod", True, "The running product along an axis (of all elements where None).")
cummax = _running("cummax", False, "The largest so far along an axis.")
cummin = _running("cummin", False, "The smallest so far along an axis.")


def diff(x: ArrayLike, /, n: int = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours along an axis, `n` times."""
    t = as_tensor(x)
    d = normal_axis("diff", axis, len(t._value.shape))
    for _ in range(n):
        shape = t._value.shape
        low, high = [0] * len(shape), list(shape)
        first, last = low.copy(), high.copy()
        first[d], last[d] = 1 if shape[d] else 0, shape[d] - 1 if shape[d] else 0
        t = subtract(wrap(ops.slice(t._value, first, high)), wrap(ops.slice(t._value, low, last)))
    return t


def sort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """Elements in order along an axis (None: of all), NaN last; always stable."""
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("sort", axis, len(t._value.shape))
    result = wrap(emit("sort", (t._value,), {"axis": d})[0])
    return flip(result, axis=d) if descending else result


def argsort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort along an axis; equal elements keep their order."""
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("argsort", axis, len(t._value.shape))
    if not descending:
        return wrap(emit("argsort", (t._value,), {"axis": d})[0])
    # sorting the reversed array and reversing the result keeps equal elements in their order
    backwards = wrap(emit("argsort", (flip(t, axis=d)._value,), {"axis": d})[0])
    return flip(subtract(t._value.shape[d] - 1, backwards), axis=d)


def searchsorted(a: ArrayLike, v: ArrayLike, /, side: str = "left") -> Tensor:
    """Where to insert `v` into the sorted vector `a` so that it stays sorted."""
    if side not in ("left", "right"):
        raise ValueError(explained("searchsorted", "side 'left' or 'right'", repr(side), "pass one of them"))
    table, keys = as_tensor(a), as_tensor(v)
    if len(table._value.shape) != 1:
        raise ShapeError(explained("searchsorted", "one dimension", table._value.type, "ravel it"))
    shape = keys._value.shape
    rows = broadcast_to(reshape(keys, (*shape, 1)), (*shape, table._value.shape[0]))
    # a count of smaller elements: no loop, and the table is short in practice
    before = less(table, rows) if side == "left" else less_equal(table, rows)
    if rows._value.dtype.kind == "f":  # NaN is sorted behind everything
        last = not_equal(rows, rows)
        before = logical_or(before, last if side == "right" else logical_and(last, equal(table, table)))
    return sum(cast(before, int64), axis=-1)
