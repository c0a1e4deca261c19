"""Slices whose place is data and whose extent isn't: the names of `jax.lax`.

Starts count from the end where they are negative, and are moved inwards until the slice fits, as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.at_updates import update
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.elementwise import add, less
from loopgrad.lazy.numpy.indexing import FULL, get_item
from loopgrad.lazy.numpy.movement import expand_dims, reshape
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import Shape, normal_axis
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim dynamic_update_slice "
    "dynamic_update_slice_in_dim"
)


def _start(op: str, start: ArrayLike, extent: int, taken: int) -> Tensor:
    """Where a slice of `taken` elements begins among `extent`."""
    at = as_tensor(start)
    if not at._value.dtype.is_integer or at._value.shape:
        raise DTypeError(explained(op, "an integer as start", at._value.type, "pass one for each axis"))
    at = cast(at, int64)
    return clip(where(less(at, 0), add(at, extent), at), 0, extent - taken)


def _positions(op: str, shape: Shape, starts: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
    """The subscript of the slice: whole axes as they are, of the others each element's position."""
    rank = len(shape)
    given = list(starts)
    if len(given) != rank or len(sizes) != rank:
        got = f"{len(given)} starts and {len(sizes)} extents"
        raise ShapeError(explained(op, f"one of each for the {rank} axes", got, "pass 0 and the extent for whole axes"))
    items: list[Any] = []
    for d, (start, size, extent) in enumerate(zip(given, sizes, shape, strict=True)):
        if not 0 <= size <= extent:
            raise ShapeError(explained(op, f"an extent of at most {extent} at axis {d}", size, "take fewer elements"))
        at = _start(op, start, extent, size)
        items.append(reshape(add(at, arange(size)), (size, *(1,) * (rank - 1 - d))))
    return tuple(items)


@repeated
def dynamic_slice(x: ArrayLike, /, start_indices: Any, slice_sizes: Sequence[int]) -> Tensor:
    """The elements from `start_indices` (integers, or tensors of them) on, as many along each axis as `slice_sizes`
    says, of x's dtype.

    A negative start counts from the end; a slice that would leave x is moved inwards. Raises ShapeError where the
    sizes don't fit x, DTypeError for starts that aren't integers.

    >>> lg.dynamic_slice(lg.arange(5), [lg.asarray(3)], [3])
    Tensor([2, 3, 4], dtype=int64)
    """
    t = as_tensor(x)
    if not t._value.shape:
        return get_item(t, ...)
    return get_item(t, _positions("dynamic_slice", t._value.shape, start_indices, slice_sizes))


@repeated
def dynamic_update_slice(x: ArrayLike, values: ArrayLike, /, start_indices: Any) -> Tensor:
    """x with the elements from `start_indices` on replaced by `values`, of x's rank and dtype.

    Starts are as for `dynamic_slice`. Raises ShapeError where the values don't fit into x, DTypeError for starts that
    aren't integers and for values of a higher kind.

    >>> lg.dynamic_update_slice(lg.zeros(4), lg.ones(2), [lg.asarray(1)])
    Tensor([0., 1., 1., 0.], dtype=float64)
    """
    t, new = as_tensor(x), as_tensor(values)
    if not t._value.shape:
        return update("set", t, ..., new)
    return update("set", t, _positions("dynamic_update_slice", t._value.shape, start_indices, new._value.shape), new)


@repeated
def dynamic_slice_in_dim(x: ArrayLike, start_index: ArrayLike, slice_size: int, axis: int = 0) -> Tensor:
    """`dynamic_slice` along one axis; the others stay whole.

    >>> lg.dynamic_slice_in_dim(lg.asarray([[1, 2, 3], [4, 5, 6]]), 1, 2, axis=1)
    Tensor([[2, 3],
            [5, 6]], dtype=int64)
    """
    t = as_tensor(x)
    d = normal_axis("dynamic_slice_in_dim", axis, len(t._value.shape))
    extent = t._value.shape[d]
    if not 0 <= slice_size <= extent:
        expected = f"an extent of at most {extent} at axis {axis}"
        raise ShapeError(explained("dynamic_slice_in_dim", expected, slice_size, "take fewer elements"))
    at = _start("dynamic_slice_in_dim", start_index, extent, slice_size)
    return get_item(t, (*(FULL,) * d, add(at, arange(slice_size))))


@repeated
def dynamic_index_in_dim(x: ArrayLike, index: ArrayLike, axis: int = 0, keepdims: bool = True) -> Tensor:
    """The slice at a position along an axis, which stays with extent 1 unless `keepdims` is False.

    A negative position counts from the end; one out of range is the nearest. Raises DTypeError for what isn't an
    integer.

    >>> lg.dynamic_index_in_dim(lg.asarray([[1, 2], [3, 4]]), lg.asarray(1), keepdims=False)
    Tensor([3, 4], dtype=int64)
    """
    t = as_tensor(x)
    d = normal_axis("dynamic_index_in_dim", axis, len(t._value.shape))
    row = get_item(t, (*(FULL,) * d, _start("dynamic_index_in_dim", index, t._value.shape[d], 1)))
    return expand_dims(row, d) if keepdims else row


@repeated
def dynamic_update_slice_in_dim(x: ArrayLike, values: ArrayLike, start_index: ArrayLike, axis: int) -> Tensor:
    """`dynamic_update_slice` along one axis; along the others `values` begin at 0.

    >>> lg.dynamic_update_slice_in_dim(lg.zeros((2, 3)), lg.ones((2, 1)), 1, axis=1)
    Tensor([[0., 1., 0.],
            [0., 1., 0.]], dtype=float64)
    """
    rank = len(as_tensor(x)._value.shape)
    d = normal_axis("dynamic_update_slice_in_dim", axis, rank)
    return dynamic_update_slice(x, values, [start_index if k == d else 0 for k in range(rank)])


@repeated
def dynamic_update_index_in_dim(x: ArrayLike, values: ArrayLike, index: ArrayLike, axis: int) -> Tensor:
    """x with the slice at a position along an axis replaced; `values` have that axis with extent 1, or lack it.

    >>> lg.dynamic_update_index_in_dim(lg.zeros((2, 3)), lg.ones(3), lg.asarray(1), axis=0)
    Tensor([[0., 0., 0.],
            [1., 1., 1.]], dtype=float64)
    """
    t, new = as_tensor(x), as_tensor(values)
    d = normal_axis("dynamic_update_index_in_dim", axis, len(t._value.shape))
    if len(new._value.shape) < len(t._value.shape):
        new = expand_dims(new, d)
    return dynamic_update_slice_in_dim(t, new, index, d)
