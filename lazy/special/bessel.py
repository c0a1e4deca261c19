"""Bessel functions of orders 0 and 1: series near 0, beyond them amplitudes and phases or scaled exponentials.

The phases are those of sines and cosines of x itself, which lose nothing for large x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.lazy.numpy.elementwise import cos, exp, log, logical_and, sin, sqrt
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.numpy.windows import i0, scaled_i0
from loopgrad.lazy.special import coefficients as terms
from loopgrad.lazy.special.coefficients import Series
from loopgrad.lazy.special.operands import chebyshev, is_double, of_domain, overflowing, polynomial
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "i0 i0e i1 i1e j0 j1 k0 k0e k1 k1e y0 y1"
__all__ = ["i0"]
NEAR: Final = 8.0
NEAR_K: Final = 2.0
LARGEST_I1, LARGEST_I1_SINGLE = 713.98760981854229, 91.906264840249009  # where it overflows, in float64 and float32
# all terms have one sign, and lose nothing
I1_SERIES: Final = tuple([0.5 / (4.0**k * math.factorial(k) * math.factorial(k + 1)) for k in range(34)])
INFINITY: Final = float("inf")


def _of_square(table: Series, x: Tensor, border: float) -> Tensor:
    return chebyshev(table, (2.0 / border**2) * (x * x) - 1.0)


def _waves(order: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """j and y of x beyond the border."""
    p, q = (terms.P0, terms.Q0) if order == 0 else (terms.P1, terms.Q1)
    ratio = NEAR / x
    t = 2.0 * (ratio * ratio) - 1.0
    amplitude, rest = chebyshev(p, t), ratio * chebyshev(q, t)
    scale = (1.0 / math.sqrt(math.pi)) / sqrt(x)
    c, s = cos(x), sin(x)
    cosine, sine = (c + s, s - c) if order == 0 else (s - c, -(c + s))
    return scale * (amplitude * cosine - rest * sine), scale * (amplitude * sine + rest * cosine)


def _j(order: int, x: Tensor) -> Tensor:
    below = x < 0.0
    size = where(below, -x, x)
    near = size <= NEAR
    inner = where(near, x, 0.0)
    series = _of_square(terms.J0, inner, NEAR) if order == 0 else inner * _of_square(terms.J1, inner, NEAR)
    endless = isinf(size)
    far = _waves(order, where(near, NEAR, where(endless, NEAR, size)))[0]
    if order == 1:
        far = where(below, -far, far)
    return where(near, series, where(endless, 0.0, far))


def _y(order: int, x: Tensor) -> Tensor:
    near = x <= NEAR
    inner = where(near, where(x > 0.0, x, 1.0), 1.0)
    turned = (2.0 / math.pi) * log(inner)
    if order == 0:
        series = turned * _of_square(terms.J0, inner, NEAR) + _of_square(terms.Y0, inner, NEAR)
    else:
        smooth = turned * _of_square(terms.J1, inner, NEAR) + _of_square(terms.Y1, inner, NEAR)
        series = inner * smooth - (2.0 / math.pi) / inner
    endless = isinf(x)
    far = _waves(order, where(near, NEAR, where(endless, NEAR, x)))[1]
    return where(near, where(x > 0.0, series, _at_zero(x)), where(endless, 0.0, far))


def _at_zero(x: Tensor) -> Tensor:
    """What is minus infinity at 0, with an infinite slope, and NaN elsewhere."""
    return where(x == 0.0, log(where(x == 0.0, x, 1.0)), float("nan"))


@repeated_formula
def j0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 0; the shape stays, integers give the default float.

    >>> lg.special.j0([0.0, 1.0])
    Tensor([1.        , 0.76519769], dtype=float64)
    """
    return of_domain("j0", lambda x: _j(0, x), x)


@repeated_formula
def j1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 1; the shape stays, integers give the default float.

    >>> lg.special.j1([0.0, 1.0])
    Tensor([0.        , 0.44005059], dtype=float64)
    """
    return of_domain("j1", lambda x: _j(1, x), x)


@repeated_formula
def y0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 0: -inf at 0, NaN below; the shape stays, integers give the
    default
    float.

    >>> lg.special.y0([1.0])
    Tensor([0.08825696], dtype=float64)
    """
    return of_domain("y0", lambda x: _y(0, x), x)


@repeated_formula
def y1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 1: -inf at 0, NaN below; the shape stays, integers give the
    default
    float.

    >>> lg.special.y1([1.0])
    Tensor([-0.78121282], dtype=float64)
    """
    return of_domain("y1", lambda x: _y(1, x), x)


@repeated_formula
def i0e(x: ArrayLike, /) -> Tensor:
    """exp(-|x|) * i0(x); the shape stays, integers give the default float.

    >>> lg.special.i0e([0.0, 1000.0])
    Tensor([1.        , 0.01261724], dtype=float64)
    """
    return of_domain("i0e", scaled_i0, x)


def _i1(x: Tensor, scaled: bool) -> Tensor:
    below = x < 0.0
    size = where(below, -x, x)
    near = size <= NEAR
    inner = where(near, x, 0.0)
    series = inner * polynomial(I1_SERIES if is_double(x) else I1_SERIES[:18], inner * inner)
    if scaled:
        series = series * exp(where(near, -size, 0.0))
    largest = INFINITY if scaled else LARGEST_I1 if is_double(x) else LARGEST_I1_SINGLE
    endless = size >= largest
    outer = where(near, NEAR, where(endless, NEAR, size))
    beyond = chebyshev(terms.I1_BEYOND, (2.0 * NEAR) / outer - 1.0)
    if scaled:
        far = where(endless, 0.0, beyond / sqrt(outer))
    else:
        half = exp(0.5 * outer)  # twice, since exp(x) overflows before the result does
        far = overflowing(where(endless, INFINITY, beyond * ((half / sqrt(outer)) * half)), size * size)
    return where(near, series, where(below, -far, far))


@repeated_formula
def i1(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and order 1; the shape stays, integers give the default float.

    >>> lg.special.i1([0.0, 1.0])
    Tensor([0.       , 0.5651591], dtype=float64)
    """
    return of_domain("i1", lambda x: _i1(x, scaled=False), x)


@repeated_formula
def i1e(x: ArrayLike, /) -> Tensor:
    """exp(-|x|) * i1(x); the shape stays, integers give the default float.

    >>> lg.special.i1e([1.0, 1000.0])
    Tensor([0.20791042, 0.01261093], dtype=float64)
    """
    return of_domain("i1e", lambda x: _i1(x, scaled=True), x)


def _k(order: int, x: Tensor, scaled: bool) -> Tensor:
    near = x <= NEAR_K
    endless = isinf(1.0 / where(x > 0.0, x, 1.0))  # where order 1 overflows
    inner = where(logical_and(near, x > 0.0), x if order == 0 else where(endless, 1.0, x), 1.0)
    turned = log(inner) - math.log(2.0)
    if order == 0:
        series = _of_square(terms.K0, inner, NEAR_K) - turned * _of_square(terms.I0_TO_2, inner, NEAR_K)
    else:
        product = inner * turned * _of_square(terms.I1_TO_2, inner, NEAR_K)
        series = product + _of_square(terms.K1, inner, NEAR_K) / inner
    if scaled:
        series = series * exp(inner)
    if order == 1:
        series = where(endless, INFINITY * (2.0 - x), series)
    outer = where(near, NEAR_K, x)
    beyond = chebyshev(terms.K1_BEYOND if order else terms.K0_BEYOND, (2.0 * NEAR_K) / outer - 1.0) / sqrt(outer)
    far = beyond if scaled else exp(-outer) * beyond
    return where(near, where(x > 0.0, series, -_at_zero(x)), far)


@repeated_formula
def k0(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 0: infinite at 0, NaN below; the shape stays, integers
    give the default float.

    >>> lg.special.k0([1.0])
    Tensor([0.42102444], dtype=float64)
    """
    return of_domain("k0", lambda x: _k(0, x, scaled=False), x)


@repeated_formula
def k0e(x: ArrayLike, /) -> Tensor:
    """exp(x) * k0(x); the shape stays, integers give the default float.

    >>> lg.special.k0e([1000.0])
    Tensor([0.03962832], dtype=float64)
    """
    return of_domain("k0e", lambda x: _k(0, x, scaled=True), x)


@repeated_formula
def k1(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 1: infinite at 0, NaN below; the shape stays, integers
    give the default float.

    >>> lg.special.k1([1.0])
    Tensor([0.60190723], dtype=float64)
    """
    return of_domain("k1", lambda x: _k(1, x, scaled=False), x)


@repeated_formula
def k1e(x: ArrayLike, /) -> Tensor:
    """exp(x) * k1(x); the shape stays, integers give the default float.

    >>> lg.special.k1e([1000.0])
    Tensor([0.03964813], dtype=float64)
    """
    return of_domain("k1e", lambda x: _k(1, x, scaled=True), x)
