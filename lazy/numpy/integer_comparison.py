"""Comparisons of integers that promotion alone would get wrong: with numbers that the other side's dtype can't hold,
and of signed integers with uint64, which promote to float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.primitives import PRIMITIVES, REFERENCE
from loopgrad.graph.ranges import bounds, limits
from loopgrad.graph.types import TensorType, bool_, int64, uint64
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, broadcast_value, cast_value, constant, open_integer, wrap
from loopgrad.lazy.tensor.operands import joined_shape

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


def exact_comparison(op: str, x: ArrayLike, y: ArrayLike) -> Tensor | None:
    """The result where an int lies outside the other side's dtype, or signed integers meet uint64; else None."""
    if open_integer(x) is not None and isinstance(y, TensorCore) and open_integer(y) is None:
        return exact_comparison(PRIMITIVES[op].mirrored, y, x)
    if not isinstance(x, TensorCore) or x._value.dtype.kind not in "iu":
        return None
    number = open_integer(y)
    if number is not None:
        low, high = limits(x._value.dtype)
        if low <= number <= high:
            return None
        answer = _holds(op, 1, 0) if number < low else _holds(op, 0, 1)
        shape = joined_shape(op, (x._value.shape, y._value.shape if isinstance(y, TensorCore) else ()))
        return wrap(constant(answer, TensorType(shape, bool_)))
    if not isinstance(y, TensorCore):
        return None
    wide = _wide_comparison(op, x, y)
    if wide is not None:
        return wide
    signs = x._value.dtype.kind + y._value.dtype.kind
    if x._value.dtype is uint64 and signs == "ui":
        return exact_comparison(PRIMITIVES[op].mirrored, y, x)
    if y._value.dtype is not uint64 or signs != "iu":
        return None
    shape = joined_shape(op, (x._value.shape, y._value.shape))
    a, b = broadcast_value(x._value, shape), broadcast_value(y._value, shape)
    unsigned = emit(op, (ops.cast(a, uint64), b))[0]
    below = constant(_holds(op, 0, 1), TensorType(shape, bool_))
    return wrap(ops.select(ops.lt(a, 0), below, unsigned))


def _holds(op: str, x: int, y: int) -> bool:
    (answer,) = REFERENCE[op]({}, np.asarray(x), np.asarray(y))
    return bool(answer)


def _wide_comparison(op: str, x: TensorCore, y: TensorCore) -> Tensor | None:
    """In int64, where one side is a number that was a Python int and need not fit the other side's dtype."""
    if x._weak is y._weak:
        return None
    number, other = (x._value, y._value) if x._weak else (y._value, x._value)
    if number.dtype is not int64 or other.dtype.kind not in "iu" or other.dtype.bits == 64:
        return None
    low, high = bounds(number)
    if limits(other.dtype)[0] <= low and high <= limits(other.dtype)[1]:
        return None
    shape = joined_shape(op, (x._value.shape, y._value.shape))
    return wrap(emit(op, [broadcast_value(cast_value(t._value, int64), shape) for t in (x, y)])[0])
