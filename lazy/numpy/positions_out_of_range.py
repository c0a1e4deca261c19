"""What becomes of positions that are out of range where the caller says so, by JAX's words.

    x.at[i].get(mode="fill", fill_value=v), take(x, i, mode="fill", fill_value=v)    v there
    x.at[i].get(mode="clip"), x.at[i].set(y, mode="clip")                            the nearest element
    x.at[i].set(y, mode="drop")                                                      nothing is written

Negative positions count from the end before that. Without a mode an int that is out of range raises; with one it is a
position like any other.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, IndexRangeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType
from loopgrad.lazy.numpy.indexing import IndexPlan, plan_index, read
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, broadcast_value, cast_operand, wrap
from loopgrad.lazy.tensor.operands import Shape
from loopgrad.lazy.tensor.promotion import promote, promote_weak

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

_FILLED: Final = ("fill", "drop")
_MODES: Final = ("clip", "promise_in_bounds", *_FILLED)


def check_mode(op: str, mode: str | None) -> None:
    """Raises ValueError for a mode that isn't JAX's."""
    if mode is not None and mode not in _MODES:
        raise ValueError(explained(op, f"a mode among {', '.join(_MODES)}", repr(mode), "pass one of them"))


def check_positions(op: str, positions: Any, low: int, high: int, error: type[Exception] = IndexRangeError) -> None:
    """Raises an error for positions that are known (Python's and NumPy's numbers, no tensors) and none of low, ...,
    high; those of tensors are data."""
    if isinstance(positions, TensorCore):
        return
    try:
        known = np.asarray(positions)
    except (TypeError, ValueError):  # tensors among them, or what is refused elsewhere
        return
    if known.dtype.kind not in "iu" or not known.size or (known.min() >= low and known.max() <= high):
        return
    expected, got = f"positions from {low} to {high}", int(known[(known < low) | (known > high)][0])
    raise error(explained(op, expected, got, "check the bounds, or pass mode='clip' or 'wrap'"))


def reading_mode(op: str, mode: str | None, fill_value: ArrayLike | None) -> str | None:
    """The mode of a read: a `fill_value` alone means "fill", as in JAX; raises ValueError where it would go unread."""
    if fill_value is None or mode in _FILLED:
        return mode
    if mode is not None:
        expected = f"mode 'fill', which reads fill_value={fill_value!r}"
        raise ValueError(explained(op, expected, repr(mode), "leave out the mode, or the fill_value"))
    return "fill"


def read_by_mode(op: str, x: Tensor, index: Any, mode: str | None, fill_value: ArrayLike | None) -> Tensor:
    """`x[index]`, and what the mode says where a position is out of range."""
    check_mode(op, mode)
    plan = plan_index(x._value.shape, _positions(index))
    if mode not in _FILLED or not plan.axes:
        return wrap(read(x._value, plan))
    usual = _usual_fill(x._value.dtype) if fill_value is None else fill_value
    other = broadcast_value(_fill(op, usual, x._value.dtype), plan.shape)
    if not prod(_base(x._value.shape, plan)):
        return wrap(other)
    return wrap(ops.select(_inside(x._value.shape, plan), read(x._value, plan), other))


def plan_by_mode(op: str, shape: Shape, index: Any, mode: str | None) -> IndexPlan:
    """Where an update goes: what is out of range is dropped, but "clip" brings it to the nearest element."""
    check_mode(op, mode)
    if mode is None:
        return plan_index(shape, index)
    plan = plan_index(shape, _positions(index))
    if mode != "clip":
        return plan
    extents = [_base(shape, plan)[axis] for axis in plan.axes]
    nearest = [ops.min(ops.max(i, 0), max(n - 1, 0)) for i, n in zip(plan.indices, extents, strict=True)]
    return replace(plan, indices=tuple(nearest))


def _positions(index: Any) -> Any:
    """Ints of a subscript as data, whose range isn't checked."""
    items = index if isinstance(index, tuple) else (index,)
    whole = (int, np.integer)
    return tuple([as_tensor(int(i)) if isinstance(i, whole) and not isinstance(i, bool) else i for i in items])


def _base(shape: Shape, plan: IndexPlan) -> Shape:
    return shape if plan.widened is None else plan.widened


def _inside(shape: Shape, plan: IndexPlan) -> Value:
    """For each element that a plan reads, whether its positions are in range."""
    base, lanes = _base(shape, plan), plan.indices[0].shape
    inside: Value | None = None
    for axis, place in zip(plan.axes, plan.indices, strict=True):
        there = ops.and_(ops.ge(place, 0), ops.lt(place, base[axis]))
        inside = there if inside is None else ops.and_(inside, there)
    assert inside is not None
    kept = len(plan.expanded) - len(lanes)
    spread = ops.transpose(ops.reshape(inside, (*lanes, *[1] * kept)), plan.perm)
    return ops.broadcast_to(spread, plan.shape)


def _fill(op: str, fill_value: ArrayLike, dtype: DType) -> Value:
    t = as_tensor(fill_value)
    joined = promote_weak(dtype, t._value.dtype) if t._weak else promote(dtype, t._value.dtype)
    if joined is not dtype:
        fix = "convert one of them with .astype"
        raise DTypeError(explained(op, f"a fill_value that fits {dtype}", f"{t._value.dtype} elements", fix))
    return cast_operand(t, dtype)


def _usual_fill(dtype: DType) -> Any:
    """JAX's: NaN, the smallest signed or the largest unsigned integer, True."""
    match dtype.kind:
        case "i":
            return -(2 ** (dtype.bits - 1))
        case "u":
            return 2**dtype.bits - 1
        case "b":
            return True
    return float("nan")
