"""The incomplete gamma functions, by integrals of one exponential.

With d = x**a exp(-x) / gamma(a), both are d times an integral whose integrand falls from 1 on:

    gammainc(a, x)  = d * integral of exp(-a v + x (1 - exp(-v))) dv over v > 0     for x <= a
    gammaincc(a, x) = d * integral of exp( a v - x (exp(v) - 1)) dv over v > 0      for x > a

and the other one is what is left to 1. Both exponents are -(|x - a| v + x (exp(u) - 1 - u)) with u = -v or v: numbers
of one sign. Gauss and Legendre's rule on the range where they are above -40 (in float32 -20) takes the same work for
all arguments. Up to x = 1 a power series is used (what is left there by W. Gautschi's, 1979). Derivatives, by `a` as
well, are those of integrals and series.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, exp, expm1, log, log1p, minimum, sqrt, stop_gradient
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.special.gamma_functions import log_gamma_above, power_over_gamma
from loopgrad.lazy.special.operands import INFINITY, NAN, exp_or_zero, is_double, of_domain, polynomial
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "gammainc gammaincc"
EXPM1_MINUS: Final = tuple([1.0 / float(np.prod(np.arange(1.0, k + 3.0))) for k in range(14)])


@lru_cache(maxsize=2)
def rule(double: bool) -> tuple[np.ndarray[Any, Any], float]:
    """Nodes and weights on [0, 1], and where exponents end."""
    nodes, weights = np.polynomial.legendre.leggauss(56 if double else 24)
    table = np.stack([(nodes + 1.0) / 2.0, weights / 2.0], axis=1)
    return table.astype(np.float64 if double else np.float32), 40.0 if double else 20.0


def expm1_minus(u: Tensor) -> Tensor:
    """exp(u) - 1 - u, without losing digits at 0."""
    small = absolute(u) < 0.5
    near = where(small, u, 0.0)
    terms = EXPM1_MINUS if is_double(u) else EXPM1_MINUS[:8]
    return where(small, (near * near) * polynomial(terms, near), expm1(u) - u)


@repeated_formula
def gammainc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularised lower incomplete gamma function: the integral of t**(a - 1) exp(-t) / gamma(a) from 0 to x.

    Operands broadcast; integers give the default float. NaN for negative operands. Differentiable by both.

    >>> lg.special.gammainc([1.0, 2.0], [1.0, 1e-3])
    Tensor([6.32120559e-01, 4.99666792e-07], dtype=float64)
    """
    return of_domain("gammainc", lambda a, x: _incomplete(a, x)[0], a, x)


@repeated_formula
def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularised upper incomplete gamma function, 1 - gammainc(a, x), accurate where it is small.

    Operands broadcast; integers give the default float. NaN for negative operands. Differentiable by both.

    >>> lg.special.gammaincc([1.0], [50.0])
    Tensor([1.92874985e-22], dtype=float64)
    """
    return of_domain("gammaincc", lambda a, x: _incomplete(a, x)[1], a, x)


def log_gammainc(a: Tensor, x: Tensor) -> Tensor:
    """log(gammainc(a, x)), where that underflows, too."""
    return _incomplete(a, x, logarithms=True)[0]


def log_gammaincc(a: Tensor, x: Tensor) -> Tensor:
    """log(gammaincc(a, x)), where that underflows, too."""
    return _incomplete(a, x, logarithms=True)[1]


def _incomplete(a: Tensor, x: Tensor, logarithms: bool = False) -> tuple[Tensor, Tensor]:
    """The lower and the upper one, or their logarithms."""
    inside = (a > 0.0) & (x > 0.0) & ~isinf(a) & ~isinf(x)
    shape, at = where(inside, a, 1.0), where(inside, x, 0.5)
    near = at <= 1.0
    lower, upper = _near(where(near, shape, 1.0), where(near, at, 0.5), logarithms)
    far_lower, far_upper = _far(where(near, 2.0, shape), where(near, 2.0, at), logarithms)
    nothing = (x == 0.0) & (a > 0.0) | isinf(a) & (a > 0.0) & (x >= 0.0) & ~isinf(x)
    whole = (a == 0.0) & (x > 0.0) | isinf(x) & (x > 0.0) & (a >= 0.0) & ~isinf(a)
    none, all = (-INFINITY, 0.0) if logarithms else (0.0, 1.0)
    outside = [where(nothing, one, where(whole, other, NAN)) for one, other in ((none, all), (all, none))]
    return (
        where(inside, where(near, lower, far_lower), outside[0]),
        where(inside, where(near, upper, far_upper), outside[1]),
    )


def _near(a: Tensor, x: Tensor, logarithms: bool) -> tuple[Tensor, Tensor]:
    """Up to x = 1, by series."""
    total: Any = 1.0
    for k in range(18, 0, -1):
        total = 1.0 + total * (x / (a + float(k)))
    lower = product(power_over_gamma(a, x), total / a, logarithms)
    left = stop_gradient((a < 1.0) & (-a * log(x) < 0.7))  # the upper one is the smaller
    p, y = where(left, a, 0.5), where(left, x, 0.5)
    logarithm = p * log(y) - log_gamma_above(p)
    rest: Any = 0.0
    sign, factorial = -1.0, 1.0
    powers: Any = 1.0
    for k in range(1, 19):
        powers, factorial = powers * y, factorial * k
        rest = rest + (sign / factorial) * powers / (p + float(k))
        sign = -sign
    upper = -expm1(logarithm) - exp(logarithm) * (p * rest)
    upper = log(upper) if logarithms else upper
    return where(left, left_to_one(upper, logarithms), lower), where(left, upper, left_to_one(lower, logarithms))


def product(parts: tuple[Tensor, Tensor], factor: Tensor, logarithms: bool) -> Tensor:
    """A factor, the exponential of the second part and a further factor, or the logarithm of all."""
    if logarithms:
        return log(parts[0] * factor) + parts[1]
    return parts[0] * exp_or_zero(parts[1]) * factor


def left_to_one(probability: Tensor, logarithms: bool) -> Tensor:
    """1 less a probability, by logarithms if these are given."""
    return log1p(-exp_or_zero(probability)) if logarithms else 1.0 - probability


def where_it_ends(a: Tensor, x: Tensor, below: Tensor, deepest: float) -> Tensor:
    """Where the exponent of the integrand is below -deepest: bounds by exp(-v) - 1 + v >= v**2 / (2 + v), and by
    exp(v) - 1 - v >= v**2 / 2 or, for small x, exp(v) >= 1 + v + deepest / x."""
    distance = where(below, a - x, 0.0)
    p = deepest - 2.0 * distance
    root = sqrt(p * p + (8.0 * deepest) * a)
    falling = p > 0.0
    left = where(falling, (root + p) / (2.0 * a), (4.0 * deepest) / (root - where(falling, 0.0, p)))
    high = where(below, a, x)
    above = high - a
    parabola = (2.0 * deepest) / (above + sqrt(above * above + (2.0 * deepest) * high))
    ratio = 1.0 + deepest / high
    right = minimum(parabola, log((ratio + log(ratio)) + 2.0))
    end: Tensor = stop_gradient(where(below, left, right))
    return end


def _far(a: Tensor, x: Tensor, logarithms: bool) -> tuple[Tensor, Tensor]:
    """Beyond x = 1, by the integral."""
    below = stop_gradient(x) <= stop_gradient(a)
    nodes, deepest = rule(is_double(x))
    table = wrap(ops.literal(nodes, x._value.dtype))
    end = where_it_ends(a, x, below, deepest)
    side = where(below, -1.0, 1.0)
    distance = side * (x - a)

    def term(k: Tensor, total: Tensor) -> Tensor:
        v = end * table[k, 0]
        return total + (table[k, 1] * end) * exp(-(distance * v + x * expm1_minus(side * v)))

    integral: Tensor = fori_loop(0, len(nodes), term, zeros_like(x))
    found = product(power_over_gamma(a, x), integral, logarithms)
    rest = left_to_one(found, logarithms)
    return where(below, found, rest), where(below, rest, found)
