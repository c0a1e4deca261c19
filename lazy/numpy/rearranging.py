"""Choosing, inserting and ordering by NumPy's less usual functions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, IndexRangeError, ShapeError, explained
from loopgrad.graph.types import bool_, int64, uint8
from loopgrad.lazy.numpy.creation import arange, zeros
from loopgrad.lazy.numpy.elementwise import (
    add,
    bitwise_and,
    bitwise_left_shift,
    bitwise_right_shift,
    less,
    logical_and,
    logical_not,
    logical_or,
    remainder,
)
from loopgrad.lazy.numpy.elementwise_compositions import array_equal
from loopgrad.lazy.numpy.movement import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    stack,
)
from loopgrad.lazy.numpy.padding import pad
from loopgrad.lazy.numpy.positions_out_of_range import check_positions
from loopgrad.lazy.numpy.reduction import sum
from loopgrad.lazy.numpy.sorting import argsort, sort
from loopgrad.lazy.numpy.special_values import clip, isnan, where
from loopgrad.lazy.numpy.taking import take, take_along_axis
from loopgrad.lazy.tensor.blamed_arguments import blaming
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import as_bool, normal_axis, normal_shape
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "argpartition array_equiv choose insert packbits partition piecewise resize rollaxis unpackbits"
# elements of a row, their bits, and of how many finding them takes less than a sort
_LONG, _WIDE, _FEW = 1 << 16, 32, 4


@repeated
def partition(
    x: ArrayLike, /, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Tensor:
    """x with its k-th smallest elements along an axis (None: of x raveled) in their places, smaller ones before them,
    larger ones behind.

    Short rows are sorted, which is a partition for every k; in long ones the smaller, the equal and the larger elements
    keep their order, on all devices; `top_k` gives the largest few. Shape and dtype stay.
    Raises ShapeError for a k out of range, DTypeError for one that isn't an integer, ValueError for a `kind` or `order`
    of NumPy's other than these.

    >>> lg.partition(lg.asarray([3, 1, 2]), 1)[1]
    Tensor(2, dtype=int64)
    """
    places = _places("partition", x, kth, axis, kind, order)
    t, d = (ravel(x), 0) if axis is None else (as_tensor(x), axis)
    return take_along_axis(t, _apart(t, places, d), axis=d) if _are_few(t, places, d) else sort(t, axis=d)


@repeated
def argpartition(
    x: ArrayLike, /, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect", order: None = None
) -> Tensor:
    """The positions (int64) that give `partition(x, kth, axis)`, with its errors.

    >>> lg.argpartition(lg.asarray([3, 1, 2]), 0)[0]
    Tensor(1, dtype=int64)
    """
    places = _places("argpartition", x, kth, axis, kind, order)
    t, d = (ravel(x), 0) if axis is None else (as_tensor(x), axis)
    return _apart(t, places, d) if _are_few(t, places, d) else argsort(t, axis=d)


def _are_few(t: Tensor, places: Sequence[int], axis: int) -> bool:
    """Whether finding the elements at these places takes less than a sort."""
    dtype = t._value.dtype
    long = t._value.shape[axis] >= _LONG and dtype.bits >= _WIDE
    return long and 0 < len(places) <= _FEW and (dtype.is_integer or dtype.is_float)


def _apart(t: Tensor, places: Sequence[int], axis: int) -> Tensor:
    """Positions of the smaller, the equal and the larger elements than each of those at the places of sorted rows."""
    rows = moveaxis(t, axis, -1)
    ordered = sort(rows)
    parts: Tensor | int = 0
    for place in places:
        middle = ordered[..., place : place + 1]
        numbers, is_number = logical_not(isnan(rows)), logical_not(isnan(middle))
        smaller = logical_or(less(rows, middle), logical_and(numbers, logical_not(is_number)))
        larger = logical_or(less(middle, rows), logical_and(logical_not(numbers), is_number))
        parts = add(parts, cast(where(smaller, 0, where(larger, 2, 1)), uint8))
    return moveaxis(argsort(parts), -1, axis)


def _places(
    op: str, x: ArrayLike, kth: int | Sequence[int], axis: int | None, kind: Any, order: Any
) -> tuple[int, ...]:
    """The places that kth means, in their order; none where it isn't known what they are."""
    if kind != "introselect" or order is not None:
        got = f"{kind!r} and order {order!r}"
        raise ValueError(explained(op, "kind 'introselect' and no order of fields", got, "leave them out"))
    shape = as_tensor(x)._value.shape
    extent = prod(shape) if axis is None else shape[normal_axis(op, axis, len(shape))]
    found: set[int] | None = set()
    for k in kth if isinstance(kth, tuple | list) else (kth,):
        given = as_tensor(k)._value
        if not given.dtype.is_integer or len(given.shape) > 1:
            raise DTypeError(explained(op, "an integer k, or several", k, "pass Python ints"))
        if isinstance(k, TensorCore) and given.scope is not None:
            found = None
            continue
        known = np.ravel(to_numpy(k) if isinstance(k, TensorCore) else k)
        if not all(-extent <= i < extent for i in known):
            raise ShapeError(explained(op, f"a k from {-extent} to {extent - 1}", k, "choose one in range"))
        if found is not None:
            found.update([int(i) % extent for i in known])
    return tuple(sorted(found or ()))


@repeated
def choose(x: ArrayLike, /, choices: Sequence[ArrayLike] | ArrayLike, out: Out = None, mode: str = "raise") -> Tensor:
    """For each element of x, an integer k, the element of choices[k] in its place.

    All broadcast; choices are promoted to one dtype, the result's. `mode`: what is out of range is "wrap"ped, or
    "clip"ped, as it is under "raise" too where x is a tensor (as every index that is data), unless
    `lg.options(check_indices=True)`. Raises DTypeError for an x of floats, ValueError for another mode, and under
    "raise" for Python's and NumPy's numbers out of range.

    >>> lg.choose([0, 1, 0], [[1, 2, 3], [10, 20, 30]])
    Tensor([ 1, 20,  3], dtype=int64)
    """
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(explained("choose", "mode 'raise', 'wrap' or 'clip'", repr(mode), "pass one of them"))
    t, ways = as_tensor(x), [as_tensor(c) for c in choices]  # type: ignore[union-attr]
    if t._value.dtype.kind not in "biu":
        raise DTypeError(explained("choose", "integers", t._value.type, "convert with .astype(lg.int64)"))
    if not ways:
        raise ShapeError(explained("choose", "at least one choice", "none", "pass some"))
    shape = broadcast_shapes(t._value.shape, *[w._value.shape for w in ways])
    at = broadcast_to(cast(t, int64), shape)
    if mode == "wrap":
        at = remainder(at, len(ways))
    elif mode == "clip":
        at = clip(at, 0, len(ways) - 1)
    else:
        check_positions("choose", x, 0, len(ways) - 1, ValueError)
        at = where(at < 0, at - len(ways), at)  # none counts from the end
    table = stack([broadcast_to(w, shape) for w in ways])
    return delivered("choose", take_along_axis(table, expand_dims(at, 0), axis=0)[0], out)


@repeated
def piecewise(x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """What the function of the last condition that holds gives; a further function is for where none holds, else 0.

    A function is called with all of x (and `args`, `kw`) and chosen from, so for derivatives guard its argument; a
    number stands for itself. Conditions stretch to x's shape. The dtype is x's, as in NumPy. Raises ShapeError unless
    there are as many functions as conditions, or one more.

    >>> x = lg.asarray([-2.0, 0.5, 3.0])
    >>> lg.piecewise(x, [x < 0, x > 1], [lambda v: -v, 1.0, 0.0])
    Tensor([2., 0., 1.], dtype=float64)
    """
    t = as_tensor(x)
    alone = isinstance(condlist, bool) or not len(condlist) or not np.ndim(condlist[0])
    masks = [as_bool(c) for c in ([condlist] if alone and t._value.shape else condlist)]
    if len(funclist) not in (len(masks), len(masks) + 1):
        got = f"{len(masks)} conditions and {len(funclist)} functions"
        raise ShapeError(explained("piecewise", "as many functions as conditions, or one more", got, "pair them up"))
    made = [cast(as_tensor(f(t, *args, **kw) if callable(f) else f), t._value.dtype) for f in funclist]
    default = made.pop() if len(made) > len(masks) else as_tensor(0, t._value.dtype)
    result = broadcast_to(default, t._value.shape)
    for mask, value in zip(masks, made, strict=True):
        result = where(mask, value, result)
    return result


@repeated
def insert(x: ArrayLike, /, obj: Any, values: ArrayLike, axis: int | None = None) -> Tensor:
    """x with values before the given positions along an axis (None: of x raveled); x's dtype.

    A number as position takes all values along the axis, of several positions each has one of its own. Positions are
    ints, a slice, an array of them or a mask. They decide the order, so a tensor of them is evaluated: raises
    DTypeError for one of a function that is being traced, IndexRangeError out of range.

    >>> lg.insert(lg.asarray([1, 2, 3]), 1, [8, 9]), lg.insert(lg.asarray([1, 2, 3]), [0, 2], 7)
    (Tensor([1, 8, 9, 2, 3], dtype=int64), Tensor([7, 1, 2, 7, 3], dtype=int64))
    """
    if isinstance(obj, TensorCore) and obj._value.scope is None:
        obj = to_numpy(obj, "insert")
    if isinstance(obj, TensorCore):
        fix = "the order must be known: pass Python ints"
        raise DTypeError(explained("insert", "Python ints or a slice", obj._value.type, fix))
    t, new = as_tensor(x), as_tensor(values)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("insert", axis, len(t._value.shape))
    shape, rank = t._value.shape, len(t._value.shape)
    at = np.arange(shape[d])[obj] if isinstance(obj, slice) else np.asarray(obj)
    at = np.flatnonzero(at) if at.dtype == bool and at.ndim == 1 else at
    at = at.astype(np.int64) if not at.size or at.dtype.kind in "bu" else at
    if at.dtype.kind not in "iu":
        fix = "convert them with .astype(int)"
        raise DTypeError(explained("insert", "positions that are integers", repr(obj), fix))
    if not ((-shape[d] <= at) & (at <= shape[d])).all():
        expected = f"positions from {-shape[d]} to {shape[d]}"
        raise IndexRangeError(explained("insert", expected, obj, "check the bounds"))
    new = reshape(new, (1,) * (rank - len(new._value.shape)) + new._value.shape)
    if at.size == 1:
        if not at.ndim:
            new = moveaxis(new, 0, d)
        count = new._value.shape[d]
        at = np.repeat(at.reshape(-1), count)
    else:
        count = at.size
    new = broadcast_to(cast(new, t._value.dtype), (*shape[:d], count, *shape[d + 1 :]))
    order = np.insert(np.arange(shape[d]), at, np.arange(shape[d], shape[d] + count))
    return take(concat([t, new], axis=d), order, axis=d)


@repeated
def resize(x: ArrayLike, /, new_shape: Any) -> Tensor:
    """The elements of x row by row in another shape, from the first again if there are too few; zeros of none.

    The dtype stays.

    >>> lg.resize([1, 2, 3], (2, 2))
    Tensor([[1, 2],
            [3, 1]], dtype=int64)
    """
    t, target = ravel(x), normal_shape("resize", new_shape)
    count = t._value.shape[0]
    if not count:
        return zeros(target, dtype=t._value.dtype)
    return reshape(take(t, remainder(arange(prod(target)), count)), target)


@blaming
def rollaxis(x: ArrayLike, /, axis: int, start: int = 0) -> Tensor:
    """The axis moved before the one that is at `start`: a view. (`moveaxis` says where it is afterwards.)

    >>> lg.rollaxis(lg.ones((3, 4, 5)), 2).shape
    (5, 3, 4)
    """
    t = as_tensor(x)
    rank = len(t._value.shape)
    d = normal_axis("rollaxis", axis, rank)
    to = start + rank if start < 0 else start
    if not 0 <= to <= rank:
        raise ShapeError(explained("rollaxis", f"a start from {-rank} to {rank}", start, "choose one of the axes"))
    return moveaxis(t, d, to - 1 if d < to else to)


@repeated
def array_equiv(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """Whether x and y broadcast and are equal everywhere then, as a bool tensor of shape ().

    >>> lg.array_equiv([1, 1], 1), lg.array_equiv([1, 1], [1, 1, 1])
    (Tensor(True, dtype=bool), Tensor(False, dtype=bool))
    """
    try:
        a, b = broadcast_arrays(x, y)
    except ShapeError:
        return as_tensor(False)
    return array_equal(a, b)


# ---- bits


def _little(op: str, order: str) -> bool:
    if order not in ("big", "little"):
        raise ValueError(explained(op, "bitorder 'big' or 'little'", repr(order), "pass one of them"))
    return order == "little"


@repeated
def packbits(x: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Tensor:
    """Eight elements along an axis (None: of x raveled) that aren't 0 as the bits of a uint8; zeros fill up the last.

    The first is the highest bit, unless `bitorder` is "little". Raises DTypeError for floats, ValueError for another
    order.

    >>> lg.packbits([1, 0, 0, 0, 0, 0, 0, 1, 1])
    Tensor([129, 128], dtype=uint8)
    """
    t = as_tensor(x)
    if t._value.dtype.kind not in "biu":
        raise DTypeError(explained("packbits", "integers or bools", t._value.type, "compare them first"))
    little = _little("packbits", bitorder)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("packbits", axis, len(t._value.shape))
    bits = moveaxis(cast(cast(t, bool_), uint8), d, -1)
    missing = -bits._value.shape[-1] % 8
    bits = pad(bits, [*[(0, 0)] * (len(bits._value.shape) - 1), (0, missing)])
    rows = reshape(bits, (*bits._value.shape[:-1], bits._value.shape[-1] // 8, 8))
    places = cast(arange(8), uint8)
    shifted = bitwise_left_shift(rows, places if little else flip(places))
    return moveaxis(sum(shifted, axis=-1, dtype=uint8), -1, d).copy()


@repeated
def unpackbits(x: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Tensor:
    """The bits of uint8 elements along an axis (None: of x raveled) as elements 0 and 1: uint8.

    The highest bit comes first, unless `bitorder` is "little". `count`: how many to give, a negative one how many to
    leave out at the end; what is too many is filled up with zeros. Raises DTypeError for other dtypes, ValueError for
    another order.

    >>> lg.unpackbits(lg.asarray([129], dtype=lg.uint8))
    Tensor([1, 0, 0, 0, 0, 0, 0, 1], dtype=uint8)
    """
    t = as_tensor(x)
    if t._value.dtype is not uint8:
        raise DTypeError(explained("unpackbits", "uint8 elements", t._value.type, "convert with .astype(lg.uint8)"))
    little = _little("unpackbits", bitorder)
    if axis is None:
        t, axis = ravel(t), 0
    d = normal_axis("unpackbits", axis, len(t._value.shape))
    rows = moveaxis(t, d, -1)
    places = cast(arange(8), uint8)
    bits = bitwise_and(bitwise_right_shift(rows[..., None], places if little else flip(places)), 1)
    bits = reshape(bits, (*rows._value.shape[:-1], 8 * rows._value.shape[-1]))
    extent = bits._value.shape[-1]
    length = extent if count is None else extent + count if count < 0 else count
    if length < 0:
        raise ShapeError(explained("unpackbits", f"at most {extent} bits to leave out", count, "choose fewer"))
    bits = bits[..., :length]
    if length > extent:
        bits = pad(bits, [*[(0, 0)] * (len(bits._value.shape) - 1), (0, length - extent)])
    return moveaxis(bits, -1, d).copy()
