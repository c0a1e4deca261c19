"""`take` and `take_along_axis`: elements at positions along an axis."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import TensorType, bool_, int64
from loopgrad.lazy.numpy.indexing import FULL, get_item
from loopgrad.lazy.numpy.positions_out_of_range import check_positions, read_by_mode, reading_mode
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast, cast_value, constant, wrap
from loopgrad.lazy.tensor.operands import Shape, joined_shape, normal_axis, positions
from loopgrad.lazy.tensor.outputs import Out, delivered
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "take take_along_axis"


@repeated
def take(
    x: ArrayLike, /, indices: ArrayLike, axis: int | None = None, out: Out = None, mode: str = "raise", *,
    fill_value: ArrayLike | None = None, unique_indices: bool = False, indices_are_sorted: bool = False,
) -> Tensor:  # fmt: skip
    """The elements at `indices` along an axis (None: of the raveled array), of x's dtype.

    The axis is replaced by the shape of `indices`, which are integers (a bool is 0 or 1); negative ones count from the
    end. Python's and NumPy's numbers that are out of range raise IndexRangeError; tensors are clamped, as every index
    that is data, or raise it under `lg.options(check_indices=True)`; `mode` "wrap" takes it modulo the extent, "clip"
    clamps negative ones, too, "fill" (JAX's) gives `fill_value`: None is NaN, the smallest signed or largest unsigned
    integer, True; a `fill_value` alone means that. JAX's other keywords change nothing. Raises ValueError for another
    mode, also beside a fill_value, DTypeError for a fill_value that doesn't fit x's dtype, IndexRangeError for
    positions on an empty axis.

    >>> lg.take(lg.asarray([10, 20, 30]), lg.asarray([2, 0, -1]))
    Tensor([30, 10, 30], dtype=int64)
    >>> lg.take(lg.asarray([10.0, 20.0]), lg.asarray([1, 5]), mode="fill")
    Tensor([20., nan], dtype=float64)
    """
    t = as_tensor(x)
    chosen = as_tensor(indices)
    chosen = cast(chosen, int64) if chosen._value.dtype is bool_ else chosen  # not a mask
    mode = reading_mode("take", None if mode == "raise" else mode, fill_value) or "raise"
    if mode == "fill":
        d = 0 if axis is None else normal_axis("take", axis, len(t._value.shape))
        rows = wrap(ops.reshape(t._value, (prod(t._value.shape),))) if axis is None else t
        filled = read_by_mode("take", rows, (*(FULL,) * d, chosen), mode, fill_value)
        return delivered("take", filled, out)
    shape = t._value.shape
    extent = prod(shape) if axis is None else shape[normal_axis("take", axis, len(shape))]
    if mode != "raise":
        chosen = _brought_inside(chosen, extent, mode)
    elif extent:
        check_positions("take", indices, -extent, extent - 1)
    if axis is None:
        return delivered("take", get_item(wrap(ops.reshape(t._value, (prod(t._value.shape),))), chosen), out)
    d = normal_axis("take", axis, len(t._value.shape))
    return delivered("take", get_item(t, (*(FULL,) * d, chosen)), out)


def _brought_inside(chosen: Tensor, extent: int, mode: str) -> Tensor:
    if mode not in ("wrap", "clip"):
        raise ValueError(explained("take", "mode 'raise', 'wrap', 'clip' or 'fill'", repr(mode), "pass one of them"))
    wide = cast_value(chosen._value, int64)
    last = max(extent - 1, 0)
    return wrap(ops.mod(wide, max(extent, 1)) if mode == "wrap" else ops.min(ops.max(wide, 0), last))


@repeated
def take_along_axis(
    x: ArrayLike, /, indices: ArrayLike, axis: int | None = -1, mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """For each position, the element that `indices` names along the axis (None: in x raveled, by a vector); broadcast
    elsewhere, of x's dtype.

    Raises ShapeError where ranks differ. Out of range is as for `take`, or as `mode` says: "clip", or "fill" with
    `fill_value`, which alone means that.

    >>> x = lg.asarray([[3, 1, 2], [6, 5, 4]])
    >>> lg.take_along_axis(x, lg.argsort(x), axis=1)
    Tensor([[1, 2, 3],
            [4, 5, 6]], dtype=int64)
    """
    t, chosen = as_tensor(x), as_tensor(indices)
    if axis is None:
        t, axis = wrap(ops.reshape(t._value, (prod(t._value.shape),))), 0
    index = along_axis("take_along_axis", t._value.shape, chosen, axis)
    if mode is None and fill_value is None and (extent := t._value.shape[axis]):
        check_positions("take_along_axis", indices, -extent, extent - 1)
    mode = reading_mode("take_along_axis", mode, fill_value)
    return get_item(t, index) if mode is None else read_by_mode("take_along_axis", t, index, mode, fill_value)


def along_axis(op: str, shape: Shape, chosen: Tensor, axis: int) -> tuple[Tensor, ...]:
    """The subscript for an array of that shape: `chosen` along the axis, each other axis' own positions."""
    rank = len(shape)
    if len(chosen._value.shape) != rank:
        raise ShapeError(explained(op, f"indices of rank {rank}", chosen._value.type, "add axes"))
    d = normal_axis(op, axis, rank)
    rest = joined_shape(op, [_without(shape, d), _without(chosen._value.shape, d)])
    full = (*rest[:d], chosen._value.shape[d], *rest[d:])
    along = broadcast_value(chosen._value, full)
    index: list[Tensor] = []
    for a, extent in enumerate(shape):
        grid = positions(full, a) if extent != 1 else constant(0, TensorType(full, int64))
        index.append(wrap(along if a == d else grid))
    return tuple(index)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
