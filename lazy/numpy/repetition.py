"""Elements more than once: repeat, tile, pad, meshgrid. Nothing here computes on values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.indexing import take
from loopgrad.lazy.numpy.movement import broadcast_to, ravel, reshape
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import searchsorted
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, copied, wrap
from loopgrad.lazy.tensor.evaluation import to_numpy
from loopgrad.lazy.tensor.operands import normal_axis, normal_shape, positions

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "meshgrid pad repeat tile"


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
    if not value.dtype.is_integer and value.shape != (0,):
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


def tile(x: ArrayLike, repetitions: int | Sequence[int], /) -> Tensor:
    """The whole array `repetitions` times along each axis, of which there may be more than x has; the dtype stays.

    >>> lg.tile(lg.asarray([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int64)
    """
    t = as_tensor(x)
    counts = normal_shape("tile", repetitions)
    rank = max(len(counts), len(t._value.shape))
    shape = (1,) * (rank - len(t._value.shape)) + t._value.shape
    counts = (1,) * (rank - len(counts)) + counts
    woven = [n for pair in zip((1,) * rank, shape, strict=True) for n in pair]
    target = [n for pair in zip(counts, shape, strict=True) for n in pair]
    wide = broadcast_to(reshape(t, tuple(woven)), tuple(target))
    return reshape(wide, tuple([c * n for c, n in zip(counts, shape, strict=True)]), copy=True)


def pad(x: ArrayLike, pad_width: Any, /, mode: str = "constant", *, constant_values: ArrayLike = 0) -> Tensor:
    """Add elements around: `pad_width` is an int, (low, high), or one such pair per axis.

    They are `constant_values`, or repeat x: its `edge`, its mirror image (`reflect`, `symmetric` with the edge doubled)
    or x from the other side (`wrap`).

    The dtype stays. Raises ShapeError for negative widths, or not one pair per axis, ValueError for another mode.

    >>> lg.pad(lg.asarray([1, 2]), (1, 2))
    Tensor([0, 1, 2, 0, 0], dtype=int64)
    """
    t = as_tensor(x)
    rank = len(t._value.shape)
    pairs = _pairs(pad_width, rank)
    if any(n < 0 for pair in pairs for n in pair):
        raise ShapeError(explained("pad", "widths of at least 0", pad_width, "slice to shrink"))
    if mode != "constant":
        return _repeated_around(t, pairs, mode)
    value = as_tensor(constant_values, t._value.dtype)._value
    low, high = [p[0] for p in pairs], [p[1] for p in pairs]
    return wrap(ops.pad(t._value, low, high, ops.reshape(value, ())), t._weak)


_PAD_MODES: Final = ("edge", "reflect", "symmetric", "wrap")


def _repeated_around(t: Tensor, pairs: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """Every axis read at positions that run over its ends."""
    if mode not in _PAD_MODES:
        known = ", ".join(map(repr, ("constant", *_PAD_MODES)))
        raise ValueError(explained("pad", f"mode {known}", repr(mode), "pass one of them"))
    t = copied(t)
    for d, (low, high) in enumerate(pairs):
        extent = t._value.shape[d]
        if not low and not high:
            continue
        if not extent:
            raise ShapeError(explained("pad", f"elements along axis {d} to repeat", t._value.type, "use 'constant'"))
        t = take(t, np.pad(np.arange(extent), (low, high), mode=mode), axis=d)  # type: ignore[call-overload]
    return t


def _pairs(width: Any, rank: int) -> list[tuple[int, int]]:
    if not isinstance(width, tuple | list):
        return [(int(width), int(width))] * rank
    if len(width) == 2 and not any(isinstance(w, tuple | list) for w in width):
        return [(int(width[0]), int(width[1]))] * rank
    pairs = [(int(w[0]), int(w[-1])) for w in width]
    if len(pairs) == 1:
        pairs = pairs * rank
    if len(pairs) != rank:
        raise ShapeError(explained("pad", f"one (low, high) per axis ({rank})", width, "name every axis"))
    return pairs


def meshgrid(*xs: ArrayLike, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
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
