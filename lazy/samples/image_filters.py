"""Filters of images: sums, extremes and ranks over the elements around each one, by SciPy's names (`scipy.ndimage`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.convolution import conv
from loopgrad.lazy.numpy.elementwise import exp, maximum, minimum, sqrt
from loopgrad.lazy.numpy.movement import flip, moveaxis, reshape, stack
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.sorting import sort
from loopgrad.lazy.samples.borders import check_mode, surrounded
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float, normal_axes, normal_axis, whole_number
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

MOST_DERIVATIVES: Final = 1000  # of weights: each multiplies their polynomial
PUBLIC_NDIMAGE: Final = (
    "convolve convolve1d correlate correlate1d gaussian_filter gaussian_filter1d gaussian_gradient_magnitude "
    "gaussian_laplace laplace maximum_filter median_filter minimum_filter percentile_filter prewitt rank_filter sobel "
    "uniform_filter uniform_filter1d"
)


def correlated_along(x: Tensor, axis: int, weights: Any, mode: str, cval: ArrayLike, origin: int) -> Tensor:
    """The sums of weights times the elements around each one along an axis."""
    count = len(weights)
    wide = moveaxis(surrounded("correlate1d", x, axis, count, origin, mode, cval), axis, -1)
    kernel = cast(as_tensor(weights), wide._value.dtype)
    rows = reshape(wide, (prod(wide.shape[:-1]), 1, wide.shape[-1]))
    found = conv(rows, reshape(kernel, (1, 1, count)))
    return moveaxis(reshape(found, (*wide.shape[:-1], found.shape[-1])), -1, axis)


@repeated
def correlate1d(
    input: ArrayLike, weights: ArrayLike, axis: int = -1, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    origin: int = 0,
) -> Tensor:  # fmt: skip
    """For each element the sum of `weights` times the elements around it along an axis: the shape stays, integers give
    the default float. `mode` says what is beyond the borders, as for `map_coordinates`; `origin` moves the weights.
    Raises ShapeError for weights that aren't a vector and an origin beyond them, ValueError for an unknown mode.

    >>> lg.ndimage.correlate1d([1.0, 2.0, 4.0], [-1.0, 0.0, 1.0])
    Tensor([1., 3., 2.], dtype=float64)
    """
    check_mode("correlate1d", mode)
    x, w = as_float(input), as_tensor(weights)
    if len(w.shape) != 1 or not w.shape[0]:
        raise ShapeError(explained("correlate1d", "a vector of weights", w._value.type, "ravel them"))
    return correlated_along(x, normal_axis("correlate1d", axis, len(x.shape)), w, mode, cval, origin)


@repeated
def convolve1d(
    input: ArrayLike, weights: ArrayLike, axis: int = -1, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    origin: int = 0,
) -> Tensor:  # fmt: skip
    """`correlate1d` with the weights from behind, with its dtypes and errors.

    >>> lg.ndimage.convolve1d([1.0, 2.0, 4.0], [-1.0, 0.0, 1.0])
    Tensor([-1., -3., -2.], dtype=float64)
    """
    w = as_tensor(weights)
    even = bool(w.shape) and w.shape[0] % 2 == 0
    return correlate1d(
        input,
        flip(w),
        axis,
        mode=mode,
        cval=cval,
        origin=-whole_number("convolve1d", "an integer origin", origin) - even,
    )


def _for_each(value: Any, rank: int) -> list[Any]:
    """One of a number, or a sequence of them, for each axis."""
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) > 0
    return list(value) if several else [value] * rank


@repeated
def correlate(
    input: ArrayLike, weights: ArrayLike, *, mode: str = "reflect", cval: ArrayLike = 0.0, origin: Any = 0
) -> Tensor:
    """For each element the sum of `weights`, an array of as many axes (up to 3), times the elements around it. Dtypes,
    modes and errors are those of `correlate1d`.

    >>> lg.ndimage.correlate(lg.ones((2, 2)), lg.ones((3, 3)), mode="constant")
    Tensor([[4., 4.],
            [4., 4.]], dtype=float64)
    """
    check_mode("correlate", mode)
    x, w = as_float(input), as_tensor(weights)
    if len(x.shape) != len(w.shape) or not 1 <= len(x.shape) <= 3 or 0 in w.shape:
        expected = "weights with as many axes as the image, up to 3"
        raise ShapeError(explained("correlate", expected, f"{x._value.type} and {w._value.type}", "add axes"))
    for axis, (n, moved) in enumerate(zip(w.shape, _for_each(origin, len(w.shape)), strict=True)):
        x = surrounded("correlate", x, axis, n, moved, mode, cval)
    found: Tensor = conv(x[None, None], cast(w, x._value.dtype)[None, None])[0, 0]
    return found


@repeated
def convolve(
    input: ArrayLike, weights: ArrayLike, *, mode: str = "reflect", cval: ArrayLike = 0.0, origin: Any = 0
) -> Tensor:
    """`correlate` with the weights from behind along each axis, with its dtypes and errors.

    >>> lg.ndimage.convolve([1.0, 2.0, 4.0], [-1.0, 0.0, 1.0])
    Tensor([-1., -3., -2.], dtype=float64)
    """
    w = as_tensor(weights)
    moved = [whole_number("convolve", "integers as origin", o) for o in _for_each(origin, len(w.shape))]
    origins = [-o - (n % 2 == 0) for o, n in zip(moved, w.shape, strict=True)]
    return correlate(input, flip(w), mode=mode, cval=cval, origin=origins)


def _gaussian(sigma: Any, order: int, radius: int) -> Any:
    """Weights of the derivative of an order of a normal density: a polynomial times it, by its recurrence."""
    host = not hasattr(sigma, "_value")
    x = np.arange(-radius, radius + 1.0)
    variance = sigma * sigma
    density = (np.exp if host else exp)(-0.5 * x * x / variance)
    density = density / (density.sum() if host else total(density))
    factor: Any = np.ones(len(x))
    before: Any = np.zeros(len(x))
    for k in range(order):  # Hermite's polynomials, scaled
        factor, before = -(x * factor + k * before) / variance, factor
    return factor * density


@repeated
def gaussian_filter1d(
    input: ArrayLike, sigma: Any, axis: int = -1, order: int = 0, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    truncate: float = 4.0, radius: int | None = None,
) -> Tensor:  # fmt: skip
    """The array smoothed along an axis by a normal density of standard deviation `sigma`, or by its derivative of an
    `order`; weights reach `truncate` deviations far, or `radius` elements. A tensor `sigma` needs the radius, and is
    differentiated. Shapes, dtypes, modes and errors are those of `correlate1d`.

    >>> lg.ndimage.gaussian_filter1d([0.0, 1.0, 0.0], 0.25)
    Tensor([3.35237708e-04, 9.99329525e-01, 3.35237708e-04], dtype=float64)
    """
    order = whole_number("gaussian_filter1d", "a number of derivatives as order", order)
    if not 0 <= order <= MOST_DERIVATIVES:
        expected = f"an order from 0 to {MOST_DERIVATIVES}"
        raise ValueError(explained("gaussian_filter1d", expected, order, "it counts derivatives"))
    if radius is None:
        sigma = float(sigma)
        radius = int(truncate * sigma + 0.5)
    weights = _gaussian(sigma, order, int(radius))
    return correlate1d(input, weights[::-1], axis, mode=mode, cval=cval)


def _chosen_axes(op: str, x: Tensor, axes: Any) -> tuple[int, ...]:
    return normal_axes(op, axes, len(x.shape))


@repeated
def gaussian_filter(
    input: ArrayLike, sigma: Any, order: Any = 0, *, mode: Any = "reflect", cval: ArrayLike = 0.0,
    truncate: float = 4.0, radius: Any = None, axes: Any = None,
) -> Tensor:  # fmt: skip
    """`gaussian_filter1d` along all `axes` (None: each), with a sigma, order, mode and radius for each, or one for all.
    Dtypes and errors are those of it; axes whose sigma is 0 are left as they are.

    >>> lg.ndimage.gaussian_filter(lg.asarray([[0.0, 0.0], [0.0, 4.0]]), 10.0, mode="wrap").round(3)
    Tensor([[1., 1.],
            [1., 1.]], dtype=float64)
    """
    x = as_float(input)
    chosen = _chosen_axes("gaussian_filter", x, axes)
    settings = [_for_each(s, len(chosen)) for s in (sigma, order, mode, radius)]
    for axis, width, which, border, reach in zip(chosen, *settings, strict=True):
        if hasattr(width, "_value") or width > 1e-15:
            x = gaussian_filter1d(x, width, axis, which, mode=border, cval=cval, truncate=truncate, radius=reach)
    return x


@repeated
def uniform_filter1d(
    input: ArrayLike, size: int, axis: int = -1, *, mode: str = "reflect", cval: ArrayLike = 0.0, origin: int = 0
) -> Tensor:
    """The mean of `size` elements around each one along an axis. Shapes, dtypes, modes and errors are those of
    `correlate1d`; a size below 1 raises ValueError.

    >>> lg.ndimage.uniform_filter1d([0.0, 3.0, 0.0], 3)
    Tensor([1., 1., 1.], dtype=float64)
    """
    if size < 1:
        raise ValueError(explained("uniform_filter1d", "a size of at least 1", size, "pass the number of elements"))
    return correlate1d(input, np.full(size, 1.0 / size), axis, mode=mode, cval=cval, origin=origin)


@repeated
def uniform_filter(
    input: ArrayLike, size: Any = 3, *, mode: Any = "reflect", cval: ArrayLike = 0.0, origin: Any = 0,
    axes: Any = None,
) -> Tensor:  # fmt: skip
    """`uniform_filter1d` along all `axes` (None: each), with a size, mode and origin for each, or one for all.

    >>> lg.ndimage.uniform_filter(lg.asarray([[0.0, 0.0], [0.0, 4.0]]), 2, mode="wrap")
    Tensor([[1., 1.],
            [1., 1.]], dtype=float64)
    """
    x = as_float(input)
    chosen = _chosen_axes("uniform_filter", x, axes)
    settings = [_for_each(s, len(chosen)) for s in (size, mode, origin)]
    for axis, width, border, moved in zip(chosen, *settings, strict=True):
        x = uniform_filter1d(x, width, axis, mode=border, cval=cval, origin=moved) if width > 1 else x
    return x


def _slopes(input: ArrayLike, axis: int, mode: str, cval: ArrayLike, smooth: Sequence[float]) -> Tensor:
    x = as_float(input)
    d = normal_axis("sobel", axis, len(x.shape))
    x = correlate1d(x, [-1.0, 0.0, 1.0], d, mode=mode, cval=cval)
    for other in range(len(x.shape)):
        x = x if other == d else correlate1d(x, smooth, other, mode=mode, cval=cval)
    return x


@repeated
def sobel(input: ArrayLike, axis: int = -1, *, mode: str = "reflect", cval: ArrayLike = 0.0) -> Tensor:
    """Differences along an axis, smoothed by 1, 2, 1 along the others. Dtypes and modes are those of `correlate1d`.

    >>> lg.ndimage.sobel([1.0, 2.0, 4.0])
    Tensor([1., 3., 2.], dtype=float64)
    """
    return _slopes(input, axis, mode, cval, (1.0, 2.0, 1.0))


@repeated
def prewitt(input: ArrayLike, axis: int = -1, *, mode: str = "reflect", cval: ArrayLike = 0.0) -> Tensor:
    """Differences along an axis, summed over three along the others. Dtypes and modes are those of `correlate1d`.

    >>> lg.ndimage.prewitt([1.0, 2.0, 4.0])
    Tensor([1., 3., 2.], dtype=float64)
    """
    return _slopes(input, axis, mode, cval, (1.0, 1.0, 1.0))


@repeated
def laplace(input: ArrayLike, *, mode: str = "reflect", cval: ArrayLike = 0.0) -> Tensor:
    """The sum of second differences along all axes. Dtypes and modes are those of `correlate1d`.

    >>> lg.ndimage.laplace([1.0, 2.0, 4.0])
    Tensor([ 1.,  1., -2.], dtype=float64)
    """
    x = as_float(input)
    parts = [correlate1d(x, [1.0, -2.0, 1.0], d, mode=mode, cval=cval) for d in range(len(x.shape))]
    return total(stack(parts), axis=0)


def _of_derivatives(input: ArrayLike, sigma: Any, order: int, how: dict[str, Any]) -> list[Tensor]:
    x = as_float(input)
    rank = len(x.shape)
    return [gaussian_filter(x, sigma, [order * (d == k) for d in range(rank)], **how) for k in range(rank)]


@repeated
def gaussian_laplace(input: ArrayLike, sigma: Any, **how: Any) -> Tensor:
    """The sum of second derivatives of the array smoothed as by `gaussian_filter`, whose keywords it takes: of its
    shape and dtype.

    >>> lg.ndimage.gaussian_laplace([0.0, 1.0, 0.0, 0.0, 0.0], 0.5).round(2)
    Tensor([ 1.29, -3.15,  1.28,  0.02,  0.  ], dtype=float64)
    """
    return total(stack(_of_derivatives(input, sigma, 2, how)), axis=0)


@repeated
def gaussian_gradient_magnitude(input: ArrayLike, sigma: Any, **how: Any) -> Tensor:
    """The length of the gradient of the array smoothed as by `gaussian_filter`, whose keywords it takes: of its
    shape and dtype.

    >>> lg.ndimage.gaussian_gradient_magnitude(lg.ones(4), 1.0).round(6)
    Tensor([0., 0., 0., 0.], dtype=float64)
    """
    return sqrt(total(stack([part * part for part in _of_derivatives(input, sigma, 1, how)]), axis=0))


def _window(op: str, input: ArrayLike, size: Any, footprint: Any, mode: str, cval: Any, origin: Any) -> list[Tensor]:
    """The array moved to each place of a window: the elements around each one."""
    check_mode(op, mode)
    x = as_tensor(input)
    rank = len(x.shape)
    if footprint is None and size is None:
        raise ValueError(explained(op, "a size or a footprint", "none", "pass size=3"))
    chosen = np.ones(_for_each(size, rank), bool) if footprint is None else np.asarray(footprint, bool)
    if chosen.ndim != rank or not chosen.any():
        raise ShapeError(explained(op, f"a window with {rank} axes", chosen.shape, "it has those of the array"))
    shape = x.shape
    for axis, (n, moved) in enumerate(zip(chosen.shape, _for_each(origin, rank), strict=True)):
        x = surrounded(op, x, axis, n, moved, mode, cval)
    places = np.argwhere(chosen).tolist()
    return [x[tuple([slice(p, p + n) for p, n in zip(place, shape, strict=True)])] for place in places]


def _extreme(op: str, function: Callable[[Any, Any], Tensor], *window: Any) -> Tensor:
    parts = _window(op, *window)
    while len(parts) > 1:  # a tree, which is short
        pairs = [function(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


@repeated
def maximum_filter(
    input: ArrayLike, size: Any = None, footprint: Any = None, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    origin: Any = 0,
) -> Tensor:  # fmt: skip
    """The largest element around each one, in a window of `size` (for all axes, or each) or where `footprint` holds.
    Shape and dtype stay; modes are those of `correlate1d`. Raises ValueError without a window, ShapeError for one of
    another number of axes.

    >>> lg.ndimage.maximum_filter([1, 5, 2, 0], 3)
    Tensor([5, 5, 5, 2], dtype=int64)
    """
    return _extreme("maximum_filter", maximum, input, size, footprint, mode, cval, origin)


@repeated
def minimum_filter(
    input: ArrayLike, size: Any = None, footprint: Any = None, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    origin: Any = 0,
) -> Tensor:  # fmt: skip
    """The smallest element around each one; all else is as for `maximum_filter`.

    >>> lg.ndimage.minimum_filter([1, 5, 2, 0], 3)
    Tensor([1, 1, 0, 0], dtype=int64)
    """
    return _extreme("minimum_filter", minimum, input, size, footprint, mode, cval, origin)


@repeated
def rank_filter(
    input: ArrayLike, rank: int, size: Any = None, footprint: Any = None, *, mode: str = "reflect",
    cval: ArrayLike = 0.0, origin: Any = 0,
) -> Tensor:  # fmt: skip
    """Of the elements around each one, in order, that at the place `rank`; all else is as for `maximum_filter`.

    >>> lg.ndimage.rank_filter([1, 5, 2, 0], 1, 3)
    Tensor([1, 2, 2, 0], dtype=int64)
    """
    return _ranked("rank_filter", lambda _: rank, input, size, footprint, mode, cval, origin)


def _ranked(op: str, place: Callable[[int], int], *window: Any) -> Tensor:
    parts = _window(op, *window)
    chosen = place(len(parts))
    if not -len(parts) <= chosen < len(parts):
        raise ValueError(explained(op, f"a rank below {len(parts)}", chosen, "as many elements are around"))
    ordered: Tensor = sort(stack(parts, axis=-1), axis=-1)
    return ordered[..., chosen]


@repeated
def median_filter(
    input: ArrayLike, size: Any = None, footprint: Any = None, *, mode: str = "reflect", cval: ArrayLike = 0.0,
    origin: Any = 0,
) -> Tensor:  # fmt: skip
    """The middle one of the elements around each one; all else is as for `maximum_filter`.

    >>> lg.ndimage.median_filter([1, 5, 2, 0], 3)
    Tensor([1, 2, 2, 0], dtype=int64)
    """
    return _ranked("median_filter", lambda n: n // 2, input, size, footprint, mode, cval, origin)


@repeated
def percentile_filter(
    input: ArrayLike, percentile: float, size: Any = None, footprint: Any = None, *, mode: str = "reflect",
    cval: ArrayLike = 0.0, origin: Any = 0,
) -> Tensor:  # fmt: skip
    """The element below which `percentile` percent of those around are; all else is as for `maximum_filter`.

    >>> lg.ndimage.percentile_filter([1, 5, 2, 0], 100, 3)
    Tensor([5, 5, 5, 2], dtype=int64)
    """
    share = float(percentile)  # of a small integer the products below would wrap
    share = share + 100.0 if share < 0 else share

    def place(count: int) -> int:
        return count - 1 if share == 100 else int(count * share / 100.0)

    return _ranked("percentile_filter", place, input, size, footprint, mode, cval, origin)
