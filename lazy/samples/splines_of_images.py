"""Images between their pixels: B-splines through the elements of an array, whose coefficients a filter finds.

M. Unser, A. Aldroubi and M. Eden, B-spline signal processing (1993). The filter's response falls by a constant factor
from element to element, so it is a correlation with as many weights as floats have digits for: no recursion.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.types import int64
from loopgrad.lazy.numpy.creation import arange, asarray
from loopgrad.lazy.numpy.elementwise import floor, logical_and, stop_gradient
from loopgrad.lazy.numpy.movement import stack
from loopgrad.lazy.numpy.repetition import meshgrid
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.samples.borders import check_mode, coordinate_inside, extended, place_inside
from loopgrad.lazy.samples.image_filters import correlated_along
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float, normal_axis, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_NDIMAGE: Final = "affine_transform map_coordinates rotate shift spline_filter spline_filter1d zoom"
# of the filters that find coefficients, by the order of the spline
POLES: Final[dict[int, tuple[float, ...]]] = {
    0: (), 1: (), 2: (math.sqrt(8.0) - 3.0,), 3: (math.sqrt(3.0) - 2.0,),
    4: (
        math.sqrt(664.0 - math.sqrt(438976.0)) + math.sqrt(304.0) - 19.0,
        math.sqrt(664.0 + math.sqrt(438976.0)) - math.sqrt(304.0) - 19.0,
    ),
    5: (
        math.sqrt(67.5 - math.sqrt(4436.25)) + math.sqrt(26.25) - 6.5,
        math.sqrt(67.5 + math.sqrt(4436.25)) - math.sqrt(26.25) - 6.5,
    ),
}  # fmt: skip
AROUND: Final = 12  # elements that SciPy puts around an image whose borders aren't those of its spline
# what the filter finds beyond the borders
_FILTERED: Final = {
    "constant": "mirror", "grid-constant": "mirror", "mirror": "mirror", "wrap": "mirror", "reflect": "reflect",
    "grid-mirror": "reflect", "nearest": "reflect", "grid-wrap": "grid-wrap",
}  # fmt: skip


def _known_order(op: str, order: Any) -> int:
    known = whole_number(op, "an order from 0 to 5", order)
    if known not in POLES:
        raise ValueError(explained(op, "an order from 0 to 5", repr(order), "3 is cubic"))
    return known


@repeated
def spline_filter1d(input: ArrayLike, order: int = 3, axis: int = -1, *, mode: str = "mirror") -> Tensor:
    """The coefficients along an axis of the spline through the elements: the shape stays, integers give the default
    float. Raises ValueError for an order that isn't from 0 to 5, or an unknown mode.

    >>> lg.ndimage.spline_filter1d([0.0, 1.0, 0.0])
    Tensor([-1.,  2., -1.], dtype=float64)
    """
    order = _known_order("spline_filter1d", order)
    check_mode("spline_filter1d", mode)
    x = as_float(input)
    return _coefficients(x, order, normal_axis("spline_filter1d", axis, len(x.shape)), _FILTERED[mode])


def _coefficients(x: Tensor, order: int, axis: int, mode: str) -> Tensor:
    if x.shape[axis] < 2:
        return x
    digits = math.log(1e-17 if x._value.dtype.part.bits == 64 else 1e-9)
    for pole in POLES[order]:
        reach = math.ceil(digits / math.log(abs(pole)))
        gain = (1.0 - pole) * (1.0 - 1.0 / pole)
        weights = gain * pole / (pole * pole - 1.0) * pole ** np.abs(np.arange(-reach, reach + 1))
        x = correlated_along(x, axis, weights, mode, 0.0, 0)
    return x


@repeated
def spline_filter(input: ArrayLike, order: int = 3, *, mode: str = "mirror") -> Tensor:
    """`spline_filter1d` along all axes, with its dtypes and errors.

    >>> lg.ndimage.spline_filter([0.0, 1.0, 0.0])
    Tensor([-1.,  2., -1.], dtype=float64)
    """
    x = as_float(input)
    for axis in range(len(x.shape)):
        x = spline_filter1d(x, order, axis, mode=mode)
    return x


def _weights(order: int, distance: Tensor) -> list[Tensor]:
    """Of the elements around, for the distance (from -1/2 or 0) to the middle one: B-splines by de Boor's recurrence,
    of which those of an order are made from those of the one below."""
    start = 0.0 if order % 2 else 0.5
    t = distance + start
    weights: list[Any] = [1.0]
    for k in range(1, order + 1):
        left = [t + (k - 1 - j) for j in range(k)]  # how far the support of each began before
        parts = [w * u / k for w, u in zip(weights, left, strict=True)]
        rests = [w * (k - u) / k for w, u in zip(weights, left, strict=True)]
        weights = [rests[0], *[a + b for a, b in zip(parts[:-1], rests[1:], strict=True)], parts[-1]]
    return weights


@repeated
def map_coordinates(
    input: ArrayLike, coordinates: ArrayLike, order: int = 3, mode: str = "constant", cval: ArrayLike = 0.0,
    prefilter: bool = True,
) -> Tensor:  # fmt: skip
    """The array between its elements, at `coordinates` of shape (axes, ...): by splines of an order from 0 (the nearest
    element) to 5. The result has the shape of one coordinate, and a float dtype. Derivatives flow to both.

    Beyond the borders elements are `cval` ("constant", with "grid-constant" interpolated with the last ones), the last
    ones ("nearest"), mirrored ("reflect" twice the last one, "mirror" once), or come again ("grid-wrap"; "wrap" with
    the first on the last one). `input` has coefficients already without `prefilter`. Raises ShapeError unless there is
    a coordinate for each axis, ValueError for other orders and modes.

    >>> lg.ndimage.map_coordinates(lg.asarray([0.0, 10.0, 40.0]), [[0.5, 1.5]], order=1)
    Tensor([ 5., 25.], dtype=float64)
    """
    order = _known_order("map_coordinates", order)
    check_mode("map_coordinates", mode)
    x, where_to = as_float(input), as_float(coordinates)
    rank = len(x.shape)
    if not where_to.shape or where_to.shape[0] != rank:
        fix = "stack them along a first axis"
        raise ShapeError(explained("map_coordinates", f"{rank} coordinates", where_to._value.type, fix))
    places = [where_to[d] for d in range(rank)]
    outside: Any = False
    if mode == "constant":
        for place, count in zip(places, x.shape, strict=True):
            outside = outside | (place < 0.0) | (place > count - 1.0)
        places = [where(outside, 0.0, place) for place in places]
    if prefilter and order > 1:
        if mode in ("nearest", "grid-constant"):
            for axis in range(rank):
                x = extended(x, axis, AROUND, AROUND, mode, cval)
            places = [place + float(AROUND) for place in places]
        for axis in range(rank):
            x = _coefficients(x, order, axis, _FILTERED[mode])
    found = _interpolated(x, places, order, mode, cval)
    return where(outside, cast(as_tensor(cval), found._value.dtype), found) if mode == "constant" else found


def _interpolated(x: Tensor, places: list[Tensor], order: int, mode: str, cval: ArrayLike) -> Tensor:
    """The sum over the elements around each place of their weights times them."""
    axes = []
    for place, count in zip(places, x.shape, strict=True):
        at = coordinate_inside(place, count, mode)
        first = stop_gradient(floor(at) if order % 2 else floor(at + 0.5))
        start = cast(first, int64) - order // 2
        around = [start + k for k in range(order + 1)]
        inside = [logical_and(k >= 0, k < count) for k in around]
        known = [place_inside(k, count, mode) for k in around]
        axes.append(list(zip(known, inside, _weights(order, at - first), strict=True)))
    total: Any = 0.0
    for corner in product(*axes):
        element = x[tuple([place for place, _, _ in corner])]
        if mode == "grid-constant":
            there: Any = True
            for _, inside_axis, _ in corner:
                there = logical_and(there, inside_axis)
            element = where(there, element, cast(as_tensor(cval), element._value.dtype))
        for _, _, weight in corner:
            element = element * weight
        total = total + element
    result: Tensor = total
    return result


def _grid(shape: tuple[int, ...], dtype: Any) -> Tensor:
    """The coordinates of all elements, along a first axis."""
    return stack(meshgrid(*[arange(n, dtype=dtype.part) for n in shape], indexing="ij"))


@repeated
def affine_transform(
    input: ArrayLike, matrix: ArrayLike, offset: ArrayLike = 0.0, output_shape: tuple[int, ...] | None = None, *,
    order: int = 3, mode: str = "constant", cval: ArrayLike = 0.0, prefilter: bool = True,
) -> Tensor:  # fmt: skip
    """The array at `matrix @ o + offset` for each element o of the result, of `output_shape` (the array's). A vector as
    matrix is its diagonal, one of (n + 1) columns has the offset in its last. Derivatives flow to all three; orders,
    modes and errors are those of `map_coordinates`.

    >>> lg.ndimage.affine_transform(lg.asarray([0.0, 1.0, 2.0, 3.0]), [2.0], order=1, output_shape=(2,))
    Tensor([0., 2.], dtype=float64)
    """
    x, m = as_float(input), as_float(matrix)
    rank = len(x.shape)
    moved = as_float(offset)
    if len(m.shape) == 2 and m.shape[-1] == rank + 1:
        m, moved = m[:rank, :rank], m[:rank, rank]
    grid = _grid(output_shape or x.shape, x._value.dtype)
    ends = (rank, *(1,) * rank)
    turned = m.reshape(ends) * grid if len(m.shape) == 1 else (m @ grid.reshape(rank, -1)).reshape(grid.shape)
    shifted = turned + (moved.reshape(ends) if moved.shape else moved)
    return map_coordinates(x, shifted, order, mode, cval, prefilter)


@repeated
def shift(
    input: ArrayLike, shift: ArrayLike, *, order: int = 3, mode: str = "constant", cval: ArrayLike = 0.0,
    prefilter: bool = True,
) -> Tensor:  # fmt: skip
    """The array moved by `shift` elements, a float or one for each axis, differentiable by it. Orders, modes and errors
    are those of `map_coordinates`.

    >>> lg.ndimage.shift(lg.asarray([0.0, 1.0, 2.0]), 0.5, order=1, mode="nearest")
    Tensor([0. , 0.5, 1.5], dtype=float64)
    """
    x, by = as_float(input), as_float(shift)
    rank = len(x.shape)
    grid = _grid(x.shape, x._value.dtype)
    moved = grid - (by.reshape((rank, *(1,) * rank)) if by.shape else by)
    return map_coordinates(x, moved, order, mode, cval, prefilter)


@repeated
def zoom(
    input: ArrayLike, zoom: Any, *, order: int = 3, mode: str = "constant", cval: ArrayLike = 0.0,
    prefilter: bool = True, grid_mode: bool = False,
) -> Tensor:  # fmt: skip
    """The array in another size: each extent times `zoom`, a float or one for each axis, rounded. The first and the
    last element stay what they are; with `grid_mode` the borders around them do. Orders, modes and errors are those of
    `map_coordinates`; a negative `zoom` raises ValueError.

    >>> lg.ndimage.zoom(lg.asarray([0.0, 1.0]), 1.5, order=1)
    Tensor([0. , 0.5, 1. ], dtype=float64)
    """
    x = as_float(input)
    factors = [float(f) for f in np.broadcast_to(np.asarray(zoom, float), len(x.shape))]
    if any(f < 0.0 for f in factors):
        raise ValueError(explained("zoom", "factors of at least 0", zoom, "flip the axis for the other direction"))
    shape = tuple([round(n * f) for n, f in zip(x.shape, factors, strict=True)])
    if grid_mode:
        steps = [n / m if m else 1.0 for n, m in zip(x.shape, shape, strict=True)]
        offsets = [0.5 * s - 0.5 for s in steps]
    else:
        steps = [(n - 1) / (m - 1) if m > 1 else 1.0 for n, m in zip(x.shape, shape, strict=True)]
        offsets = [0.0] * len(steps)
    ends = (len(shape), *(1,) * len(shape))
    grid = _grid(shape, x._value.dtype)
    places = asarray(steps, grid.dtype).reshape(ends) * grid + asarray(offsets, grid.dtype).reshape(ends)
    if mode == "constant" and not grid_mode:  # the last element isn't outside for a rounding
        places = stack([where(p > n - 1.0, n - 1.0, p) for p, n in zip(places, x.shape, strict=True)])
    return map_coordinates(x, places, order, mode, cval, prefilter)


@repeated
def rotate(
    input: ArrayLike, angle: float, axes: tuple[int, int] = (1, 0), reshape: bool = True, *, order: int = 3,
    mode: str = "constant", cval: ArrayLike = 0.0, prefilter: bool = True,
) -> Tensor:  # fmt: skip
    """The array turned by `angle` degrees in the plane of two axes, around its middle; with `reshape` in a shape that
    holds all of it. Orders, modes and errors are those of `map_coordinates`.

    >>> lg.ndimage.rotate(lg.asarray([[1.0, 2.0], [3.0, 4.0]]), 90.0, order=1).round(6)
    Tensor([[2., 4.],
            [1., 3.]], dtype=float64)
    """
    x = as_float(input)
    first, second = sorted(normal_axis("rotate", a, len(x.shape)) for a in axes)
    turn = math.radians(angle % 360.0)
    quarters = angle / 90.0
    exact = [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)]
    c, s = exact[int(quarters) % 4] if quarters == int(quarters) else (math.cos(turn), math.sin(turn))
    plane = np.array([[c, s], [-s, c]])
    extents = np.array([x.shape[first], x.shape[second]])
    shape = list(x.shape)
    if reshape:
        height, width = extents
        corners = plane @ np.array([[0, 0, height, height], [0, width, 0, width]])
        shape[first], shape[second] = (int(n) for n in (np.ptp(corners, axis=1) + 0.5))
    middle = (extents - 1) / 2 - plane @ ((np.array([shape[first], shape[second]]) - 1) / 2)
    matrix, offset = np.eye(len(shape)), np.zeros(len(shape))
    matrix[np.ix_((first, second), (first, second))] = plane
    offset[[first, second]] = middle
    return affine_transform(x, matrix, offset, tuple(shape), order=order, mode=mode, cval=cval, prefilter=prefilter)
