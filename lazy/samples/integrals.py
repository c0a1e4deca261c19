"""Integrals of functions that are known at points of an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import asarray, zeros_like
from loopgrad.lazy.numpy.movement import broadcast_to, concat, flip, moveaxis
from loopgrad.lazy.numpy.reduction import diff
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sampled_functions import trapezoid
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.promotion import float_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_INTEGRATE: Final = "cumulative_simpson cumulative_trapezoid fixed_quad simpson trapezoid"
__all__ = ["trapezoid"]


def _along(op: str, y: ArrayLike, x: ArrayLike | None, dx: ArrayLike, axis: int) -> tuple[Tensor, Tensor, int]:
    """The samples with their axis last, the widths between them, which broadcast, and that axis."""
    values = as_tensor(y)
    dtype = float_dtype(values._value.dtype)
    d = normal_axis(op, axis, len(values.shape))
    values = moveaxis(cast(values, dtype), d, -1)
    count = values.shape[-1]
    if not count:
        raise ShapeError(explained(op, "samples along the axis", values._value.type, "pass at least one"))
    if x is None:
        return values, broadcast_to(cast(as_tensor(dx), dtype.part), (count - 1,)), d
    points = as_tensor(x)
    points = points if len(points.shape) < 2 else moveaxis(points, d, -1)
    if not points.shape or points.shape[-1] != count:
        raise ShapeError(explained(op, f"{count} points along the axis", points._value.type, "one for each sample"))
    return values, diff(cast(points, dtype.part), axis=-1), d


@repeated
def simpson(y: ArrayLike, x: ArrayLike | None = None, *, dx: ArrayLike = 1.0, axis: int = -1) -> Tensor:
    """The integral of y along an axis by Simpson's rule, at points x or `dx` apart; the result lacks the axis.

    x is a vector along the axis, or has y's shape; integers give the default float. With an even number of points the
    last piece is that of the parabola through the last three (K. Cartwright, 2017). Raises ShapeError without points,
    or where there aren't as many of x.

    >>> lg.integrate.simpson([0.0, 1.0, 4.0, 9.0])
    Tensor(9., dtype=float64)
    """
    f, h, _ = _along("simpson", y, x, dx, axis)
    count = f.shape[-1]
    if count < 3:
        return total(0.5 * h * (f[..., 1:] + f[..., :-1]), axis=-1)
    pairs = (count - 1) // 2
    left, right = h[..., 0 : 2 * pairs : 2], h[..., 1 : 2 * pairs : 2]
    both = left + right
    first, middle, last = (f[..., k : k + 2 * pairs - 1 : 2] for k in range(3))
    weighted = (2.0 - right / left) * first + both * both / (left * right) * middle + (2.0 - left / right) * last
    whole: Tensor = total(both / 6.0 * weighted, axis=-1)
    if count % 2:
        return whole
    piece: Tensor = _first_piece(flip(f, axis=-1)[..., :3], flip(h, axis=-1)[..., :2])[..., 0]
    return whole + piece


def _first_piece(f: Tensor, h: Tensor) -> Tensor:
    """For every three neighbours the integral between the first two of the parabola through them."""
    width, after = h[..., :-1], h[..., 1:]
    part, ratio = width / (width + after), width / after
    bend = part * ratio
    ends = (3.0 - part) * f[..., :-2] + (3.0 + bend + part) * f[..., 1:-1] - bend * f[..., 2:]
    return width / 6.0 * ends


def _running(pieces: Tensor, initial: ArrayLike | None, axis: int) -> Tensor:
    running = cumsum(pieces, axis=-1)
    if initial is not None:
        start = broadcast_to(cast(as_tensor(initial), running._value.dtype), (*running.shape[:-1], 1))
        running = concat([start, running + start], axis=-1)
    return moveaxis(running, -1, axis)


@repeated
def cumulative_trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1, initial: ArrayLike | None = None
) -> Tensor:
    """Running integrals of y along an axis by the trapezoidal rule: one less than there are points, or as many with
    `initial`, the first, which is 0. Arguments, dtypes and errors are those of `simpson`.

    >>> lg.integrate.cumulative_trapezoid([0.0, 2.0, 4.0], initial=0)
    Tensor([0., 1., 4.], dtype=float64)
    """
    f, h, d = _along("cumulative_trapezoid", y, x, dx, axis)
    return _running(0.5 * h * (f[..., 1:] + f[..., :-1]), initial, d)


@repeated
def cumulative_simpson(
    y: ArrayLike, *, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1,
    initial: ArrayLike | None = None,
) -> Tensor:  # fmt: skip
    """Running integrals of y along an axis by parabolas through three points (K. Cartwright, 2017): one less than there
    are points, or as many with `initial`, which is added to all. Arguments, dtypes and errors are those of `simpson`;
    of less than three points those of `cumulative_trapezoid`.

    >>> lg.integrate.cumulative_simpson([0.0, 1.0, 4.0], initial=0)
    Tensor([0.        , 0.33333333, 2.66666667], dtype=float64)
    """
    f, h, d = _along("cumulative_simpson", y, x, dx, axis)
    count = f.shape[-1]
    if count < 3:
        return _running(0.5 * h * (f[..., 1:] + f[..., :-1]), initial, d)
    forwards = _first_piece(f, h)
    backwards = flip(_first_piece(flip(f, axis=-1), flip(h, axis=-1)), axis=-1)
    missing = zeros_like(forwards[..., :1])
    even = np.arange(count - 1) % 2 == 0
    even[-1] = False
    pieces = where(even, concat([forwards, missing], axis=-1), concat([missing, backwards], axis=-1))
    return _running(pieces, initial, d)


def fixed_quad(
    func: Callable[..., Any], a: ArrayLike, b: ArrayLike, args: Sequence[Any] = (), n: int = 5
) -> tuple[Tensor, None]:
    """The integral of `func(x, *args)`, for a vector x of points behind its other axes, from a to b by Gauss and
    Legendre's rule of n points; and None, as SciPy's. Derivatives flow to both ends, and through `func`.

    >>> lg.integrate.fixed_quad(lambda x: x**2, 0.0, 3.0)[0]
    Tensor(9., dtype=float64)
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    low, high = as_tensor(a), as_tensor(b)
    points = (high - low) * (asarray(nodes) + 1.0) / 2.0 + low
    return (high - low) / 2.0 * total(weights * as_tensor(func(points, *args)), axis=-1), None
