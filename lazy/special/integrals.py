"""Integrals of exponentials, sines and logarithms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from loopgrad.lazy.numpy.elementwise import cos, exp, log, log1p, sin, sqrt
from loopgrad.lazy.numpy.special_values import isinf, isnan, where
from loopgrad.lazy.special import coefficients as terms
from loopgrad.lazy.special.coefficients import Series
from loopgrad.lazy.special.operands import chebyshev, is_double, of_domain, overflowing, polynomial
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "exp1 expi sici spence"
INFINITY: Final = float("inf")
LARGEST_EI, LARGEST_EI_SINGLE = 716.35549054245175, 93.247190694290555  # where it overflows, in float64 and float32
# of u**(2 k + 3) in the dilogarithm of 1 - exp(-u): Bernoulli's numbers over factorials
DILOGARITHM: Final = (
    1 / 36, -1 / 3600, 1 / 211680, -1 / 10886400, 1 / 526901760, -691 / 16999766784000, 1 / 1120863744000,
    -3617 / 181400588328960000, 4.518980029619919e-16, -1.0356517612182471e-17,
)  # fmt: skip


def _over(table: Series, x: Tensor, a: float, b: float) -> Tensor:
    return chebyshev(table, (2.0 * x - (a + b)) / (b - a))


def _beyond(table: Series, x: Tensor, a: float) -> Tensor:
    return chebyshev(table, (2.0 * a) / x - 1.0)


def _piece(x: Tensor, a: float, b: float) -> tuple[Tensor, Tensor]:
    """Whether x is in it, and x there, else a number in it."""
    inside = (x > a) & (x <= b)
    return inside, where(inside, x, b if b < INFINITY else 2.0 * a)


@repeated_formula
def exp1(x: ArrayLike, /) -> Tensor:
    """The integral of exp(-t) / t from x to infinity: infinite at 0, NaN below; the shape stays, integers give the
    default float.

    >>> lg.special.exp1([1.0])
    Tensor([0.21938393], dtype=float64)
    """
    return of_domain("exp1", _exp1, x)


def _exp1(x: Tensor) -> Tensor:
    first, small = _piece(x, 0.0, 1.0)
    near = small * _over(terms.E1, small, 0.0, 1.0) - log(small) - np.euler_gamma
    second, middle = _piece(x, 1.0, 4.0)
    third, large = _piece(x, 4.0, INFINITY)
    scaled = where(second, _over(terms.E1_MIDDLE, middle, 1.0, 4.0), _beyond(terms.E1_BEYOND, large, 4.0))
    outer = where(third, large, middle)
    outside = where(x == 0.0, -log(where(x == 0.0, x, 1.0)), float("nan"))
    return where(first, near, where(second | third, scaled * (exp(-outer) / outer), outside))


@repeated_formula
def expi(x: ArrayLike, /) -> Tensor:
    """The integral of exp(t) / t from minus infinity to x (its principal value where x is positive): -inf at 0; the
    shape
    stays, integers give the default float.

    >>> lg.special.expi([1.0, -1.0])
    Tensor([ 1.89511782, -0.21938393], dtype=float64)
    """
    return of_domain("expi", _expi, x)


def _expi(x: Tensor) -> Tensor:
    first, small = _piece(x, 0.0, 6.0)
    near = small * _over(terms.EI, small, 0.0, 6.0) + (log(small) + np.euler_gamma)
    second, middle = _piece(x, 6.0, 12.0)
    third, further = _piece(x, 12.0, 24.0)
    endless = x >= (LARGEST_EI if is_double(x) else LARGEST_EI_SINGLE)
    large = where(x > 24.0, where(endless, 48.0, x), 48.0)
    scaled = where(
        second,
        _over(terms.EI_MIDDLE, middle, 6.0, 12.0),
        where(third, _over(terms.EI_FURTHER, further, 12.0, 24.0), _beyond(terms.EI_BEYOND, large, 24.0)),
    )
    outer = where(second, middle, where(third, further, large))
    half = exp(0.5 * outer)  # twice, since exp(x) overflows before the result does
    right = overflowing(where(first, near, where(endless, INFINITY, scaled * ((half / outer) * half))), x * x)
    below = x < 0.0
    at_zero = log(where(x == 0.0, x, 1.0))
    return where(below, -_exp1(where(below, -x, 1.0)), where(x == 0.0, at_zero, where(x > 0.0, right, x)))


@repeated_formula
def sici(x: ArrayLike, /) -> tuple[Tensor, Tensor]:
    """The integrals of sin(t) / t from 0 to x, and of cos(t) / t from infinity to x, which is -inf at 0 and even
    but for infinity. The shape stays, integers give the default float.

    >>> lg.special.sici(1.0)
    (Tensor(0.94608307, dtype=float64), Tensor(0.33740392, dtype=float64))
    """
    return of_domain("sici", _si, x), of_domain("sici", _ci, x)


def _far(x: Tensor) -> tuple[Tensor, Tensor]:
    """f and g of x beyond 8."""
    ratio = 8.0 / x
    t = 2.0 * (ratio * ratio) - 1.0
    return chebyshev(terms.F, t) / x, chebyshev(terms.G, t) / x / x


def _si(x: Tensor) -> Tensor:
    below = x < 0.0
    size = where(below, -x, x)
    near = size <= 8.0
    inner = where(near, x, 0.0)
    series = inner * chebyshev(terms.SI, inner * inner / 32.0 - 1.0)
    endless = isinf(size)
    outer = where(near | endless, 8.0, size)
    f, g = _far(outer)
    far = where(endless, 0.5 * math.pi, 0.5 * math.pi - f * cos(outer) - g * sin(outer))
    return where(near, series, where(below, -far, far))


def _ci(x: Tensor) -> Tensor:
    size = where(x < 0.0, -x, x)
    near = size <= 8.0
    inner = where(near & (size > 0.0), size, 1.0)
    square = inner * inner
    series = log(inner) + np.euler_gamma + square * chebyshev(terms.CI, square / 32.0 - 1.0)
    endless = isinf(size)
    outer = where(near | endless, 8.0, size)
    f, g = _far(outer)
    at_infinity = where(x > 0.0, 0.0, float("nan"))
    far = where(endless, at_infinity, f * sin(outer) - g * cos(outer))
    at_zero = log(where(size == 0.0, x, 1.0))
    return where(near, where(size > 0.0, series, at_zero), where(isnan(x), x, far))


@repeated_formula
def spence(x: ArrayLike, /) -> Tensor:
    """The integral of log(t) / (1 - t) from 1 to x, the dilogarithm of 1 - x; NaN below 0. The shape stays, integers
    give
    the default float.

    >>> lg.special.spence([0.0, 2.0])
    Tensor([ 1.64493407, -0.82246703], dtype=float64)
    """
    return of_domain("spence", _spence, x)


def _middle(x: Tensor) -> Tensor:
    """From 1/2 to 2."""
    u = -log(x)
    square = u * u
    table = DILOGARITHM if is_double(x) else DILOGARITHM[:6]
    return u - 0.25 * square + u * square * polynomial(table, square)


def _spence(x: Tensor) -> Tensor:
    large = (x > 2.0) & (x < INFINITY)
    reduced = where(large, 1.0 / where(large, x, 2.0), x)
    small = reduced < 0.5
    inner = where(small, reduced, 0.25)
    positive = inner > 0.0
    at_zero = where(inner == 0.0, sqrt(where(inner == 0.0, inner, 1.0)), float("nan"))  # infinitely steep
    product = where(positive, log(where(positive, inner, 1.0)) * log1p(-inner), at_zero)
    low = (math.pi**2 / 6.0 - product) - _middle(1.0 - inner)
    known = where(small, low, _middle(where(small, 1.0, reduced)))
    logarithm = log(where(large, x, 2.0))
    return where(large, -0.5 * (logarithm * logarithm) - known, where(x == INFINITY, -INFINITY, known))
