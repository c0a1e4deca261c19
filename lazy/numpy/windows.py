"""Windows of signal processing, of the default float, and the Bessel function that Kaiser's is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.types import float32
from loopgrad.lazy.numpy.creation import arange, ones
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    add,
    cos,
    divide,
    exp,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    negative,
    reciprocal,
    sqrt,
    subtract,
)
from loopgrad.lazy.numpy.special_values import isinf, isnan, where
from loopgrad.lazy.tensor.config import default_dtype
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, cast
from loopgrad.lazy.tensor.operands import as_float, dtype_refused, whole_number
from loopgrad.lazy.tensor.promotion import promote
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "bartlett blackman hamming hanning i0 kaiser"


def _points(op: str, count: Any) -> int:
    return whole_number(op, "an integer number of points", count)


def _cosines(n: int, weights: Sequence[float]) -> Tensor:
    """The sum of weights[k] * cos(k * angle), where the angle goes from -pi to pi in n steps."""
    if n <= 1:
        return ones((max(n, 0),))
    steps = arange(1 - n, n, 2, dtype=default_dtype())
    total: Tensor = as_tensor(weights[0])
    for k, weight in enumerate(weights[1:], 1):
        total = add(total, multiply(weight, cos(multiply(steps, k * math.pi / (n - 1)))))
    return total


@repeated
def hanning(M: int) -> Tensor:
    """The Hann window of M points, 1/2 + cos(a) / 2 for a from -pi to pi: a vector; [1.] for one point.

    >>> lg.hanning(3)
    Tensor([0., 1., 0.], dtype=float64)
    """
    return _cosines(_points("hanning", M), (0.5, 0.5))


@repeated
def hamming(M: int) -> Tensor:
    """The Hamming window of M points, 0.54 + 0.46 cos(a) for a from -pi to pi: a vector; [1.] for one point.

    >>> lg.hamming(3)
    Tensor([0.08, 1.  , 0.08], dtype=float64)
    """
    return _cosines(_points("hamming", M), (0.54, 0.46))


@repeated
def blackman(M: int) -> Tensor:
    """The Blackman window of M points, 0.42 + 0.5 cos(a) + 0.08 cos(2a) for a from -pi to pi: a vector.

    >>> lg.blackman(5)[2]
    Tensor(1., dtype=float64)
    """
    return _cosines(_points("blackman", M), (0.42, 0.5, 0.08))


@repeated
def bartlett(M: int) -> Tensor:
    """The triangle of M points from 0 to 1 and back: a vector; [1.] for one point.

    >>> lg.bartlett(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ], dtype=float64)
    """
    M = _points("bartlett", M)
    if M <= 1:
        return ones((max(M, 0),))
    steps = arange(1 - M, M, 2, dtype=default_dtype())
    return where(less_equal(steps, 0), add(1.0, divide(steps, M - 1)), subtract(1.0, divide(steps, M - 1)))


@repeated
def kaiser(M: int, beta: ArrayLike) -> Tensor:
    """The Kaiser window of M points, i0(beta sqrt(1 - a^2)) / i0(beta) for a from -1 to 1: a vector; [1.] for one.

    `beta` is a number or a tensor of shape (), by which it can be differentiated.

    >>> lg.kaiser(3, 0.0)
    Tensor([1., 1., 1.], dtype=float64)
    """
    M = _points("kaiser", M)
    if M <= 1:
        return ones((max(M, 0),))
    part = divide(arange(1 - M, M, 2, dtype=default_dtype()), M - 1)
    inside = subtract(1.0, multiply(part, part))
    edge = less_equal(inside, 0.0)
    root = where(edge, 0.0, sqrt(where(edge, 1.0, inside)))
    wide = as_float(beta)  # a float16 beta is as good a number as others: its window isn't computed in that
    wide = wide if wide._weak else cast(wide, promote(wide._value.dtype, part._value.dtype))
    return divide(i0(multiply(wide, root)), i0(wide))


# Below this size the power series, whose terms all have one sign; beyond it sqrt(x) exp(-x) i0(x) as Chebyshev
# polynomials in 16 / x - 1, computed with 40 digits.
_BORDER: Final = 8.0
_SERIES: Final = tuple([1.0 / (4.0**k * math.factorial(k) ** 2) for k in range(34)])
_BEYOND: Final = (
    0.4022452055070544158, 0.0033691164782556940899, 6.8897583469168239843e-5, 2.891370520834756483e-6,
    2.0489185894690637418e-7, 2.2666689904981780646e-8, 3.3962320257083863452e-9, 4.9406023882249695891e-10,
    1.1889147107846438342e-11, -3.1499165279632413645e-11, -1.3215811840447713119e-11, -1.7941785315068061178e-12,
    7.1801244513836662337e-13, 3.8527783827421427011e-13, 1.5400862175214098269e-14, -4.1505693472872220866e-14,
    -9.5548466988283076487e-15, 3.8116806693526224207e-15, 1.7725601330565263836e-15, -3.4254856196772191346e-16,
    -2.8276239805165834849e-16,
)  # fmt: skip


_LARGEST: Final = 713.98690854396826  # where i0 overflows in float64, and in float32
_LARGEST_SINGLE: Final = 91.900764611664224


@repeated
def i0(x: ArrayLike) -> Tensor:
    """The modified Bessel function of the first kind and order 0; the shape stays, integers give the default float.

    >>> lg.i0([0.0, 1.0])
    Tensor([1.        , 1.26606588], dtype=float64)
    """
    t = as_tensor(x)
    if t._value.dtype.kind == "c":
        raise dtype_refused("i0", "biuf", t._value.dtype)
    t = as_float(t)
    if t._value.dtype.bits == 16:
        return cast(i0(cast(t, float32)), t._value.dtype)
    largest = _LARGEST if t._value.dtype.bits == 64 else _LARGEST_SINGLE
    near, finite, series, beyond, outer = _pieces(t, largest)
    half = exp(multiply(outer, 0.5))  # twice, since exp(x) overflows before the result does
    found = where(near, series, multiply(beyond, multiply(divide(half, sqrt(outer)), half)))
    endless = logical_or(logical_and(logical_not(finite), logical_not(isnan(t))), isinf(found))
    square = multiply(t, t)
    steep = multiply(float("inf"), where(endless, square, 1.0))  # with its slopes
    return where(isnan(t), exp(t), where(endless, steep, found))


def scaled_i0(t: Tensor) -> Tensor:
    """exp(-|t|) * i0(t) of floats of at least 32 bits."""
    near, finite, series, beyond, outer = _pieces(t)
    close = multiply(series, exp(negative(where(near, absolute(t), 0.0))))
    return where(near, close, where(finite, divide(beyond, sqrt(outer)), reciprocal(where(finite, 1.0, absolute(t)))))


def _pieces(t: Tensor, largest: float = float("inf")) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Whether t is near, and below the largest; i0 near 0, exp(-|t|) * i0(t) beyond times the root of |t|, and |t|."""
    size = absolute(t)
    near = less_equal(size, _BORDER)
    inner = where(near, t, 0.0)
    square = multiply(inner, inner)
    terms = _SERIES if t._value.dtype.bits == 64 else _SERIES[:18]  # more have derivatives that overflow on the way
    series: Tensor = as_tensor(terms[-1])
    for coefficient in terms[-2::-1]:
        series = add(multiply(series, square), coefficient)
    finite = less(size, largest)
    outer = where(finite, where(near, _BORDER, size), _BORDER)
    at = subtract(divide(2.0 * _BORDER, outer), 1.0)
    last: Tensor = as_tensor(0.0)
    before: Tensor = as_tensor(0.0)
    for coefficient in _BEYOND[:0:-1]:  # Clenshaw's recurrence
        last, before = add(subtract(multiply(multiply(2.0, at), last), before), coefficient), last
    beyond = add(subtract(multiply(at, last), before), _BEYOND[0])
    return near, finite, series, beyond, outer
