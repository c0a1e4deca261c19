"""Moving elements: reshape, transpose, join, split, flip. Nothing here computes on values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.indexing import FULL
from loopgrad.lazy.numpy.views_and_assignment import subscript
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast_operand, copied, wrap
from loopgrad.lazy.tensor.operands import joined_shape, normal_axes, normal_axis, normal_shape, whole_number
from loopgrad.lazy.tensor.outputs import Out, delivered, in_dtype
from loopgrad.lazy.tensor.promotion import as_dtype, check_casting, promote_all, promote_arrays
from loopgrad.lazy.tensor.repeated_calls import repeated, repeated_view
from loopgrad.lazy.tensor.storage import as_array, by_rows, is_number, needs_copy, viewed, whole
from loopgrad.lazy.tensor.view_steps import Flipped, Reshaped, Stretched, Transposed

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "broadcast_arrays broadcast_shapes broadcast_to concat concatenate=concat expand_dims flip matrix_transpose "
    "moveaxis permute_dims ravel reshape roll split squeeze stack swapaxes transpose tril triu unstack"
)
PUBLIC_LINALG: Final = "matrix_transpose"


# ---- shape


@repeated_view
def reshape(x: ArrayLike, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape, of which one extent may be -1 (what is left).

    They are read and written row by row (`order="C"`) or column by column ("F"). The result shares x's memory where
    NumPy's would (`copy=None`); `copy=True` makes a copy, `copy=False` raises ValueError where one is needed.

    The dtype stays. Raises ShapeError where the numbers of elements differ, ValueError for another `order`.

    >>> lg.reshape(lg.arange(6), (2, -1))
    Tensor([[0, 1, 2],
            [3, 4, 5]], dtype=int64)
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


@repeated_view
def ravel(x: ArrayLike, /, order: str = "C") -> Tensor:
    """All elements in one dimension, row by row (`order="C"`) or column by column ("F"): a view where they lie so.

    The dtype stays. Raises ValueError for another `order`.

    >>> lg.ravel(lg.asarray([[1, 2], [3, 4]]), order="F")
    Tensor([1, 3, 2, 4], dtype=int64)
    """
    if _by_columns("ravel", order):
        return ravel(transpose(x))
    t = as_tensor(x)
    return reshape(t, (prod(t._value.shape),), copy=None if by_rows(t) else True)


@repeated_view
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Add axes of extent 1 at the given positions of the result: a view.

    >>> lg.expand_dims(lg.arange(3), 1).shape
    (3, 1)
    """
    t = as_tensor(x)
    count = len(axis) if isinstance(axis, tuple | list) else 1
    new = normal_axes("expand_dims", axis, len(t._value.shape) + count)
    extents = iter(t._value.shape)
    return reshape(t, tuple([1 if d in new else next(extents) for d in range(len(t._value.shape) + count)]))


@repeated_view
def squeeze(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Remove axes of extent 1 (all of them where `axis` is None): a view.

    Raises ShapeError for an axis of another extent.

    >>> lg.squeeze(lg.ones((1, 3, 1))).shape
    (3,)
    """
    t = as_tensor(x)
    shape = t._value.shape
    chosen = normal_axes("squeeze", axis, len(shape)) if axis is not None else ()
    for d in chosen:
        if shape[d] != 1:
            fix = "squeeze removes only such axes"
            raise ShapeError(explained("squeeze", f"extent 1 at axis {d}", shape, fix))
    gone = chosen if axis is not None else tuple([d for d, n in enumerate(shape) if n == 1])
    return reshape(t, tuple([n for d, n in enumerate(shape) if d not in gone]))


@repeated_view
def broadcast_to(x: ArrayLike, /, shape: Any) -> Tensor:
    """Repeat along new or stretched axes up to `shape`, by NumPy's rule: a read-only view.

    Raises ShapeError where x doesn't stretch to it.

    >>> lg.broadcast_to(lg.asarray([[1], [2]]), (2, 3))
    Tensor([[1, 1, 1],
            [2, 2, 2]], dtype=int64)
    """
    t = as_tensor(x)
    target = normal_shape("broadcast_to", shape)
    if len(target) < len(t._value.shape) or joined_shape("broadcast_to", (t._value.shape, target)) != target:
        fix = "every extent must be 1 or equal, counted from the back"
        raise ShapeError(explained("broadcast_to", f"a shape that {t._value.type} stretches to", target, fix))
    return viewed(t, Stretched(target), broadcast_value(t._value, target))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all of these (tuples or ints) broadcast, as a tuple; raises ShapeError where there is none.

    >>> lg.broadcast_shapes((2, 1), 3)
    (2, 3)
    """
    return joined_shape("broadcast_shapes", [normal_shape("broadcast_shapes", s) for s in shapes])


def broadcast_arrays(*xs: ArrayLike) -> tuple[Tensor, ...]:
    """The operands, each stretched to their joint shape: views, read-only where elements occur more than once.

    A tuple; dtypes stay. Raises ShapeError where the shapes don't broadcast.

    >>> [x.shape for x in lg.broadcast_arrays(lg.ones((2, 1)), lg.ones(3))]
    [(2, 3), (2, 3)]
    """
    tensors = [as_tensor(x) for x in xs]
    shape = joined_shape("broadcast_arrays", [t._value.shape for t in tensors])
    return tuple([whole(t) if t._value.shape == shape else broadcast_to(t, shape) for t in tensors])


# ---- order of axes and elements


@repeated_view
def permute_dims(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Result axis j is axis axes[j]: a view; None turns their order around. Raises ShapeError unless `axes` names each
    axis once.

    >>> lg.permute_dims(lg.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    t = as_tensor(x)
    rank = len(t._value.shape)
    wanted = tuple(range(rank))[::-1] if axes is None else tuple(axes)
    perm = tuple([normal_axis("permute_dims", a, rank) for a in wanted])
    if sorted(perm) != list(range(rank)):
        fix = "name each axis once"
        raise ShapeError(explained("permute_dims", f"a permutation of 0..{rank - 1}", wanted, fix))
    value = ops.transpose(t._value, perm)
    return whole(t) if value is t._value else viewed(t, Transposed(perm), value)


@repeated_view
def transpose(x: ArrayLike, /, axes: Sequence[int] | None = None) -> Tensor:
    """Reverse the axes, or permute them as `permute_dims` does: a view.

    >>> lg.transpose(lg.asarray([[1, 2], [3, 4]]))
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    t = as_tensor(x)
    return permute_dims(t, tuple(reversed(range(len(t._value.shape)))) if axes is None else axes)


@repeated_view
def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Swap the last two axes: a view. Raises ShapeError for less than two.

    >>> lg.matrix_transpose(lg.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    t = as_tensor(x)
    if len(t._value.shape) < 2:
        raise ShapeError(explained("matrix_transpose", "at least 2 dimensions", t._value.type, "add axes"))
    return swapaxes(t, -1, -2)


@repeated_view
def swapaxes(x: ArrayLike, /, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes: a view. Raises ShapeError for axes that x hasn't.

    >>> lg.swapaxes(lg.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    t = as_tensor(x)
    perm = list(range(len(t._value.shape)))
    a, b = (normal_axis("swapaxes", axis, len(perm)) for axis in (axis1, axis2))
    perm[a], perm[b] = perm[b], perm[a]
    return permute_dims(t, perm)


@repeated_view
def moveaxis(x: ArrayLike, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move axes to new positions; the others keep their order: a view.

    Raises ShapeError unless there are as many distinct targets as sources.

    >>> lg.moveaxis(lg.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
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


@repeated_view
def flip(x: ArrayLike, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """Reverse the order along the given axes (all where None): a view, with x's shape and dtype.

    >>> lg.flip(lg.asarray([[1, 2], [3, 4]]), axis=0)
    Tensor([[3, 4],
            [1, 2]], dtype=int64)
    """
    t = as_tensor(x)
    axes = normal_axes("flip", axis, len(t._value.shape))
    if not t._value.shape:
        return copied(t)
    value = ops.flip(t._value, axes)
    return whole(t) if value is t._value else viewed(t, Flipped(axes), value)


@repeated
def roll(
    x: ArrayLike, /, shift: int | Sequence[int] | np.ndarray[Any, Any],
    axis: int | Sequence[int] | np.ndarray[Any, Any] | None = None,
) -> Tensor:  # fmt: skip
    """Shift elements along axes (None: of x raveled); what leaves at one end enters at the other.

    Shape and dtype stay. Several shifts go to several axes, or one after the other along one. Raises ShapeError for
    other numbers of them, DTypeError for a shift that isn't an integer (NumPy cuts its fraction off).

    >>> lg.roll(lg.arange(5), 2)
    Tensor([3, 4, 0, 1, 2], dtype=int64)
    """
    t = as_tensor(x)
    if axis is None:
        return reshape(roll(ravel(t), shift, axis=0), t._value.shape, copy=True)
    t = copied(t)
    try:
        shifts, axes = np.broadcast_arrays(shift, axis)
    except ValueError:
        fix = "make them as many"
        raise ShapeError(explained("roll", "one shift per axis", f"{shift} for {axis}", fix)) from None
    for amount, a in zip(shifts.flat, axes.flat, strict=True):
        d = normal_axis("roll", a, len(t._value.shape))
        extent = t._value.shape[d]
        cut = extent - whole_number("roll", "an integer shift", amount) % extent if extent else 0
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


def _same_dtype(
    op: str, xs: Sequence[ArrayLike], wanted: Any, casting: str, numbers_give_way: bool = False
) -> list[Value]:
    check_casting(op, casting)
    if not len(xs):
        raise ShapeError(explained(op, "at least one tensor", "none", "pass one"))
    tensors = [as_tensor(x) for x in xs]
    if wanted is not None:
        return [in_dtype(op, t, as_dtype(wanted), casting)._value for t in tensors]
    operands = [(t._value.dtype, t._weak) for t in tensors]
    dtype = promote_all(*operands)[0] if numbers_give_way else promote_arrays(*operands)
    return [cast_operand(t, dtype) for t in tensors]


@repeated
def concat(
    xs: Sequence[ArrayLike], /, axis: int | None = 0, out: Out = None, *, dtype: Any = None,
    casting: str = "same_kind",
) -> Tensor:  # fmt: skip
    """Join along an existing axis (None: of all raveled), in `dtype`, or the one to which all are promoted. With `out`
    written to that, and returned.

    The other extents must be equal: raises ShapeError where they aren't, for a scalar, and for no tensors. Raises
    DTypeError where `casting` (`lg.can_cast`) forbids the conversion to `dtype`.

    >>> lg.concat([lg.ones((1, 2)), lg.zeros((2, 2))])
    Tensor([[1., 1.],
            [0., 0.],
            [0., 0.]], dtype=float64)
    """
    alone = axis is None  # only there can numbers be among arrays
    values = _same_dtype("concat", xs, dtype, casting, numbers_give_way=alone)
    if axis is None:
        return delivered("concat", wrap(ops.concat([ravel(wrap(v))._value for v in values], 0)), out)
    if not values[0].shape:
        fix = "use lg.stack to join scalars"
        raise ShapeError(explained("concat", "tensors of at least one dimension", "a scalar", fix))
    joined = ops.concat(values, normal_axis("concat", axis, len(values[0].shape)))
    return delivered("concat", wrap(joined), out)


@repeated
def stack(
    xs: Sequence[ArrayLike], /, axis: int = 0, out: Out = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tensor:
    """Join along a new axis, in `dtype`, or the one to which all are promoted; raises ShapeError where shapes differ.
    With `out` written to that, and returned. `casting` is that of `concat`.

    >>> lg.stack([lg.asarray([1, 2]), lg.asarray([3, 4])], axis=1)
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    values = _same_dtype("stack", xs, dtype, casting)
    shape = values[0].shape
    if any(v.shape != shape for v in values):
        got = ", ".join(str(v.shape) for v in values)
        raise ShapeError(explained("stack", "tensors of one shape", got, "broadcast or slice them first"))
    d = normal_axis("stack", axis, len(shape) + 1)
    return delivered("stack", wrap(ops.stacked(values, d)), out)


@repeated_view
def unstack(x: ArrayLike, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without that axis: views.

    >>> lg.unstack(lg.asarray([[1, 2], [3, 4]]))
    (Tensor([1, 2], dtype=int64), Tensor([3, 4], dtype=int64))
    """
    t = as_tensor(x)
    d = normal_axis("unstack", axis, len(t._value.shape))
    return tuple([_section(t, d, i) for i in range(t._value.shape[d])])


@repeated_view
def split(x: ArrayLike, /, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Cut along an axis, into views: equal sections, or at the given positions.

    Raises ShapeError where a number of sections doesn't divide the extent; `array_split` allows that.

    >>> lg.split(lg.arange(5), [2, 3])
    [Tensor([0, 1], dtype=int64), Tensor([2], dtype=int64), Tensor([3, 4], dtype=int64)]
    """
    t = as_tensor(x)
    d = normal_axis("split", axis, len(t._value.shape))
    extent = t._value.shape[d]
    if np.ndim(indices_or_sections):
        expected = "positions that are integers, or a number of sections"
        positions = [whole_number("split", expected, c) for c in indices_or_sections]  # type: ignore[union-attr]
        cuts = [min(max(c + extent if c < 0 else c, 0), extent) for c in positions]
    else:
        sections = int(indices_or_sections)  # type: ignore[arg-type]
        if sections <= 0 or extent % sections or sections != indices_or_sections:
            fix = "pass the positions to cut at instead"
            raise ShapeError(explained("split", f"sections that divide {extent}", indices_or_sections, fix))
        cuts = [i * (extent // sections) for i in range(1, sections)]
    bounds = [0, *cuts, extent]
    return [_section(t, d, slice(a, max(a, b))) for a, b in pairwise(bounds)]


def _triangle(x: ArrayLike, k: int, lower: bool) -> Tensor:
    t = as_tensor(x)
    if not t._value.shape:
        raise ShapeError(explained("tril or triu", "a vector or matrices", t._value.type, "add axes"))
    if len(t._value.shape) == 1:
        t = broadcast_to(t, t._value.shape * 2)
    shape = t._value.shape
    type = TensorType(shape, int64)
    row = emit("iota", (), {"type": type, "axis": len(shape) - 2})[0]
    column = emit("iota", (), {"type": type, "axis": len(shape) - 1})[0]
    edge = ops.add(row, min(max(k, -shape[-2]), shape[-1]))  # beyond the corners all diagonals are alike
    keep = ops.le(column, edge) if lower else ops.ge(column, edge)
    return wrap(ops.select(keep, t._value, ops.zeros_like(t._value)), t._weak)


@repeated
def tril(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The lower triangle of matrices (the last two axes), 0 above diagonal `k`; shape and dtype stay.

    Of a vector: of the square matrix whose rows it is, as in NumPy. Raises ShapeError for a number.

    >>> lg.tril(lg.ones((2, 3)))
    Tensor([[1., 0., 0.],
            [1., 1., 0.]], dtype=float64)
    """
    return _triangle(x, k, lower=True)


@repeated
def triu(x: ArrayLike, /, k: int = 0) -> Tensor:
    """The upper triangle of matrices (the last two axes), 0 below diagonal `k`; shape and dtype stay.

    Of a vector: of the square matrix whose rows it is, as in NumPy. Raises ShapeError for a number.

    >>> lg.triu(lg.ones((2, 3)))
    Tensor([[1., 1., 1.],
            [0., 1., 1.]], dtype=float64)
    """
    return _triangle(x, k, lower=False)
