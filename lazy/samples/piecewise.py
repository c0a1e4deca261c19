"""Functions of one variable that are polynomials between points: splines, and what else goes through samples.

Each is a tree of tensors (its coefficients and points), so that compiled functions and transforms take it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, floor, logical_and, logical_or, remainder, sign
from loopgrad.lazy.numpy.linalg.solving import solve
from loopgrad.lazy.numpy.linalg.tridiagonal import eliminated
from loopgrad.lazy.numpy.movement import broadcast_arrays, broadcast_to, concat, moveaxis, reshape, stack
from loopgrad.lazy.numpy.reduction import diff
from loopgrad.lazy.numpy.reduction import max as largest
from loopgrad.lazy.numpy.running_totals import cumsum
from loopgrad.lazy.numpy.sorting import searchsorted
from loopgrad.lazy.numpy.special_values import clip, where
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float, normal_axis
from loopgrad.lazy.tensor.promotion import promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_INTERPOLATE: Final = "Akima1DInterpolator CubicHermiteSpline CubicSpline PchipInterpolator PPoly"
_FIXED: Final = {"static": True}


@dataclass
class PPoly:
    """Polynomials between points: `c` of shape (k, m, ...) has the coefficients of powers of x - x[i], the highest
    first, for the m pieces between m + 1 rising points `x`. Called with points it gives values of shape (points, ...),
    or with the axis of points at `axis`.

    Beyond the ends the first and the last piece go on; with `extrapolate=False` values are NaN there, with "periodic"
    they come again. Derivatives flow to points, coefficients and `x`.

    >>> p = lg.interpolate.PPoly(lg.asarray([[1.0, 0.0], [0.0, 2.0]]), lg.asarray([0.0, 1.0, 2.0]))
    >>> p(lg.asarray([0.5, 1.5]))
    Tensor([0.5, 2. ], dtype=float64)
    """

    c: Any
    x: Any
    extrapolate: bool | str = field(default=True, metadata=_FIXED)
    axis: int = field(default=0, metadata=_FIXED)

    def __call__(self, x: ArrayLike, nu: int = 0, extrapolate: bool | str | None = None) -> Tensor:
        """Values at points of any shape, or derivatives of order `nu`.

        >>> lg.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0])(1.5, 1)
        Tensor(3., dtype=float64)
        """
        if nu:
            return self.derivative(nu)(x, extrapolate=extrapolate)
        points, way = as_tensor(self.x), self.extrapolate if extrapolate is None else extrapolate
        at = cast(as_tensor(x), promote(points._value.dtype, as_float(x)._value.dtype))
        return _values_at(as_tensor(self.c), points, at, way, self.axis)

    def derivative(self, nu: int = 1) -> PPoly:
        """The derivative of order `nu`; of a negative order an antiderivative.

        >>> lg.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0]).derivative()(1.5)
        Tensor(3., dtype=float64)
        """
        if nu < 0:
            return self.antiderivative(-nu)
        c = as_tensor(self.c)
        for _ in range(nu):
            k = c.shape[0]
            powers = np.arange(k - 1, 0, -1.0).reshape((-1, *(1,) * (len(c.shape) - 1)))
            c = c[:-1] * cast(as_tensor(powers), c._value.dtype.part) if k > 1 else zeros_like(c)
        return PPoly(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> PPoly:
        """The antiderivative of order `nu`, which is 0 at the first point and continuous; of periodic ones only between
        the ends, beyond which its values are NaN (`integrate` goes on).

        >>> lg.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0]).antiderivative()(3.0)
        Tensor(9., dtype=float64)
        """
        if nu < 0:
            return self.derivative(-nu)
        c, x = as_tensor(self.c), as_tensor(self.x)
        for _ in range(nu):
            powers = np.arange(c.shape[0], 0, -1.0).reshape((-1, *(1,) * (len(c.shape) - 1)))
            raised = c / cast(as_tensor(powers), c._value.dtype.part)
            width = diff(x).reshape((-1, *(1,) * (len(c.shape) - 2)))
            whole = raised[0]
            for k in range(1, raised.shape[0]):
                whole = whole * width + raised[k]
            before = cumsum(whole * width, axis=0)
            start = concat([zeros_like(before[:1]), before[:-1]], axis=0)
            c = concat([raised, start[None]], axis=0)
        return PPoly(c, x, self.extrapolate if self.extrapolate != "periodic" else False, self.axis)

    def integrate(self, a: ArrayLike, b: ArrayLike, extrapolate: bool | str | None = None) -> Tensor:
        """The integral from a to b, which broadcast; beyond the ends of what a call gives there: NaN for
        `extrapolate=False`.

        >>> lg.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, 1.0, 4.0]).integrate(0.0, 3.0)
        Tensor(9., dtype=float64)
        """
        way = self.extrapolate if extrapolate is None else extrapolate
        whole = self.antiderivative()
        low, high = broadcast_arrays(a, b)
        if way == "periodic":
            return _over_periods(whole, high) - _over_periods(whole, low)
        return whole(high, extrapolate=way) - whole(low, extrapolate=way)


def _over_periods(whole: PPoly, at: Tensor) -> Tensor:
    """The antiderivative at points of what comes again beyond the ends, of which `whole` is the one of one period."""
    points = as_tensor(whole.x)
    period = points[-1] - points[0]
    count = floor((at - points[0]) / period)
    rest = whole(at - count * period, extrapolate=True)
    around = len(rest.shape) - whole.axis - len(at.shape)
    counts = reshape(count, ((1,) * whole.axis + at.shape + (1,) * around))
    return rest + counts * whole(broadcast_to(points[-1], at.shape))


def _samples(op: str, x: ArrayLike, y: ArrayLike, axis: int) -> tuple[Tensor, Tensor, int]:
    """Points, values with their axis first, and that axis."""
    points, values = as_float(x), as_float(y)
    d = normal_axis(op, axis, len(values.shape))
    values = moveaxis(values, d, 0)
    if len(points.shape) != 1 or points.shape[0] < 2 or values.shape[0] != points.shape[0]:
        expected, got = "a vector of at least two points, one for each value", f"{points.shape} and {values.shape}"
        raise ShapeError(explained(op, expected, got, "pass as many points as values"))
    return points, values, d


@repeated
def _values_at(c: Tensor, points: Tensor, at: Tensor, way: bool | str, axis: int) -> Tensor:
    """What a `PPoly` of these parts gives."""
    if way == "periodic":
        at = points[0] + remainder(at - points[0], points[-1] - points[0])
    flat = at.ravel()
    piece = clip(searchsorted(points, flat, side="right") - 1, 0, points.shape[0] - 2)
    rest = (flat - take(points, piece)).reshape((-1, *(1,) * (len(c.shape) - 2)))
    chosen = take(c, piece, axis=1)
    value = chosen[0]
    for k in range(1, chosen.shape[0]):
        value = value * rest + chosen[k]
    if way is False:
        outside = logical_or(flat < points[0], flat > points[-1]).reshape(rest.shape)
        value = where(outside, float("nan"), value)
    shaped = reshape(value, (*at.shape, *value.shape[1:]))
    ours = tuple(range(len(at.shape)))
    return moveaxis(shaped, ours, tuple([axis + d for d in ours])) if axis else shaped


def _widths(points: Tensor, values: Tensor) -> Tensor:
    return diff(points).reshape((-1, *(1,) * (len(values.shape) - 1)))


@repeated
def _hermite(x: Tensor, y: Tensor, slopes: Tensor) -> Tensor:
    """Coefficients of the cubics with these values and slopes at the points."""
    width = _widths(x, y)
    chord = diff(y, axis=0) / width
    bend = (slopes[:-1] + slopes[1:] - 2.0 * chord) / width
    return stack([bend / width, (chord - slopes[:-1]) / width - bend, slopes[:-1], y[:-1]])


def CubicHermiteSpline(
    x: ArrayLike, y: ArrayLike, dydx: ArrayLike, axis: int = 0, extrapolate: bool | str | None = None
) -> PPoly:
    """The `PPoly` of cubics with values y and slopes `dydx` at rising points x, along an axis of both.

    Raises ShapeError unless there are as many points, at least two, as values.

    >>> lg.interpolate.CubicHermiteSpline([0.0, 1.0], [0.0, 1.0], [0.0, 3.0])(0.5)
    Tensor(0.125, dtype=float64)
    """
    points, values, d = _samples("CubicHermiteSpline", x, y, axis)
    return _spline(points, _hermite(points, values, moveaxis(as_float(dydx), d, 0)), d, extrapolate)


def _spline(x: Tensor, c: Tensor, axis: int, extrapolate: bool | str | None) -> PPoly:
    return PPoly(c, x, True if extrapolate is None else extrapolate, axis)


def PchipInterpolator(x: ArrayLike, y: ArrayLike, axis: int = 0, extrapolate: bool | str | None = None) -> PPoly:
    """The `PPoly` of cubics through values y at rising points x that is monotone where they are (F. Fritsch and J.
    Butland, 1984). Arguments, shapes and errors are those of `CubicHermiteSpline`.

    >>> lg.interpolate.PchipInterpolator([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])(1.5)
    Tensor(1., dtype=float64)
    """
    points, values, d = _samples("PchipInterpolator", x, y, axis)
    return _spline(points, _monotone(points, values), d, extrapolate)


@repeated
def _monotone(points: Tensor, values: Tensor) -> Tensor:
    width = _widths(points, values)
    chord = diff(values, axis=0) / width
    if points.shape[0] == 2:
        return _hermite(points, values, concat([chord, chord]))
    before, after = chord[:-1], chord[1:]
    turns = logical_or(sign(before) != sign(after), logical_or(before == 0.0, after == 0.0))
    first, second = 2.0 * width[1:] + width[:-1], width[1:] + 2.0 * width[:-1]
    safe = [where(turns, 1.0, part) for part in (before, after)]
    mean = (first / safe[0] + second / safe[1]) / (first + second)
    inner = where(turns, 0.0, 1.0 / mean)
    ends = [_end_slope(width[a], width[b], chord[a], chord[b])[None] for a, b in ((0, 1), (-1, -2))]
    return _hermite(points, values, concat([ends[0], inner, ends[1]]))


def _end_slope(h0: Tensor, h1: Tensor, m0: Tensor, m1: Tensor) -> Tensor:
    """Of the parabola through three points, as far as that keeps the shape."""
    slope = ((2.0 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    against = sign(slope) != sign(m0)
    steep = logical_and(sign(m0) != sign(m1), absolute(slope) > 3.0 * absolute(m0))
    return where(against, 0.0, where(steep, 3.0 * m0, slope))


def Akima1DInterpolator(
    x: ArrayLike, y: ArrayLike, axis: int = 0, *, method: str = "akima", extrapolate: bool | str | None = None
) -> PPoly:
    """The `PPoly` of cubics whose slopes are means of those of chords, of which equal ones count more (H. Akima, 1970);
    with `method="makima"` modified, so that steps make no waves. NaN beyond the ends unless `extrapolate` says
    otherwise. Arguments, shapes and errors are those of `CubicHermiteSpline`; ValueError for another method.

    >>> lg.interpolate.Akima1DInterpolator([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])(0.5)
    Tensor(0.5, dtype=float64)
    """
    if method not in ("akima", "makima"):
        fix = "pass one of them"
        raise ValueError(explained("Akima1DInterpolator", "method 'akima' or 'makima'", repr(method), fix))
    points, values, d = _samples("Akima1DInterpolator", x, y, axis)
    return _spline(points, _akima(points, values, method), d, False if extrapolate is None else extrapolate)


@repeated
def _akima(points: Tensor, values: Tensor, method: str) -> Tensor:
    chord = diff(values, axis=0) / _widths(points, values)
    if points.shape[0] == 2:
        return _hermite(points, values, concat([chord, chord]))
    low = 2.0 * chord[:1] - chord[1:2]
    high = 2.0 * chord[-1:] - chord[-2:-1]
    m = concat([2.0 * low - chord[:1], low, chord, high, 2.0 * high - chord[-1:]])
    change = absolute(diff(m, axis=0))
    if method == "makima":
        change = change + 0.5 * absolute(m[1:] + m[:-1])
    after, before = change[2:], change[:-2]
    both = after + before
    known = both > (1e-9 * largest(both) if method == "akima" else 0.0)
    mean = (after * m[1:-2] + before * m[2:-1]) / where(known, both, 1.0)
    return _hermite(points, values, where(known, mean, 0.5 * (m[3:] + m[:-3])))


def CubicSpline(
    x: ArrayLike, y: ArrayLike, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: bool | str | None = None
) -> PPoly:
    """The `PPoly` of cubics through values y at rising points x whose first and second derivatives are continuous.

    `bc_type` says how it ends: "not-a-knot" (the first two pieces are one polynomial), "natural" (second derivatives
    are 0), "clamped" (first ones are), "periodic", or for each end one of the first three or (order, value) of a
    derivative. The slopes solve a tridiagonal system, in a loop over the points. Arguments and errors are those of
    `CubicHermiteSpline`, as are shapes and dtypes; ValueError for another `bc_type`.

    >>> lg.interpolate.CubicSpline([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 8.0, 27.0])(1.5)
    Tensor(3.375, dtype=float64)
    """
    points, values, d = _samples("CubicSpline", x, y, axis)
    periodic = isinstance(bc_type, str) and bc_type == "periodic"
    way = "periodic" if periodic and extrapolate is None else extrapolate
    return _spline(points, _cubic(points, values, None if periodic else _ends(bc_type)), d, way)


@repeated
def _cubic(points: Tensor, values: Tensor, ends: list[Any] | None) -> Tensor:
    """The coefficients of cubics that end so; of periodic ones where that is None."""
    width = _widths(points, values)
    chord = diff(values, axis=0) / width
    if ends is None:
        return _hermite(points, values, _periodic_slopes(width, chord))
    if points.shape[0] == 2:
        ends = [(1, chord[0]) if end == "not-a-knot" else end for end in ends]
    if points.shape[0] == 3 and ends == ["not-a-knot"] * 2:
        middle = (width[1] * chord[0] + width[0] * chord[1]) / (width[0] + width[1])
        slopes = stack([2.0 * chord[0] - middle, middle, 2.0 * chord[1] - middle])
        return _hermite(points, values, slopes)
    first = _end_row(ends[0], width[:2, ...], chord[:2], 1.0)
    last = _end_row(ends[1], width[::-1][:2], chord[::-1][:2], -1.0)
    h0, h1 = width[:-1], width[1:]
    diagonal = concat([first[0][None], 2.0 * (h0 + h1), last[0][None]])
    above = concat([first[1][None], h0, zeros_like(width[:1])])
    below = concat([zeros_like(width[:1]), h1, last[1][None]])
    right = concat([first[2][None], 3.0 * (h1 * chord[:-1] + h0 * chord[1:]), last[2][None]])
    return _hermite(points, values, eliminated(below, diagonal, above, right))


def _ends(bc_type: Any) -> list[Any]:
    pair = [bc_type] * 2 if isinstance(bc_type, str) else list(bc_type)
    words = {"natural": (2, 0.0), "clamped": (1, 0.0), "not-a-knot": "not-a-knot"}
    found = [words.get(end) if isinstance(end, str) else end for end in pair]
    if len(found) != 2 or any(end is None or (end != "not-a-knot" and end[0] not in (1, 2)) for end in found):
        expected = "'not-a-knot', 'natural', 'clamped', 'periodic', or two of these or of (order, value)"
        raise ValueError(explained("CubicSpline", expected, repr(bc_type), "pass one of them"))
    return found


def _end_row(end: Any, width: Tensor, chord: Tensor, side: float) -> tuple[Tensor, Tensor, Tensor]:
    """What stands on the diagonal, beside it, and on the right, of the equation of the slope at an end."""
    one = width[0] * 0.0 + 1.0
    if isinstance(end, str):
        both = width[0] + width[1]
        right = ((width[0] + 2.0 * both) * width[1] * chord[0] + width[0] * width[0] * chord[1]) / both
        return width[1], both, right
    order, value = end
    known = as_tensor(value)
    if order == 1:
        return one, 0.0 * one, chord[0] * 0.0 + known
    return 2.0 * width[0], width[0], 3.0 * width[0] * chord[0] - side * 0.5 * width[0] * width[0] * known


def _periodic_slopes(width: Tensor, chord: Tensor) -> Tensor:
    """The system of a ring, which has two corners more."""
    n = chord.shape[0]
    h = width.reshape((n,))
    before = np.roll(np.arange(n), 1)
    h0, h1 = take(h, before), h
    places = np.arange(n)
    matrix = (
        (places[:, None] == places) * (2.0 * (h0 + h1))[:, None]
        + (places[:, None] == np.roll(places, -1)[None, :]) * h1[:, None]
        + (places[:, None] == np.roll(places, 1)[None, :]) * h0[:, None]
    )
    shaped = (-1, *(1,) * (len(chord.shape) - 1))
    right = 3.0 * (h1.reshape(shaped) * take(chord, before, axis=0) + h0.reshape(shaped) * chord)
    slopes = solve(matrix, right.reshape((n, -1))).reshape(chord.shape)
    return concat([slopes, slopes[:1]])
