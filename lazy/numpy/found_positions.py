"""Where elements are that aren't 0, what is there, and positions in raveled arrays.

How many there are depends on data, so most of these functions evaluate their argument and raise TracedValueError while
tracing; with `size` they give as many positions as it says.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import DTypeError, IndexRangeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, bool_, int64
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, array_leaf, as_tensor, broadcast_value, cast_value, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import normal_axis, normal_shape, positions, whole_number
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "argwhere compress delete extract flatnonzero nonzero unravel_index"


def nonzero(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> tuple[Tensor, ...]:
    """The positions of elements that aren't 0: one int64 vector for each axis.

    Evaluates `x`, since the shape depends on it, and raises TracedValueError while tracing, unless `size` says how many
    positions to give (as in JAX): the first ones, then `fill_value` (0, a number, or one for each axis).

    >>> lg.nonzero(lg.asarray([[0, 5], [7, 0]]))
    (Tensor([0, 1], dtype=int64), Tensor([1, 0], dtype=int64))
    """
    if size is not None:
        return _some_positions(as_tensor(x), _known_count("nonzero", size), fill_value)
    positions = np.nonzero(to_numpy(as_tensor(x), "index"))
    return tuple([wrap(array_leaf(p)) for p in positions])


def _known_count(op: str, size: Any) -> int:
    count = whole_number(op, "a number as size", size)
    if count < 0:
        raise ShapeError(explained(op, "a size of at least 0", count, "pass how many to give"))
    return count


def _some_positions(x: Tensor, size: int, fill_value: Any) -> tuple[Tensor, ...]:
    """The first `size` positions of what isn't 0: up to the k-th there are k such elements."""
    shape = x._value.shape
    count = prod(shape)
    one = 0 if fill_value is None else fill_value
    fills = list(fill_value) if isinstance(fill_value, tuple | list) else [one] * len(shape)
    if len(fills) != len(shape):
        raise ShapeError(explained("nonzero", f"one fill_value, or {len(shape)}", fill_value, "pass one for each axis"))
    found, missing = _first_places(ops.reshape(x._value, (count,)), size)
    result = []
    for axis, fill in enumerate(fills):
        along = ops.mod(ops.floordiv(found, max(prod(shape[axis + 1 :]), 1)), max(shape[axis], 1))
        other = broadcast_value(cast_value(as_tensor(fill)._value, int64), (size,))
        result.append(wrap(ops.select(missing, other, along)))
    return tuple(result)


def _first_places(flat: Value, size: int) -> tuple[Value, Value]:
    """The first `size` places of a vector that aren't 0, and which of them there aren't."""
    nothing = ops.full(0, TensorType((size,), int64))
    if not flat.shape[0] or not size:
        return nothing, ops.full(True, TensorType((size,), bool_))
    there = cast_value(flat, bool_)
    so_far = emit("cumsum", (cast_value(there, int64),), {"axis": 0, "reverse": False})[0]
    behind = ops.full(size, TensorType(flat.shape, int64))  # the last: dropped
    target = ops.select(there, ops.sub(so_far, 1), behind)
    found = ops.scatter("set", nothing, [target], positions(flat.shape, 0))
    total = ops.slice(so_far, (flat.shape[0] - 1,), (flat.shape[0],))
    return found, ops.ge(positions((size,), 0), ops.broadcast_to(total, (size,)))


def _raveled(x: ArrayLike) -> Tensor:
    value = as_tensor(x)._value
    return wrap(ops.reshape(value, (prod(value.shape),)))


def flatnonzero(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> Tensor:
    """The positions in the raveled array of elements that aren't 0: an int64 vector. Evaluates, as `nonzero` does, or
    takes its options.

    >>> lg.flatnonzero(lg.asarray([0, 5, 7]))
    Tensor([1, 2], dtype=int64)
    """
    return nonzero(_raveled(x), size=size, fill_value=fill_value)[0]


def argwhere(x: ArrayLike, /, *, size: int | None = None, fill_value: Any = None) -> Tensor:
    """The positions of elements that aren't 0, one int64 row each: shape (count, rank). Evaluates, or takes
    the options that `nonzero` has.

    >>> lg.argwhere(lg.asarray([[0, 5], [7, 0]]))
    Tensor([[0, 1],
            [1, 0]], dtype=int64)
    """
    if size is not None:
        size = _known_count("argwhere", size)
        found = nonzero(x, size=size, fill_value=fill_value)
        columns = [ops.reshape(p._value, (size, 1)) for p in found]
        return wrap(ops.concat(columns, 1)) if columns else wrap(ops.full(0, TensorType((size, 0), int64)))
    return wrap(array_leaf(np.argwhere(to_numpy(as_tensor(x), "index"))))


@repeated
def extract(condition: ArrayLike, x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = 0) -> Tensor:
    """The elements of the raveled array where the condition holds: a vector of x's dtype.

    Evaluates the condition, as a mask does; raises TracedValueError while tracing, unless `size` says how many elements
    to give (as in JAX): the first ones, then `fill_value`.

    >>> lg.extract(lg.asarray([True, False, True]), lg.asarray([1.0, 2.0, 3.0]))
    Tensor([1., 3.], dtype=float64)
    """
    return compress(_raveled(condition), x, size=size, fill_value=fill_value)


@repeated
def compress(
    condition: ArrayLike, x: ArrayLike, /, axis: int | None = None, out: Out = None, *, size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Tensor:  # fmt: skip
    """The slices along an axis (None: of x raveled) for which a vector of conditions holds, of x's dtype.

    Evaluates the condition, as a mask does; raises TracedValueError while tracing, unless `size` says how many slices
    to give (as in JAX): the first ones, then such of `fill_value`. Raises ShapeError for conditions that aren't a
    vector, IndexRangeError where one holds beyond the end of the axis.

    >>> lg.compress([False, True], lg.asarray([[1, 2], [3, 4]]), axis=0)
    Tensor([[3, 4]], dtype=int64)
    """
    t = as_tensor(x) if axis is not None else _raveled(x)
    at = normal_axis("compress", axis or 0, len(t._value.shape))
    chosen, extent = as_tensor(condition)._value, t._value.shape[at]
    if len(chosen.shape) != 1:
        raise ShapeError(explained("compress", "a vector of conditions", chosen.type, "use x[mask], or ravel it"))
    if size is None:
        places = np.flatnonzero(to_numpy(wrap(chosen), "index"))
        if places.size and places[-1] >= extent:
            expected, fix = f"conditions that hold within the {extent} along the axis", "leave out those behind its end"
            raise IndexRangeError(explained("compress", expected, f"one at {places[-1]}", fix))
        return take(t, places, at, out)
    if chosen.shape[0] > extent:
        chosen = ops.slice(chosen, (0,), (extent,))  # nobody knows yet whether one holds behind the end
    found, missing = _first_places(chosen, _known_count("compress", size))
    taken = take(t, wrap(found), at)._value
    filling = broadcast_value(cast_value(as_tensor(fill_value)._value, taken.dtype), taken.shape)
    value = ops.select(ops.broadcast(missing, taken.shape, (at,)), filling, taken)
    return delivered("compress", wrap(value), out)


@repeated
def delete(x: ArrayLike, /, obj: Any, axis: int | None = None) -> Tensor:
    """x without the slices at the given positions along an axis (None: of x raveled).

    Positions are ints, a slice or a mask. They decide the shape, so a tensor of them is evaluated: raises DTypeError
    for one of a function that is being traced, IndexRangeError out of range.

    >>> lg.delete(lg.arange(5), [1, 3])
    Tensor([0, 2, 4], dtype=int64)
    """
    t = as_tensor(x)
    shape = t._value.shape
    extent = prod(shape) if axis is None else shape[normal_axis("delete", axis, len(shape))]
    if isinstance(obj, TensorCore) and obj._value.scope is None:
        obj = to_numpy(obj, "delete")
    if isinstance(obj, TensorCore):
        fix = "the result's shape must be known: pass Python ints, or choose with lg.where"
        raise DTypeError(explained("delete", "Python ints or a slice", obj._value.type, fix))
    try:
        kept = np.delete(np.arange(extent), obj)
    except IndexError:
        expected = f"positions from {-extent} to {extent - 1}"
        raise IndexRangeError(explained("delete", expected, obj, "check the bounds")) from None
    return take(t, kept, axis=axis)


@repeated
def unravel_index(indices: ArrayLike, shape: Any, order: str = "C") -> tuple[Tensor, ...]:
    """Positions in an array of that shape, raveled row by row (`order="C"`) or column by column ("F"), as one index per
    axis. Negative ones count from the end, and those out of range are clamped, as all that are data; Python's and
    NumPy's numbers raise ValueError for both. Raises ValueError for another order, DTypeError for positions that aren't
    integers.

    >>> lg.unravel_index(lg.asarray([1, 5]), (2, 3))
    (Tensor([0, 1], dtype=int64), Tensor([1, 2], dtype=int64))
    """
    rest = as_tensor(indices)._value
    found: list[Tensor] = []
    if not rest.dtype.is_integer:
        raise DTypeError(explained("unravel_index", "integers", rest.type, "convert with .astype first"))
    if order not in ("C", "F"):
        raise ValueError(explained("unravel_index", "order 'C' or 'F'", repr(order), "leave it out"))
    extents = normal_shape("unravel_index", shape)
    rest = _in_range("unravel_index", indices, rest, prod(extents))
    for extent in reversed(extents) if order == "C" else extents:
        found.append(wrap(ops.mod(rest, extent)))
        rest = ops.floordiv(rest, extent)
    return tuple(reversed(found)) if order == "C" else tuple(found)


def _in_range(op: str, given: ArrayLike, places: Value, count: int) -> Value:
    """The places brought into the range from 0 to count - 1, where they are data; others must be in it."""
    if not isinstance(given, TensorCore):
        known = np.asarray(given)
        if known.size and not (known.min() >= 0 and known.max() < count):
            fix = "check them, or the shape"
            raise ValueError(explained(op, f"positions from 0 to {count - 1}", given, fix))
        return cast_value(places, int64)
    wide = cast_value(places, int64)
    inside = ops.select(ops.lt(wide, 0), ops.add(wide, count), wide)
    return ops.min(ops.max(inside, 0), max(count - 1, 0))
