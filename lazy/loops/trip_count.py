"""How often a counted loop runs, and the index that its body sees.

The graph's `for` counts from 0 to a trip count of int32 or int64; bounds have any integer dtype. The index is the
counter in the bounds' dtype plus the lower bound, which may wrap on the way and is right in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loopgrad.graph import ops
from loopgrad.graph.build import Scope
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.ranges import bounds, limits
from loopgrad.graph.types import DType, TensorType, int32, int64, uint32, uint64
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    as_tensor,
    broadcast_value,
    cast_value,
    constant,
    is_scalar,
    wrap,
)
from loopgrad.lazy.tensor.operands import joined_shape
from loopgrad.lazy.tensor.promotion import promote

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


def trip_count(lower: ArrayLike, upper: ArrayLike) -> tuple[Value, Callable[[Value], Tensor]]:
    """The trip count (int32 or int64), and what turns the counter into the loop's index."""
    if is_scalar(lower) and is_scalar(upper):
        start, stop = _python_bound(lower), _python_bound(upper)
        trips = constant(min(max(stop - start, 0), 2**63 - 1), TensorType((), int64))
        return trips, lambda k: _index(k, (start, stop), None, start, weak=True)
    low, high, weak = _bounds(lower, upper)
    dtype: DType = low.dtype
    first: int | None = _python_bound(lower) if is_scalar(lower) else None
    work = _count_dtype(dtype, first)
    shape = joined_shape("fori_loop", (low.shape, high.shape))
    span = (bounds(low)[0], bounds(high)[1])
    end = broadcast_value(cast_value(high, work), shape)
    if first == 0:
        return _signed_count(end), lambda k: _index(k, span, dtype, 0, weak)
    begin = broadcast_value(cast_value(low, work), shape)
    count = ops.select(ops.gt(end, begin), ops.sub(end, begin), ops.zeros_like(end))
    if work is int64 and first is None and dtype is int64:  # more than 2**63 - 1 trips: as many as there are
        count = ops.select(ops.lt(count, 0), ops.full(2**63 - 1, TensorType(shape, int64)), count)
    offset = broadcast_value(low, shape)
    return _signed_count(count), lambda k: _index(k, span, dtype, first if first is not None else offset, weak)


def _python_bound(bound: Any) -> int:
    if not isinstance(bound, int):
        fix = "NaN and fractions count nothing: use int(...)"
        raise DTypeError(explained("fori_loop", "integer bounds", repr(bound), fix))
    return int(bound)


def _bounds(lower: ArrayLike, upper: ArrayLike) -> tuple[Value, Value, bool]:
    """The bounds in one integer dtype, and whether that is open (all Python ints or weak)."""
    given = [_python_bound(b) if is_scalar(b) else _bound(b) for b in (lower, upper)]
    strong = [b._value.dtype for b in given if not isinstance(b, int) and not b._weak]
    dtype = int64
    if strong:
        dtype = promote(strong[0], strong[-1])
        smallest, largest = limits(dtype) if dtype.is_integer else (0, -1)
        if any(isinstance(b, int) and not smallest <= b <= largest for b in given) or dtype.kind == "f":
            dtype = int64
    low, high = [
        constant(b, TensorType((), dtype)) if isinstance(b, int) else cast_value(b._value, dtype) for b in given
    ]
    return low, high, not strong


def _bound(bound: ArrayLike) -> Tensor:
    t = as_tensor(bound)
    if t._value.dtype.kind not in "iu":
        fix = "round and convert it: lg.floor(x).astype(lg.int64) (NaN becomes 0, that is no trip)"
        raise DTypeError(explained("fori_loop", "integer bounds", t._value.type, fix))
    return t


def _count_dtype(dtype: DType, first: int | None) -> DType:
    """A dtype in which upper - lower is exact wherever it is positive."""
    if dtype.bits < 32:
        return int32
    if dtype is int32:
        return int32 if first is not None and first >= 0 else int64
    return int64 if dtype is uint32 else dtype


def _signed_count(count: Value) -> Value:
    if count.dtype is uint64:
        largest = ops.full(2**63 - 1, TensorType(count.shape, uint64))
        return ops.cast(ops.min(count, largest), int64)
    return count


def _index(k: Value, span: tuple[int, int], dtype: DType | None, offset: int | Value, weak: bool) -> Tensor:
    """The loop's index: the counter in the bound's dtype, plus the lower bound. `span`: between which numbers the
    lowest and the highest bound lie; no trip has an index outside."""
    value = k if dtype is None else ops.cast(k, dtype)
    if isinstance(offset, Value) or offset != 0:
        value = ops.add(value, offset)
    note_span(value, *span)
    return wrap(value, weak)


def note_span(index: Value, start: int, stop: int) -> None:
    """Note that start <= index < stop in every trip (of no trip anything may be said)."""
    assert isinstance(index.scope, Scope)
    index.scope.ranges[index] = (start, max(stop - 1, start))
