"""The gamma function, what is made of it, and its logarithm's derivatives.

With log_scaled(a) = log(gamma(a) / (sqrt(2 pi / a) (a / e)**a)), which is nearly 1 / (12 a), quotients of gamma
functions are products of exponentials of numbers of one sign: nothing large cancels (N. Temme, 1979).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.graph.types import int64
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.elementwise import (
    absolute,
    ceil,
    cos,
    digamma,
    exp,
    floor,
    lgamma,
    log,
    log1p,
    maximum,
    power,
    remainder,
    round,
    sin,
    sqrt,
    stop_gradient,
)
from loopgrad.lazy.numpy.special_values import isinf, isnan, signbit, where
from loopgrad.lazy.special.coefficients import LGAMMA1P
from loopgrad.lazy.special.entropies import log1p_minus
from loopgrad.lazy.special.operands import chebyshev, is_double, of_domain, overflowing, polynomial
from loopgrad.lazy.tensor.core import ArrayLike, cast
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "beta betaln factorial gamma gammasgn polygamma zeta"
# of 1 / a**(2 k + 1) in log_scaled(a)
STIRLING: Final = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188,
)  # fmt: skip
LARGE: Final = 10.0
SHIFT: Final = 10
OVERFLOW: Final = 180.0  # beyond it the gamma function of floats is infinite
NARROW_OVERFLOW: Final = 40.0  # and of float32
# Bernoulli's numbers over factorials, of even order
MACLAURIN: Final = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000, 43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip
REFLECTED: Final = 20  # orders of polygamma up to it are reflected at 1/2
MOST_FACTORS: Final = 170  # of a factorial that is a float
LEAST: Final = 1e-30  # from there on Laurent's series of two terms is exact
TINY: Final = 1e-17  # of a number up to which the gamma function is 1 / x
INFINITY, NAN = float("inf"), float("nan")


def _stirling(a: Tensor) -> Tensor:
    inverse = 1.0 / a
    return inverse * polynomial(STIRLING, inverse * inverse)


def log_scaled(a: Tensor) -> Tensor:
    """See above, for positive numbers."""
    large = a >= LARGE
    small = where(large, 1.0, a)
    plain = lgamma(small) - (small - 0.5) * log(small) + (small - 0.5 * math.log(2.0 * math.pi))
    return where(large, _stirling(where(large, a, LARGE)), plain)


def log_gamma_above(a: Tensor) -> Tensor:
    """log(gamma(1 + a)) for `a` from 0 to 1."""
    return a * chebyshev(LGAMMA1P, 2.0 * a - 1.0)


def log_rise(a: Tensor, c: Tensor) -> Tensor:
    """log(gamma(c + a) / (gamma(c) * c**a)) for `a` from 0 to 1 and c from 1, without losing digits where `a` is small:
    by Stirling's formula of differences, c of less than ten steps of the recurrence further up."""
    small = c < LARGE
    start = where(small, c, LARGE)
    raised: Any = 0.0  # the product of 1 + a / (c + k), less 1
    for k in range(int(LARGE)):
        rise = a / (start + float(k))
        raised = raised + rise + rise * raised
    at = where(small, start + LARGE, c)
    end = at + a
    u, v = 1.0 / end, 1.0 / at
    difference: Any = 0.0  # of the polynomial in squares, over that of the squares
    value: Any = STIRLING[-1]
    for coefficient in STIRLING[-2::-1]:
        difference = difference * (u * u) + value
        value = value * (v * v) + coefficient
    rest = -(a * u * v) * (value + (u + v) * u * difference)
    part = a / at
    r = part / (2.0 + part)
    inverse_odd = tuple([1.0 / (2 * k + 3) for k in range(7)])
    less = 2.0 * (r * r) / (2.0 + part) * polynomial(inverse_odd, r * r) - r  # (log(1 + part) - part) / part
    bend: Tensor = a * less + (a - 0.5) * log1p(part) + rest
    return bend + where(small, a * log(at / start) - log1p(raised), 0.0)


@repeated_formula
def gamma(x: ArrayLike, /) -> Tensor:
    """The gamma function: infinite at 0 with its sign, NaN at negative whole numbers; the shape stays, integers give
    the
    default float.

    >>> lg.special.gamma([0.5, 5.0])
    Tensor([ 1.77245385, 24.        ], dtype=float64)
    """
    return of_domain("gamma", _gamma, x)


def _gamma(x: Tensor) -> Tensor:
    """The slopes are those of the logarithm: the value is multiplied with 1, whose derivative is digamma."""
    value = stop_gradient(_gamma_value(stop_gradient(x)))
    tiny = absolute(x) < TINY
    logarithm = lgamma(where(tiny | isnan(value) | (absolute(x) > OVERFLOW), 0.5, x))
    found = overflowing(value * exp(logarithm - stop_gradient(logarithm)), x * x)
    return where(tiny, 1.0 / where(tiny, x, 1.0), found)


def _gamma_value(x: Tensor) -> Tensor:
    """Below 0 by reflection: gamma(x) * gamma(1 - x) is pi / sin(pi x), and gamma(1 - x) is -x * gamma(-x)."""
    below = x < 0.0
    left = where(below, x, -0.25)
    whole = left == floor(left)
    safe = where(whole, -0.25, left)
    further = safe < -0.5
    positive = _positive_gamma(where(below, where(further, -safe, 1.0 - safe), x))
    nearest = round(safe)
    sine = sin(math.pi * (safe - nearest)) * where(remainder(nearest, 2.0) == 0.0, 1.0, -1.0)
    reflected = (math.pi / sine) / positive / where(further, -safe, 1.0)
    return where(below, where(whole, NAN, reflected), positive)


def _positive_gamma(x: Tensor) -> Tensor:
    """From 0."""
    shift = SHIFT if is_double(x) else SHIFT // 2
    overflow = OVERFLOW if is_double(x) else NARROW_OVERFLOW
    small = x < float(shift)
    product = at_least = where(small, x, 1.0)
    for k in range(1, shift):
        product = product * (at_least + float(k))
    at = where(small, at_least + float(shift), where(x < overflow, x, overflow))
    half = power(at, 0.5 * at - 0.25)  # twice, since it overflows before the result does
    found = (half * exp(_stirling(at) - at)) * half * math.sqrt(2.0 * math.pi)
    value = where(small, found / product, where(x < overflow, found, where(x >= overflow, INFINITY, x)))
    # of these factorials the error is less than 1/2
    exact = (x >= 1.0) & (x == floor(x)) & (value < (1e13 if is_double(x) else 1e5))
    return where(exact, round(where(exact, value, 1.0)), value)


@repeated_formula
def gammasgn(x: ArrayLike, /) -> Tensor:
    """The sign of the gamma function: 1 for positive numbers, NaN at negative whole ones; the shape stays, integers
    give
    the default float. Its derivative is 0.

    >>> lg.special.gammasgn([0.5, -0.5])
    Tensor([ 1., -1.], dtype=float64)
    """

    def sign(x: Tensor) -> Tensor:
        fixed = stop_gradient(x)
        below = floor(fixed)
        alternating = where(remainder(below, 2.0) == 0.0, 1.0, -1.0)
        negative = where((below == fixed) | isinf(fixed), NAN, alternating)
        at_zero = where(signbit(fixed), -1.0, 1.0)
        return where(fixed > 0.0, 1.0, where(fixed < 0.0, negative, where(fixed == 0.0, at_zero, fixed)))

    return of_domain("gammasgn", sign, x)


@repeated_formula
def factorial(n: ArrayLike, /) -> Tensor:
    """gamma(n + 1), and 0 for negative numbers, as SciPy's; the shape stays, integers give the default float.

    >>> lg.special.factorial([0, 1, 5])
    Tensor([  1.,   1., 120.], dtype=float64)
    """
    return of_domain("factorial", lambda n: where(n < 0.0, 0.0, _gamma(where(n < 0.0, 0.0, n) + 1.0)), n)


@repeated_formula
def betaln(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The logarithm of `beta` of positive numbers, where that underflows too; NaN for negative ones. Operands
    broadcast;
    integers give the default float.

    >>> lg.special.betaln([1.0, 0.5], [2.0, 1e6])
    Tensor([-0.69314718, -6.33539021], dtype=float64)
    """
    return of_domain("betaln", _betaln, a, b)


def _betaln(a: Tensor, b: Tensor) -> Tensor:
    inside = (a >= 0.0) & (b >= 0.0) & ~isinf(a) & ~isinf(b)
    small, large = _in_order(where(inside, a, 1.0), where(inside, b, 1.0))
    brief = small < 1.0
    few, many = where(brief, small, 0.5), where(brief, large, 0.5)
    short = log1p(few / where(many > 0.0, many, 1.0)) - log(few) + _log_beta_above(few, many)
    pole = (a == 0.0) | (b == 0.0)
    outside = where((a >= 0.0) & (b >= 0.0), where(pole, INFINITY, -INFINITY), NAN)
    found = where(brief, short, _long_betaln(where(brief, 1.0, small), where(brief, 1.0, large)))
    return where(inside, found, outside)


def _pole(x: Tensor) -> Tensor:
    """1 / x, infinite at 0 whatever its sign."""
    found: Tensor = 1.0 / x
    return where(signbit(x), -found, found)


def _in_order(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    first = a < b
    return where(first, a, b), where(first, b, a)


def _log_beta_above(a: Tensor, b: Tensor) -> Tensor:
    """log(gamma(1 + a) * gamma(1 + b) / gamma(1 + a + b)) for `a` from 0 to 1, without losing digits where it is small;
    beta(a, b) is 1 / a + 1 / b times what that is the logarithm of."""
    return log_gamma_above(a) - log_rise(a, 1.0 + b) - a * log1p(b)


def _long_betaln(small: Tensor, large: Tensor) -> Tensor:
    """From 1 on. With x = a / (a + b) it is a log(x) + b log(1 - x), of which both are negative, and scaled gamma
    functions."""
    total = small + large
    sides = small * log(small / total) + large * log1p(-(small / total))
    scale = 0.5 * (log(2.0 * math.pi / small) - log1p(-(small / total)))
    return sides + scale + ((log_scaled(small) + log_scaled(large)) - log_scaled(total))


@repeated_formula
def beta(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """gamma(a) * gamma(b) / gamma(a + b) of positive numbers, without overflow on the way; NaN for negative ones.
    Operands
    broadcast; integers give the default float.

    >>> lg.special.beta([1.0, 2.0], [2.0, 3.0])
    Tensor([0.5       , 0.08333333], dtype=float64)
    """
    return of_domain("beta", _beta, a, b)


def _beta(a: Tensor, b: Tensor) -> Tensor:
    """Near 0 by the first terms of Laurent's series."""
    inside = (a >= 0.0) & (b >= 0.0) & ~isinf(a) & ~isinf(b)
    small, large = _in_order(where(inside, a, 1.0), where(inside, b, 1.0))
    brief, pole = small < 1.0, small < LEAST
    few, many = where(brief & ~pole, small, 0.5), where(brief & ~pole, large, 0.5)
    short = (1.0 / few + 1.0 / many) * exp(_log_beta_above(few, many))
    both = large < LEAST
    rest = where(both, _pole(where(both, large, 1.0)), -(digamma(where(pole & ~both, large, 1.0)) + np.euler_gamma))
    near = _pole(where(pole, small, 1.0)) + rest
    long = exp(_betaln(where(brief, 2.0, a), where(brief, 2.0, b)))
    return where(brief, where(pole, near, short), long)


def power_over_gamma(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """x**a * exp(-x) / gamma(a) of positive numbers: a factor, and the logarithm of the other one."""
    brief = a < 1.0
    few, p = where(brief, a, 0.5), where(brief, 1.0, a)
    short = (few * log(x) - log_gamma_above(few)) - x
    at = where(brief, 1.0, x)
    long = p * log1p_minus((at - p) / p, at / p) - log_scaled(p)
    return where(brief, few, sqrt(p / (2.0 * math.pi))), where(brief, short, long)


@repeated_formula
def zeta(s: ArrayLike, q: ArrayLike = 1.0, /) -> Tensor:
    """Riemann's zeta function, or Hurwitz's: the sum of (q + k)**-s over all k from 0, for s above 1. Operands
    broadcast; integers give the default float.

    Infinite at s = 1 and where q is 0 or a negative whole number, NaN for s below 1, and for negative q unless s is
    whole. By terms until q + k is large, in a loop with a count of each lane's own, and the formula of Euler and
    Maclaurin; far below 0 by the terms on both sides of 0 that are missing.

    >>> lg.special.zeta([2.0, 2.0], [1.0, 0.5])
    Tensor([1.64493407, 4.9348022 ], dtype=float64)
    """
    return of_domain("zeta", _zeta, s, q)


def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Of q far below 0 the sum over all whole k, which depends on the fraction f of q alone, less those below 0:
    zeta(s, f) + (-1)**s * (zeta(s, 1 - f) - zeta(s, 1 - q))."""
    lowest = stop_gradient(floor(q))
    far = (q < -LARGE) & ~isinf(q) & (q != lowest)
    fraction = q - where(far, lowest, 0.0)
    half = 0.5 * stop_gradient(s)
    sign = where(half == floor(half), 1.0, where(s == floor(s), -1.0, NAN))

    def added(k: Tensor, total: Tensor) -> Tensor:
        at = where(k == 0, fraction, where(k == 1, 1.0 - fraction, 1.0 - q))
        return total + where(k == 0, 1.0, where(k == 1, sign, -sign)) * hurwitz(s, at)

    found: Tensor = fori_loop(0, where(far, 3, 1), added, zeros_like(q))
    return found


def hurwitz(s: Tensor, q: Tensor) -> Tensor:
    inside = (s > 1.0) & ~isinf(s) & (q > -1e6) & ~isinf(q)
    pole = (q <= 0.0) & (q == floor(q))
    safe, at = where(inside, s, 2.0), where(inside & ~pole, q, 1.0)
    fixed_s, fixed_q = stop_gradient(safe), stop_gradient(at)
    count = cast(maximum(ceil(LARGE + 0.5 * where(fixed_s < 200.0, fixed_s, 200.0) - fixed_q), 0.0), int64)

    def added(k: Tensor, total: Tensor) -> Tensor:
        return total + power(at + cast(k, at._value.dtype), -safe)

    total: Tensor = fori_loop(0, count, added, zeros_like(at))
    steep = safe > 1e4  # of what is left of it, nothing is
    safe = where(steep, 2.0, safe)
    w = at + cast(count, at._value.dtype)
    last = power(w, -safe)
    rest = power(w, 1.0 - safe) / (safe - 1.0) + 0.5 * last
    term = last * safe / w
    tail: Tensor = MACLAURIN[0] * term
    for k, coefficient in enumerate(MACLAURIN[1:], 1):
        term = term * ((safe + (2.0 * k - 1.0)) / w) * ((safe + 2.0 * k) / w)
        tail = tail + coefficient * term
    found = total + where(steep, 0.0, rest + tail)
    largest = where(q > 1.0, 0.0, where(q == 1.0, 1.0, where(q < 1.0, INFINITY, q)))  # for infinite s
    # At poles the term that is infinite, with its slopes to the right.
    endless = power(where(pole & (s > 1.0), q - stop_gradient(q), 1.0), -stop_gradient(where(s > 1.0, s, 2.0)))
    first = s == 1.0
    return where(
        (s > 1.0) & pole & ~isinf(q),
        where(isinf(s), INFINITY, endless),
        where(
            inside,
            found,
            where(
                first,
                1.0 / where(first, s - 1.0, 1.0),
                where(isinf(s) & (s > 0.0), largest, where((q == INFINITY) & (s > 1.0), 0.0, NAN)),
            ),
        ),
    )


@repeated_formula
def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of `digamma` for a Python int n of at least 0: infinite at 0 and negative whole numbers. The
    shape stays, integers give the default float. Raises TypeError or ValueError for another n.

    >>> lg.special.polygamma(1, [1.0, 2.0])
    Tensor([1.64493407, 0.64493407], dtype=float64)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(explained("polygamma", "a Python int as the order", type(n).__name__, "the order is fixed"))
    n = int(n)
    if not 0 <= n <= MOST_FACTORS:
        fix = "it counts derivatives, and no larger factorial is a float"
        raise ValueError(explained("polygamma", f"an order from 0 to {MOST_FACTORS}", n, fix))
    if n == 0:
        return digamma(x)
    return of_domain("polygamma", partial(_polygamma, n), x)


def _polygamma(n: int, x: Tensor) -> Tensor:
    factor = float(math.factorial(n)) * (-1.0) ** (n + 1)
    order = zeros_like(x) + float(n + 1)
    if n > REFLECTED:
        return factor * hurwitz(order, x)
    below = x < -LARGE
    right = factor * hurwitz(order, where(below, 1.0 - x, x))
    return where(below, (-1.0) ** n * right - _cotangent_slope(n, where(below, x, -0.5)), right)


def _cotangent_slope(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of pi cot(pi x): a polynomial of the cotangent, all of whose terms have one sign."""
    coefficients = [0, 1]
    for _ in range(n):  # the derivative of c is -(1 + c * c)
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    part = x - stop_gradient(round(x))
    pole, outer = part == 0.0, absolute(part) > 0.25
    quarter = where(outer, 0.5 - absolute(part), 0.0)  # exact, where the cosine is near 0
    cosine = where(outer, sin(math.pi * quarter), cos(math.pi * where(outer, 0.0, part)))
    cotangent = cosine / sin(math.pi * where(pole, 0.5, part))
    terms = tuple([float(c) * math.pi ** (n + 1) for c in coefficients])
    return where(pole, INFINITY * (-1.0) ** n, polynomial(terms, cotangent))
