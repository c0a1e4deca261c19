"""Elements more than once: repeat, tile, pad, meshgrid. Nothing here computes on values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.lazy.numpy.indexing import take
from loopgrad.lazy.numpy.movement import broadcast_to, ravel, reshape
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, copied, wrap
from loopgrad.lazy.tensor.operands import normal_axis, normal_shape

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "meshgrid pad repeat tile"


def repeat(x: ArrayLike, repeats: int | Sequence[int], /, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row: one int, or one per element along the axis (None: of x raveled).

    Counts are Python ints, since they decide the shape: raises DTypeError for tensors, ShapeError for negative ones.
    The dtype stays.

    >>> lg.repeat(lg.asarray([1, 2]), 2), lg.repeat(lg.asarray([1, 2]), [3, 0])
    (Tensor([1, 1, 2, 2], dtype=int64), Tensor([1, 1, 1], dtype=int64))
    """
    t = as_tensor(x)
    if axis is None:
        t, axis = ravel(t), 0
    shape = t._value.shape
    d = normal_axis("repeat", axis, len(shape))
    if isinstance(repeats, np.ndarray | list | tuple):
        counts = np.asarray(repeats)
        if counts.dtype.kind not in "iu" or counts.shape not in ((shape[d],), (1,)) or (counts < 0).any():
            fix = "give one per element along the axis"
            raise ShapeError(explained("repeat", f"{shape[d]} counts of at least 0", repeats, fix))
        return take(t, np.repeat(np.arange(shape[d]), counts), axis=d)
    if isinstance(repeats, TensorCore | Sequence) or not hasattr(repeats, "__index__"):
        fix = "the result's shape must be known while tracing: pass Python ints, or name it in static_argnums"
        raise DTypeError(explained("repeat", "one int, or one per element", repr(repeats), fix))
    count = repeats.__index__()
    if count < 0:
        raise ShapeError(explained("repeat", "a count of at least 0", count, "check the count"))
    columns = reshape(t, (*shape[: d + 1], 1, *shape[d + 1 :]))
    wide = broadcast_to(columns, (*shape[: d + 1], count, *shape[d + 1 :]))
    return reshape(wide, (*shape[:d], shape[d] * count, *shape[d + 1 :]), copy=True)


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


def meshgrid(*xs: ArrayLike, indexing: str = "xy", sparse: bool = False) -> list[Tensor]:
    """Coordinate arrays from one-dimensional coordinates; `sparse` leaves axes of extent 1 unstretched.

    One array for each, all of one shape: (n_y, n_x, ...) for `indexing` "xy", (n_x, n_y, ...) for "ij". Dtypes stay.
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
    return result
