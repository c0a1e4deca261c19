"""Functions of several variables that are known on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import zeros
from loopgrad.lazy.numpy.movement import broadcast_arrays, reshape
from loopgrad.lazy.numpy.sorting import searchsorted
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_INTERPOLATE: Final = "RegularGridInterpolator interpn"
_FIXED: Final = {"static": True}


@dataclass
class RegularGridInterpolator:
    """The function with `values` of shape (n1, n2, ..., *trailing) on the grid of rising vectors `points`, between
    them: multilinear, or the "nearest" value. Called with points of shape (..., axes), or a tuple of coordinates, it
    gives values of shape (..., *trailing), in a float dtype. A tree of tensors; derivatives flow to all of them.

    Outside of the grid it is `fill_value`, or with None goes on. What is outside can't be refused, as data decide that
    (SciPy's `bounds_error=True`). Raises ShapeError where shapes don't fit, ValueError for another method.

    >>> f = lg.interpolate.RegularGridInterpolator(([0.0, 1.0], [0.0, 2.0]), lg.asarray([[0.0, 2.0], [1.0, 3.0]]))
    >>> f([[0.5, 1.0], [0.25, 2.0], [3.0, 0.0]])
    Tensor([1.5 , 2.25,  nan], dtype=float64)
    """

    points: Any
    values: Any
    method: str = field(default="linear", metadata=_FIXED)
    bounds_error: bool = field(default=False, metadata=_FIXED)
    fill_value: Any = float("nan")

    def __post_init__(self) -> None:
        op = "RegularGridInterpolator"
        if self.bounds_error:
            fix = "leave it out; fill_value says what is there, None goes on"
            raise ValueError(explained(op, "bounds_error=False", "True", fix))
        _check_method(op, self.method)

    def __call__(self, xi: Any, method: str | None = None) -> Tensor:
        """Values at points.

        >>> lg.interpolate.RegularGridInterpolator(([0.0, 1.0],), lg.asarray([0.0, 4.0]))([[0.25]])
        Tensor([1.], dtype=float64)
        """
        op, way = "RegularGridInterpolator", method or self.method
        _check_method(op, way)
        axes, table = [as_float(p) for p in self.points], as_float(self.values)
        if any(len(p.shape) != 1 or p.shape[0] != n for p, n in zip(axes, table.shape, strict=False)) or len(
            axes
        ) > len(table.shape):
            got = f"{[p.shape for p in axes]} and {table.shape}"
            raise ShapeError(explained(op, "a vector of points for each of the first axes", got, "one for each value"))
        coordinates = _coordinates(op, xi, len(axes))
        shape = coordinates[0].shape
        flat = [reshape(c, (-1,)) for c in coordinates]
        found = _nearest(axes, table, flat) if way == "nearest" else _multilinear(axes, table, flat)
        if self.fill_value is not None:
            outside: Any = False
            for c, p in zip(flat, axes, strict=True):
                outside = outside | (c < p[0]) | (c > p[-1])
            outside = reshape(outside, (-1, *(1,) * (len(found.shape) - 1)))
            found = where(outside, cast(as_tensor(self.fill_value), found._value.dtype), found)
        return reshape(found, (*shape, *found.shape[1:]))


def _check_method(op: str, method: str) -> None:
    if method not in ("linear", "nearest"):
        fix = "of higher order: lg.ndimage.map_coordinates on grids with one step, lg.interpolate.CubicSpline"
        raise ValueError(explained(op, "method 'linear' or 'nearest'", repr(method), fix))


def _coordinates(op: str, xi: Any, count: int) -> list[Tensor]:
    if isinstance(xi, tuple) and not (len(xi) == 1 and len(as_tensor(xi[0]).shape) > 1):
        found = list(broadcast_arrays(*[as_float(c) for c in xi]))
    else:
        t = as_float(xi[0] if isinstance(xi, tuple) else xi)
        t = t[..., None] if count == 1 and (not t.shape or t.shape[-1] != 1) else t
        found = [t[..., d] for d in range(t.shape[-1])]
    if len(found) != count:
        raise ShapeError(explained(op, f"{count} coordinates", len(found), "the last axis has one for each axis"))
    return found


def _pieces(points: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """In which piece a coordinate is, and how far, from 0 to 1."""
    count = points.shape[0]
    piece = clip(searchsorted(points, at, side="right") - 1, 0, max(count - 2, 0))
    if count == 1:
        return piece, zeros(at.shape, dtype=at.dtype)
    start = points[piece]
    return piece, (at - start) / (points[piece + 1] - start)


def _multilinear(axes: Sequence[Tensor], table: Tensor, flat: Sequence[Tensor]) -> Tensor:
    sides = []
    for points, at in zip(axes, flat, strict=True):
        piece, part = _pieces(points, at)
        last = points.shape[0] - 1
        sides.append([(piece, 1.0 - part), (clip(piece + 1, 0, last), part)])
    found: Any = 0.0
    ends = (-1, *(1,) * (len(table.shape) - len(axes)))
    for corner in product(*sides):
        element = table[tuple([place for place, _ in corner])]
        for _, weight in corner:
            element = element * reshape(weight, ends)
        found = found + element
    result: Tensor = found
    return result


def _nearest(axes: Sequence[Tensor], table: Tensor, flat: Sequence[Tensor]) -> Tensor:
    places = []
    for points, at in zip(axes, flat, strict=True):
        piece, part = _pieces(points, at)
        places.append(clip(where(part <= 0.5, piece, piece + 1), 0, points.shape[0] - 1))
    return table[tuple(places)]


@repeated
def interpn(
    points: Sequence[ArrayLike], values: ArrayLike, xi: Any, method: str = "linear", bounds_error: bool = False,
    fill_value: Any = float("nan"),
) -> Tensor:  # fmt: skip
    """`RegularGridInterpolator` of the points and values, at `xi`: shapes, dtypes and errors are its own.

    >>> lg.interpolate.interpn(([0.0, 1.0],), lg.asarray([0.0, 4.0]), [[0.25]])
    Tensor([1.], dtype=float64)
    """
    return RegularGridInterpolator(tuple(points), values, method, bounds_error, fill_value)(xi)
