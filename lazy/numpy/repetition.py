"""Elements more than once: repeat, tile, meshgrid, sliding windows. Nothing here computes on values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.movement import broadcast_to, moveaxis, ravel, reshape
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import searchsorted
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, copied, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import normal_axis, normal_shape, positions
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "meshgrid repeat sliding_window_view tile"


@repeated
def repeat(
    x: ArrayLike, /, repeats: ArrayLike, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Tensor:
    """Each element `repeats` times in a row: one integer, or one per element along the axis (None: of x raveled).

    Counts that are a tensor are evaluated, since they decide the shape; while a function is traced
    `total_repeat_length` must say how long the axis becomes (as in JAX: what is too much is cut off, what is missing
    repeats the last element). The dtype stays. Raises DTypeError for counts that aren't integers, and for traced ones
    without a length; ShapeError for negative ones, or as many as don't fit.

    >>> lg.repeat(lg.asarray([1, 2]), 2), lg.repeat(lg.asarray([1, 2]), [3, 0])
    (Tensor([1, 1, 2, 2], dtype=int64), Tensor([1, 1, 1], dtype=int64))
    """
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    shape = t._value.shape
    d = normal_axis("repeat", axis, len(shape))
    an_int = hasattr(repeats, "__index__") and not isinstance(repeats, TensorCore | np.ndarray)
    if total_repeat_length is not None or not an_int:
        return take(t, _repeated_positions(as_tensor(repeats), shape[d], total_repeat_length), axis=d)
    count = operator.index(repeats)  # type: ignore[arg-type]
    if count < 0:
        raise ShapeError(explained("repeat", "a count of at least 0", count, "check the count"))
    columns = reshape(t, (*shape[: d + 1], 1, *shape[d + 1 :]))
    wide = broadcast_to(columns, (*shape[: d + 1], count, *shape[d + 1 :]))
    return reshape(wide, (*shape[:d], shape[d] * count, *shape[d + 1 :]), copy=True)


def _repeated_positions(counts: Tensor, extent: int, length: int | None) -> ArrayLike:
    """Which element stands at each place of the longer axis."""
    value = counts._value
    if value.dtype.kind not in "biu" and value.shape != (0,):
        raise DTypeError(explained("repeat", "integers", value.type, "convert them with .astype(lg.int64)"))
    if value.shape not in ((extent,), (1,), ()):
        raise ShapeError(explained("repeat", f"one count, or {extent}", value.type, "give one per element of the axis"))
    if length is not None:
        ends = cumsum(broadcast_to(counts, (extent,)), dtype=int64)
        return searchsorted(ends, wrap(positions(normal_shape("repeat", length), 0)), side="right")
    if value.scope is not None:
        fix = "pass total_repeat_length=, or Python ints (static_argnums)"
        raise DTypeError(explained("repeat", "counts that are known while a function is traced", value.type, fix))
    numbers = to_numpy(counts, "index").astype(np.int64).reshape(-1)
    if (numbers < 0).any():
        raise ShapeError(explained("repeat", "counts of at least 0", int(numbers.min()), "check the counts"))
    return np.repeat(np.arange(extent), numbers)


@repeated
def tile(x: ArrayLike, /, reps: int | Sequence[int]) -> Tensor:
    """The whole array `reps` times along each axis, of which there may be more than x has; the dtype stays.

    >>> lg.tile(lg.asarray([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int64)
    """
    t = as_tensor(x)
    counts = normal_shape("tile", reps)
    rank = max(len(counts), len(t._value.shape))
    shape = (1,) * (rank - len(t._value.shape)) + t._value.shape
    counts = (1,) * (rank - len(counts)) + counts
    woven = [n for pair in zip((1,) * rank, shape, strict=True) for n in pair]
    target = [n for pair in zip(counts, shape, strict=True) for n in pair]
    wide = broadcast_to(reshape(t, tuple(woven)), tuple(target))
    return reshape(wide, tuple([c * n for c, n in zip(counts, shape, strict=True)]), copy=True)


def meshgrid(*xs: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate arrays from one-dimensional coordinates; `sparse` leaves axes of extent 1 unstretched.

    A tuple with one array for each, all of one shape: (n_y, n_x, ...) for `indexing` "xy", (n_x, n_y, ...) for "ij".
    Dtypes stay.
    Raises ValueError for another `indexing`.

    >>> lg.meshgrid([1, 2], [5, 6])[0]
    Tensor([[1, 2],
            [1, 2]], dtype=int64)
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(explained("meshgrid", "indexing 'xy' or 'ij'", repr(indexing), "pass one of them"))
    tensors = [as_tensor(x) for x in xs]
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(tensors)
    for t, d in zip(tensors, order, strict=True):
        shape[d] = prod(t._value.shape)
    result = []
    for t, d in zip(tensors, order, strict=True):
        column = [1] * len(tensors)
        column[d] = shape[d]
        line = reshape(t, tuple(column))
        result.append(copied(line if sparse else broadcast_to(line, tuple(shape))))
    return tuple(result)


def sliding_window_view(
    x: ArrayLike, /, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Tensor:
    """All windows of these extents along these axes (None: all, in order), whose elements are new axes at the end.

    An axis of extent n has n - w + 1 windows of w elements; one that is named twice has windows of windows. The dtype
    stays. Unlike that of `np.lib.stride_tricks`, which comes here for a tensor, the result is an array of its own:
    writes to x aren't seen in it, and it may be written to. It has a derivative. Raises ShapeError for another number
    of extents than of axes, for negative ones and those beyond the axis, AxisError for an axis that isn't there.

    >>> lg.sliding_window_view(lg.asarray([1, 2, 3, 4]), 3)
    Tensor([[1, 2, 3],
            [2, 3, 4]], dtype=int64)
    """
    t = as_tensor(x)
    rank, extents = len(t._value.shape), normal_shape("sliding_window_view", window_shape)
    named = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normal_axis("sliding_window_view", d, rank) for d in named]
    if len(extents) != len(axes):
        fix = "give one extent for each axis, or name the axes"
        got = f"{len(extents)} for {t._value.type}"
        raise ShapeError(explained("sliding_window_view", f"extents of windows along {len(axes)} axes", got, fix))
    for d, w in zip(axes, extents, strict=True):
        t = _windows(t, d, w)
    return copied(t)


def _windows(t: Tensor, axis: int, extent: int) -> Tensor:
    """Windows along one axis: in rows of n + 1 elements, x again and again is one element further in each row."""
    moved = moveaxis(t, axis, -1)
    *outer, n = moved._value.shape
    if extent > n:
        fix = "take smaller windows, or pad the array"
        raise ShapeError(explained("sliding_window_view", f"windows of up to {n} elements", extent, fix))
    again = broadcast_to(reshape(moved, (*outer, 1, n)), (*outer, extent + 1, n))
    rows = reshape(reshape(again, (*outer, (extent + 1) * n))[..., : extent * (n + 1)], (*outer, extent, n + 1))
    return moveaxis(rows[..., : n - extent + 1], -1, axis)
