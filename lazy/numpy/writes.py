"""NumPy's functions that write to an array: to it, and to all that shares its memory, as `x[i] = v` does.

What isn't an array to write to (a list, a number) is refused with TypeError.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.creation import arange, copy
from loopgrad.lazy.numpy.elementwise import add, maximum, multiply, remainder, subtract
from loopgrad.lazy.numpy.found_positions import unravel_index
from loopgrad.lazy.numpy.movement import broadcast_to, ravel, reshape
from loopgrad.lazy.numpy.positions_out_of_range import check_positions
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.numpy.taking import along_axis, take
from loopgrad.lazy.numpy.views_and_assignment import set_item
from loopgrad.lazy.tensor.blamed_arguments import blaming
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_bool, as_mask
from loopgrad.lazy.tensor.outputs import assign
from loopgrad.lazy.tensor.storage import written_to

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "copyto fill_diagonal place put put_along_axis putmask"


def _target(op: str, x: Any) -> Tensor:
    if not isinstance(x, TensorCore):
        raise TypeError(explained(op, "a tensor to write to", type(x).__name__, "make one with lg.asarray"))
    written_to(op, as_tensor(x))
    return as_tensor(x)


@blaming
def copyto(dst: Tensor, src: ArrayLike, casting: str = "same_kind", where: ArrayLike = True) -> None:
    """Writes `src`, which stretches to the shape of `dst`, to `dst` where the mask holds.

    Raises DTypeError where the kind of `src` is higher (unless `casting` is "unsafe"), ShapeError where it doesn't
    stretch.

    >>> x = lg.zeros(3)
    >>> lg.copyto(x, 5.0, where=[True, False, True])
    >>> x
    Tensor([5., 0., 5.], dtype=float64)
    """
    t, new = _target("copyto", dst), as_tensor(src)
    if casting not in ("same_kind", "unsafe"):
        fix = "convert the values with .astype"
        raise ValueError(explained("copyto", "casting 'same_kind' or 'unsafe'", repr(casting), fix))
    if casting == "unsafe" or new._weak:
        new = cast(new, t._value.dtype)
    new = broadcast_to(new, t._value.shape)
    if where is not True:
        new = _chosen(broadcast_to(as_mask("copyto", where), t._value.shape), new, t)
    assign("copyto", t, new)


def _chosen(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return where(mask, new, old)


def _cycled(values: ArrayLike, places: Tensor, like: Tensor) -> Tensor:
    """The values at places that begin anew behind the last, in the dtype of what they are written to."""
    row = cast(ravel(values), like._value.dtype)
    return take(row, remainder(places, max(row._value.shape[0], 1)))


def _some(op: str, values: ArrayLike) -> None:
    if not prod(as_tensor(values)._value.shape):
        raise ValueError(explained(op, "at least one value", "none", "pass some"))


@blaming
def place(arr: Tensor, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Tensor | None:
    """Writes the first n of `vals` to the n elements of `arr` where the mask (of its shape) holds, from the start again
    if there are fewer.

    Raises ValueError for no values, ShapeError for a mask of another size.

    `inplace=False` leaves `arr` as it is and returns a copy with the values, as in JAX.

    >>> x = lg.zeros(4)
    >>> lg.place(x, [True, False, True, True], [1.0, 2.0])
    >>> x
    Tensor([1., 0., 2., 1.], dtype=float64)
    """
    if not inplace:
        new = copy(arr)
        place(new, mask, vals)
        return new
    t, chosen = _target("place", arr), _mask("place", arr, mask)
    _some("place", vals)
    counted = subtract(cumsum(ravel(chosen)), 1)
    new = _cycled(vals, reshape(maximum(counted, 0), t._value.shape), t)
    assign("place", t, where(chosen, new, t))
    return None


def _mask(op: str, x: Tensor, mask: ArrayLike) -> Tensor:
    chosen = as_bool(mask)
    if prod(chosen._value.shape) != prod(x._value.shape):
        raise ShapeError(explained(op, f"a mask of shape {x._value.shape}", chosen._value.type, "make it from x"))
    return reshape(chosen, x._value.shape)


@blaming
def putmask(a: Tensor, mask: ArrayLike, values: ArrayLike) -> None:
    """Writes `values` to the elements where the mask (of a's shape) holds: to the i-th of all elements the i-th value,
    from the start again if there are fewer.

    Raises ShapeError for a mask of another size.

    >>> x = lg.zeros(4)
    >>> lg.putmask(x, [True, False, True, True], [1.0, 2.0])
    >>> x
    Tensor([1., 0., 1., 2.], dtype=float64)
    """
    t, chosen = _target("putmask", a), _mask("putmask", a, mask)
    if not prod(as_tensor(values)._value.shape):
        return
    count = prod(t._value.shape)
    new = reshape(_cycled(values, arange(count), t), t._value.shape)
    assign("putmask", t, where(chosen, new, t))


@blaming
def put(
    x: Tensor, indices: ArrayLike, values: ArrayLike, /, mode: str = "raise", *, inplace: bool = True
) -> Tensor | None:
    """Writes values to positions in x raveled, from the first value again if there are fewer.

    `mode`: positions out of range are "wrap"ped, "clip"ped, or, by "raise", IndexRangeErrors where they are Python's or
    NumPy's numbers, and dropped where they are tensors, as of every index that is data, unless
    `lg.options(check_indices=True)` raises. Raises DTypeError for indices that aren't integers, ValueError for another
    mode.

    `inplace=False` leaves x as it is and returns a copy with the values, as in JAX.

    >>> x = lg.zeros(3)
    >>> lg.put(x, [0, -1], [1.0, 2.0])
    >>> x
    Tensor([1., 0., 2.], dtype=float64)
    """
    if not inplace:
        new = copy(x)
        put(new, indices, values, mode)
        return new
    t, at = _target("put", x), ravel(indices)
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(explained("put", "mode 'raise', 'wrap' or 'clip'", repr(mode), "pass one of them"))
    if not at._value.shape[0] or not prod(as_tensor(values)._value.shape):
        return None
    if not at._value.dtype.is_integer:
        raise DTypeError(explained("put", "integer positions", at._value.type, "convert with .astype(lg.int64)"))
    count = prod(t._value.shape)
    if mode == "wrap":
        at = remainder(cast(at, int64), count)
    elif mode == "clip":
        at = clip(cast(at, int64), 0, count - 1)
    else:
        check_positions("put", indices, -count, count - 1)
    new = _cycled(values, arange(at._value.shape[0]), t)
    if len(t._value.shape) == 1:
        set_item(t, at, new)
        return None
    at = cast(at, int64)
    flat = where(at < 0, add(at, count), at)
    inside = (flat >= 0) & (flat < count)
    rows = unravel_index(flat, t._value.shape)
    set_item(t, (where(inside, rows[0], t._value.shape[0]), *rows[1:]), new)
    return None


@blaming
def put_along_axis(
    arr: Tensor, indices: ArrayLike, values: ArrayLike, axis: int | None = -1, *, inplace: bool = True
) -> Tensor | None:
    """Writes values to the positions that `take_along_axis` reads: `indices` along the axis (None: in `arr` raveled).

    Values stretch to the indices' shape. Raises ShapeError where ranks differ, IndexRangeError for Python's and NumPy's
    numbers out of range; of tensors those are dropped, as of every index that is data.

    `inplace=False` leaves `arr` as it is and returns a copy with the values, as in JAX.

    >>> x = lg.asarray([[3, 1, 2], [6, 5, 4]])
    >>> lg.put_along_axis(x, [[1], [2]], 0, axis=1)
    >>> x
    Tensor([[3, 0, 2],
            [6, 5, 0]], dtype=int64)
    """
    if not inplace:
        new = copy(arr)
        put_along_axis(new, indices, values, axis)
        return new
    t, chosen = _target("put_along_axis", arr), as_tensor(indices)
    if axis is None:
        put(t, chosen, broadcast_to(values, chosen._value.shape))
        return None
    index = along_axis("put_along_axis", t._value.shape, chosen, axis)
    check_positions("put_along_axis", indices, -t._value.shape[axis], t._value.shape[axis] - 1)
    set_item(t, index, values)
    return None


@blaming
def fill_diagonal(a: Tensor, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Tensor | None:
    """Writes values to the diagonal a[i, i, ...], from the first value again if there are fewer.

    `wrap`: in a matrix that is more than a row taller than wide, the diagonal begins again below. Raises ShapeError for
    less than two axes, and for more of different extents.

    `inplace=False` leaves `a` as it is and returns a copy with the values, as in JAX.

    >>> x = lg.zeros((2, 2))
    >>> lg.fill_diagonal(x, [1.0, 2.0])
    >>> x
    Tensor([[1., 0.],
            [0., 2.]], dtype=float64)
    """
    if not inplace:
        new = copy(a)
        fill_diagonal(new, val, wrap)
        return new
    t = _target("fill_diagonal", a)
    shape = t._value.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) != 1):
        raise ShapeError(explained("fill_diagonal", "two axes, or more of one extent", shape, "reshape it"))
    if len(shape) == 2:
        step, end = shape[1] + 1, shape[0] * shape[1] if wrap else min(shape[1] * shape[1], shape[0] * shape[1])
    else:
        step, end = 1 + sum(prod(shape[d + 1 :]) for d in range(len(shape) - 1)), prod(shape)
    put(t, multiply(arange(len(range(0, end, step))), step), val)
    return None
