"""NumPy's functions that apply a function along axes, by `vmap`: it is traced once, for all slices together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.movement import expand_dims, moveaxis, reshape
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.transforms.vmap import vmap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "apply_along_axis apply_over_axes"


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any) -> Tensor:
    """`func1d(vector, *args, **kwargs)` of each vector along an axis; the axes of what it gives replace that axis.

    The function is traced once, as by `vmap`. Raises ShapeError for an axis that `arr` hasn't.

    >>> lg.apply_along_axis(lambda v: v - v[0], 1, lg.asarray([[1, 2], [5, 7]]))
    Tensor([[0, 1],
            [0, 2]], dtype=int64)
    """
    t = as_tensor(arr)
    d = normal_axis("apply_along_axis", axis, len(t._value.shape))
    rows = moveaxis(t, d, -1)
    around, extent = rows._value.shape[:-1], rows._value.shape[-1]
    if not around:
        return as_tensor(func1d(t, *args, **kwargs))
    count = rows._type.size // extent if extent else 1
    made = vmap(lambda row: as_tensor(func1d(row, *args, **kwargs)))(reshape(rows, (count, extent)))
    result: Tensor = reshape(made, (*around, *made.shape[1:]))
    new = len(result._value.shape) - len(around)
    back = tuple(range(len(around), len(around) + new))
    return moveaxis(result, back, tuple(range(d, d + new)))


def apply_over_axes(func: Callable[..., Any], a: ArrayLike, axes: int | Sequence[int]) -> Tensor:
    """`func(a, axis)` for one axis after the other, of what the one before gave; what it removes has extent 1.

    Raises ShapeError where the result has neither the number of axes of `a` nor one less.

    >>> lg.apply_over_axes(lg.sum, lg.ones((2, 3)), (0, 1))
    Tensor([[6.]], dtype=float64)
    """
    t = as_tensor(a)
    rank = len(t._value.shape)
    for axis in axes if isinstance(axes, tuple | list) else (axes,):
        d = normal_axis("apply_over_axes", axis, rank)
        made = as_tensor(func(t, d))
        if len(made._value.shape) == rank - 1:
            made = expand_dims(made, d)
        if len(made._value.shape) != rank:
            expected = f"a result of {rank} or {rank - 1} axes"
            raise ShapeError(explained("apply_over_axes", expected, made._value.type, "reduce the axis alone"))
        t = made
    return t
