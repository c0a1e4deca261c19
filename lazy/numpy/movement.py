"""Moving elements: reshape, transpose, join, split, flip, pad, repeat. Nothing here computes on values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.indexing import FULL, take
from loopgrad.lazy.numpy.views_and_assignment import subscript
from loopgrad.lazy.tensor.core import ArrayLike, TensorCore, as_tensor, broadcast_value, cast_operand, copied, wrap
from loopgrad.lazy.tensor.operands import joined_shape, normal_axes, normal_axis, normal_shape
from loopgrad.lazy.tensor.promotion import promote_all, promote_arrays
from loopgrad.lazy.tensor.storage import as_array, by_rows, is_number, needs_copy, viewed, whole
from loopgrad.lazy.tensor.view_steps import Flipped, Reshaped, Stretched, Transposed

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


# ---- shape


def reshape(x: ArrayLike, /, shape: Any, *, order: str = "C", copy: bool | None = None) -> Tensor:
    """The same elements in another shape, of which one extent may be -1 (what is left).

    They are read and written row by row (`order="C"`) or column by column ("F"). The result shares x's memory where
    NumPy's would (`copy=None`); `copy=True` makes a copy, `copy=False` raises ValueError where one is needed.
    """
    t = as_tensor(x)
    if _by_columns("reshape", order):
        items = shape if isinstance(shape, tuple | list) else (shape,)
        return transpose(reshape(transpose(t), tuple(reversed(items)), copy=copy))
    items = shape if isinstance(shape, tuple | list) else (shape,)
    if any(_is_minus_one(n) for n in items):
        items = _fill_in(t._value, items)
    target = normal_shape("reshape", items)
    value = ops.reshape(t._value, target)
    if copy or needs_copy(t, target):
        if copy is False:
            fix = "allow a copy, or reshape what this is a view of"
            expected = "elements that needn't be copied where copy=False"
            raise ValueError(explained("reshape", expected, t._value.type, fix))
        return wrap(value, t._weak) if is_number(t) else as_array(wrap(value, t._weak))
    return whole(t) if value is t._value else viewed(t, Reshaped(target), value)


def _is_minus_one(n: Any) -> bool:
    return hasattr(n, "__index__") and n.__index__() == -1


def _fill_in(value: Value, items: Sequence[Any]) -> tuple[int, ...]:
    size = prod(value.shape)
    known = [int(n) for n in items if not _is_minus_one(n)]
    rest = prod(known)
    if len(known) != len(items) - 1 or rest == 0 or size % rest:
        fix = "leave exactly one extent open, and make the others divide the size"
        raise ShapeError(explained("reshape", f"a shape of {size} elements for {value.type}", tuple(items), fix))
    return tuple([size // rest if _is_minus_one(n) else int(n) for n in items])


def _by_columns(op: str, order: str) -> bool:
    if order not in ("C", "F"):
        fix = "tensors have no other order in memory: leave it out"
        raise ValueError(explained(op, "order 'C' or 'F'", repr(order), fix))
    return order == "F"


def ravel(x: ArrayLike, /, order: str = "C") -> Tensor:
    """All elements in one dimension, row by row (`order="C"`) or column by column ("F"): a view where they lie so."""
    if _by_columns("ravel", order):
        return ravel(transpose(x))
    t = as_tensor(x)
    return reshape(t, (prod(t._value.shape),), copy=None if by_rows(t) else True)


def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Add axes of extent 1 at the given positions of the result."""
    t = as_tensor(x)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = normal_axes("expand_dims", axis, len(t._value.shape) + count)
    extents = iter(t._value.shape)
    return reshape(t, tuple([1 if d in new else next(extents) for d in range(len(t._value.shape) + count)]))


def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Remove axes of extent 1 (all of them where `axis` is None)."""
    t = as_tensor(x)
    shape = t._value.shape
    chosen = normal_axes("squeeze", axis, len(shape)) if axis is not None else ()
    for d in chosen:
        if shape[d] != 1:
            fix = "squeeze removes only such axes"
            raise ShapeError(explained("squeeze", f"extent 1 at axis {d}", shape, fix))
    gone = chosen if axis is not None else tuple([d for d, n in enumerate(shape) if n == 1])
    return reshape(t, tuple([n for d, n in enumerate(shape) if d not in gone]))


def broadcast_to(x: ArrayLike, /, shape: Any) -> Tensor:
    """Repeat along new or stretched axes, NumPy's rule: a read-only view."""
    t = as_tensor(x)
    target = normal_shape("broadcast_to", shape)
    if len(target) < len(t._value.shape) or joined_shape("broadcast_to", (t._value.shape, target)) != target:
        fix = "every extent must be 1 or equal, counted from the back"
        raise ShapeError(explained("broadcast_to", f"a shape that {t._value.type} stretches to", target, fix))
    return viewed(t, Stretched(target), broadcast_value(t._value, target))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all of these broadcast."""
    return joined_shape("broadcast_shapes", [normal_shape("broadcast_shapes", s) for s in shapes])


def broadcast_arrays(*xs: ArrayLike) -> list[Tensor]:
    """The operands, each stretched to their joint shape: views, read-only where elements occur more than once."""
    tensors = [as_tensor(x) for x in xs]
    shape = joined_shape("broadcast_arrays", [t._value.shape for t in tensors])
    return [whole(t) if t._value.shape == shape else broadcast_to(t, shape) for t in tensors]


# ---- order of axes and elements


def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Tensor:
    """Result axis j is axis axes[j]."""
    t = as_tensor(x)
    rank = len(t._value.shape)
    perm = tuple([normal_axis("permute_dims", a, rank) for a in axes])
    if sorted(perm) != list(range(rank)):
        fix = "name each axis once"
        raise ShapeError(explained("permute_dims", f"a permutation of 0..{rank - 1}", tuple(axes), fix))
    value = ops.transpose(t._value, perm)
    return whole(t) if value is t._value else viewed(t, Transposed(perm), value)


def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Reverse the axes, or permute them."""
    t = as_tensor(x)
    return permute_dims(t, tuple(reversed(range(len(t._value.shape)))) if axes is None else axes)


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Swap the last two axes."""
    t = as_tensor(x)
    if len(t._value.shape) < 2:
        raise ShapeError(explained("matrix_transpose", "at least 2 dimensions", t._value.type, "add axes"))
    return swapaxes(t, -1, -2)


def swapaxes(x: ArrayLike, axis1: int, axis2: int, /) -> Tensor:
    """Exchange two axes."""
    t = as_tensor(x)
    perm = list(range(len(t._value.shape)))
    a, b = (normal_axis("swapaxes", axis, len(perm)) for axis in (axis1, axis2))
    perm[a], perm[b] = perm[b], perm[a]
    return permute_dims(t, perm)


def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
    """Move axes to new positions; the others keep their order."""
    t = as_tensor(x)
    rank = len(t._value.shape)
    sources = [normal_axis("moveaxis", a, rank) for a in (source if isinstance(source, tuple | list) else [source])]
    to = destination if isinstance(destination, tuple | list) else [destination]
    targets = [normal_axis("moveaxis", a, rank) for a in to]
    if len(sources) != len(targets) or len(set(sources)) != len(sources) or len(set(targets)) != len(targets):
        raise ShapeError(explained("moveaxis", "as many distinct targets as sources", destination, "name each once"))
    perm = [d for d in range(rank) if d not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        perm.insert(target, origin)
    return permute_dims(t, perm)


def flip(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order along the given axes (all where None)."""
    t = as_tensor(x)
    axes = normal_axes("flip", axis, len(t._value.shape))
    if not t._value.shape:
        return copied(t)
    value = ops.flip(t._value, axes)
    return whole(t) if value is t._value else viewed(t, Flipped(axes), value)


def roll(x: ArrayLike, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements along axes; what leaves at one end enters at the other."""
    t = as_tensor(x)
    if axis is None:
        if isinstance(shift, tuple | list):
            raise ShapeError(explained("roll", "one shift without an axis", shift, "pass axis"))
        return reshape(roll(ravel(t), shift, axis=0), t._value.shape, copy=True)
    t = copied(t)
    axes = axis if isinstance(axis, tuple | list) else [axis]
    shifts = shift if isinstance(shift, tuple | list) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(explained("roll", "one shift per axis", f"{shift} for {axis}", "make them as many"))
    for amount, a in zip(shifts, axes, strict=True):
        d = normal_axis("roll", a, len(t._value.shape))
        extent = t._value.shape[d]
        cut = extent - int(amount) % extent if extent else 0
        if cut % extent if extent else False:
            pieces = [_span(t._value, d, cut, extent), _span(t._value, d, 0, cut)]
            t = wrap(ops.concat(pieces, d), t._weak)
    return t


def _section(t: Tensor, axis: int, index: Any) -> Tensor:
    """`t[..., index, ...]`, a view, with the index at an axis."""
    return subscript(t, (*(FULL,) * axis, index))


def _span(value: Value, axis: int, start: int, stop: int) -> Value:
    """Elements start..stop-1 along one axis."""
    if start == 0 and stop == value.shape[axis]:
        return value
    starts, stops = [0] * len(value.shape), list(value.shape)
    starts[axis], stops[axis] = start, stop
    return ops.slice(value, starts, stops)


# ---- joining and splitting


def _same_dtype(op: str, xs: Sequence[ArrayLike], numbers_give_way: bool = False) -> list[Value]:
    if not len(xs):
        raise ShapeError(explained(op, "at least one tensor", "none", "pass one"))
    tensors = [as_tensor(x) for x in xs]
    operands = [(t._value.dtype, t._weak) for t in tensors]
    dtype = promote_all(*operands)[0] if numbers_give_way else promote_arrays(*operands)
    return [cast_operand(t, dtype) for t in tensors]


def concat(xs: Sequence[ArrayLike], /, axis: int | None = 0) -> Tensor:
    """Join along an existing axis (None: ravel first)."""
    values = _same_dtype("concat", xs, numbers_give_way=axis is None)  # only there can they be among arrays
    if axis is None:
        return wrap(ops.concat([ravel(wrap(v))._value for v in values], 0))
    if not values[0].shape:
        fix = "use lg.stack to join scalars"
        raise ShapeError(explained("concat", "tensors of at least one dimension", "a scalar", fix))
    return wrap(ops.concat(values, normal_axis("concat", axis, len(values[0].shape))))


def stack(xs: Sequence[ArrayLike], /, axis: int = 0) -> Tensor:
    """Join along a new axis."""
    values = _same_dtype("stack", xs)
    shape = values[0].shape
    if any(v.shape != shape for v in values):
        got = ", ".join(str(v.shape) for v in values)
        raise ShapeError(explained("stack", "tensors of one shape", got, "broadcast or slice them first"))
    d = normal_axis("stack", axis, len(shape) + 1)
    rows = [ops.reshape(v, (*shape[:d], 1, *shape[d:])) for v in values]
    return wrap(ops.concat(rows, d))


def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without that axis: views."""
    t = as_tensor(x)
    d = normal_axis("unstack", axis, len(t._value.shape))
    return tuple([_section(t, d, i) for i in range(t._value.shape[d])])


def split(x: ArrayLike, indices_or_sections: int | Sequence[int], /, axis: int = 0) -> list[Tensor]:
    """Cut along an axis, into views: equal sections, or at the given positions."""
    t = as_tensor(x)
    d = normal_axis("split", axis, len(t._value.shape))
    extent = t._value.shape[d]
    if isinstance(indices_or_sections, tuple | list | np.ndarray):
        cuts = [min(max(c + extent if c < 0 else c, 0), extent) for c in indices_or_sections]
    else:
        sections = int(indices_or_sections)  # type: ignore[arg-type]
        if sections <= 0 or extent % sections:
            fix = "pass the positions to cut at instead"
            raise ShapeError(explained("split", f"sections that divide {extent}", sections, fix))
        cuts = [i * (extent // sections) for i in range(1, sections)]
    bounds = [0, *cuts, extent]
    return [_section(t, d, slice(a, max(a, b))) for a, b in pairwise(bounds)]


def repeat(x: ArrayLike, repeats: int | Sequence[int], /, axis: int | None = None) -> Tensor:
    """Each element `repeats` times in a row: one int, or one per element along the axis (None: of x raveled)."""
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
    """The whole array `repetitions` times along each axis."""
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

    They are `constant_values`, or repeat x: its `edge`, its mirror image (`reflect`, `symmetric` with the edge
    doubled) or x from the other side (`wrap`).
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
    """Coordinate arrays from one-dimensional coordinates; `sparse` leaves axes of extent 1 unstretched."""
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


def _triangle(x: ArrayLike, k: int, lower: bool) -> Tensor:
    t = as_tensor(x)
    shape = t._value.shape
    if len(shape) < 2:
        raise ShapeError(explained("tril or triu", "at least 2 dimensions", t._value.type, "add axes"))
    type = TensorType(shape, int64)
    row = emit("iota", (), {"type": type, "axis": len(shape) - 2})[0]
    column = emit("iota", (), {"type": type, "axis": len(shape) - 1})[0]
    edge = ops.add(row, min(max(k, -shape[-2]), shape[-1]))  # beyond the corners all diagonals are alike
    keep = ops.le(column, edge) if lower else ops.ge(column, edge)
    return wrap(ops.select(keep, t._value, ops.zeros_like(t._value)), t._weak)


def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The lower triangle of matrices, 0 above diagonal `k`."""
    return _triangle(x, k, lower=True)


def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The upper triangle of matrices, 0 below diagonal `k`."""
    return _triangle(x, k, lower=False)
