"""The incomplete beta function, by an integral of one exponential and a power series.

With y = 1 - x and d = x**a y**b / B(a, b), for x up to the mean a / (a + b) and a of at least 1

    betainc(a, b, x) = d * integral of exp(-a v - (a + b) log(1 - x + x exp(-v))) dv over v > 0

whose integrand falls from 1 on; beyond the mean it is what betainc(b, a, y) leaves to 1. Gauss and Legendre's rule
takes the same work for all arguments, on the range where the exponent is above -40 (in float32 -20), which Newton's
method finds. With c the smaller one of x and y, u = -v or v and z = c (exp(u) - 1) the exponent is -((a or -b) v +
(a + b) log(1 + z)); where z is small it is computed from its parts of one sign: -((a y - b x) v + (a + b) (c (exp(u) -
1 - u) + log(1 + z) - z)).

Below a = 1, for x up to 1/2 and 1 / b, it is the power series (A. Didonato and A. Morris, Significant digit computation
of the incomplete beta function ratios, 1992)

    betainc(a, b, x) = b / (a + b) * exp(g)
    exp(g) = x**a gamma(1 + a + b) / (gamma(1 + a) gamma(1 + b)) * (1 + a * sum of (1 - b)_n x**n / (n! (a + n)))

of whose parts g the logarithm is made, each as accurate as `a` is small, since what the sum leaves to 1 is then
a / (a + b) - b / (a + b) * (exp(g) - 1). Derivatives, by `a` and `b` as well, are those of the integral and the series.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.creation import ones_like, zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, exp, expm1, log, log1p, minimum, sqrt, stop_gradient
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.special.entropies import log1p_minus
from loopgrad.lazy.special.gamma_functions import log_gamma_above, log_rise, log_scaled
from loopgrad.lazy.special.incomplete_gamma import expm1_minus, left_to_one, product, rule
from loopgrad.lazy.special.operands import INFINITY, NAN, is_double, of_domain
from loopgrad.lazy.tensor.core import ArrayLike, cast, wrap
from loopgrad.lazy.tensor.repeated_calls import repeated_formula

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "betainc betaincc"
STEPS: Final = 10


@repeated_formula
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularised incomplete beta function: the integral of t**(a - 1) (1 - t)**(b - 1) / B(a, b) from 0 to x.

    Operands broadcast; integers give the default float. NaN for a and b that aren't positive, and for x outside 0 to 1.
    Differentiable by all three.

    >>> lg.special.betainc([1.0, 2.0], [1.0, 3.0], [0.25, 0.5])
    Tensor([0.25  , 0.6875], dtype=float64)
    """
    return of_domain("betainc", lambda a, b, x: _incomplete(a, b, x)[0], a, b, x)


@repeated_formula
def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """1 - betainc(a, b, x), accurate where it is small.

    Operands broadcast; integers give the default float. NaN for a and b that aren't positive, and for x outside 0 to 1.
    Differentiable by all three.

    >>> lg.special.betaincc([1.0, 2.0], [1.0, 3.0], [0.25, 0.5])
    Tensor([0.75  , 0.3125], dtype=float64)
    """
    return of_domain("betaincc", lambda a, b, x: _incomplete(a, b, x)[1], a, b, x)


def log_betainc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """log(betainc(a, b, x)), where that underflows, too."""
    return _incomplete(a, b, x, logarithms=True)[0]


def log_betaincc(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """log(betaincc(a, b, x)), where that underflows, too."""
    return _incomplete(a, b, x, logarithms=True)[1]


def _incomplete(a: Tensor, b: Tensor, x: Tensor, logarithms: bool = False) -> tuple[Tensor, Tensor]:
    """betainc and betaincc, or their logarithms."""
    shapes = (a > 0.0) & (b > 0.0) & ~isinf(a) & ~isinf(b)
    inside = shapes & (x > 0.0) & (x < 1.0)
    p, q, at = where(inside, a, 1.0), where(inside, b, 1.0), where(inside, x, 0.5)
    other = 1.0 - at
    low, high = _is_series(p, q, at), _is_series(q, p, other)
    turned = ~low & (high | (q * at > p * other))
    first, second = where(turned, q, p), where(turned, p, q)
    left, right = where(turned, other, at), where(turned, at, other)
    series = low | high
    few, many = where(series, first, second), where(series, 1.0 + second, first)
    brief = few < 1.0
    few = where(brief, few, 0.5)
    rise = log_rise(few, many) - log_gamma_above(few)
    sums = _by_series(where(series, first, 0.5), where(series, second, 0.5), where(series, left, 0.5), rise, logarithms)
    p, q = where(series, 1.0, first), where(series, 1.0, second)
    at, other = where(series, 0.5, left), where(series, 0.5, right)
    mass = product(_density(p, q, at, other, rise), _integral(p, q, at, other), logarithms)
    below, above = where(series, sums[0], mass), where(series, sums[1], left_to_one(mass, logarithms))
    real = (a >= 0.0) & (b >= 0.0)
    late = real & (a > b) & ((b == 0.0) | isinf(a))  # all at x = 1
    early = real & (b > a) & ((a == 0.0) | isinf(b))  # all at x = 0
    either = real & ((a > 0.0) | (b > 0.0))
    nothing = late & (x < 1.0) | either & (x == 0.0)
    whole = early & (x > 0.0) | either & (x == 1.0)
    known = (x >= 0.0) & (x <= 1.0)
    none, all = (-INFINITY, 0.0) if logarithms else (0.0, 1.0)
    outside = ((none, all), (all, none))
    ends = [where(known & nothing, one, where(known & whole, other, NAN)) for one, other in outside]
    return (
        where(inside, where(turned, above, below), ends[0]),
        where(inside, where(turned, below, above), ends[1]),
    )


def _is_series(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Where `_by_series` is used."""
    few: Tensor = (a < 1.0) & (x <= 0.5) & (b * x <= 1.0)
    return few


def _by_series(a: Tensor, b: Tensor, x: Tensor, rise: Tensor, logarithms: bool) -> tuple[Tensor, Tensor]:
    """betainc and betaincc, or their logarithms; `rise` is the logarithm of gamma(1 + a + b) / (gamma(1 + a) gamma(1 +
    b) (1 + b)**a)."""
    count = 50 if is_double(x) else 26

    def term(i: Tensor, total: Tensor) -> Tensor:
        n = cast(count - i, x._value.dtype)
        return 1.0 / (a + n) + (n + 1.0 - b) * x / (n + 1.0) * total

    tail: Tensor = (1.0 - b) * x * fori_loop(0, count, term, zeros_like(x))
    g = a * log(x * (1.0 + b)) + rise + log1p(a * tail)
    smaller = a < b
    ratio = where(smaller, a, b) / where(smaller, b, a)
    large, small = 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)
    share, rest = where(smaller, large, small), where(smaller, small, large)  # b / (a + b) and a / (a + b)
    found = product((share, g), ones_like(g), logarithms)
    steep = g < -0.7
    other = rest - share * expm1(where(steep, 0.0, g))
    return found, where(steep, left_to_one(found, logarithms), log(other) if logarithms else other)


def _density(a: Tensor, b: Tensor, x: Tensor, y: Tensor, rise: Tensor) -> tuple[Tensor, Tensor]:
    """x**a y**b / B(a, b) for `a` of at least 1: a factor, and the logarithm of the other one; for b below 1, `rise` is
    the logarithm of gamma(a + b) / (gamma(a) gamma(1 + b) a**b)."""
    brief = b < 1.0
    p, few = where(brief, a, 1.0), where(brief, b, 0.5)
    known = x < 0.5
    logarithm = where(known, log(x), log1p(-where(known, 0.5, y)))
    short = p * logarithm + few * log(p * where(brief, y, 0.5)) + rise
    q, at = where(brief, 1.0, b), where(brief, 0.5, x)
    total = a + q
    first, second = a / total, q / total
    distance = (q * at - a * y) / total
    exponent = a * log1p_minus(distance / first, at / first) + q * log1p_minus(-distance / second, y / second)
    scale = sqrt((a / (2.0 * math.pi)) * (q / total))
    usual = exponent + ((log_scaled(total) - log_scaled(a)) - log_scaled(q))
    return where(brief, few, scale), where(brief, short, usual)


class _Exponent:
    """The exponent of the integral, less its sign, and its slope."""

    def __init__(self, a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> None:
        first = x <= y
        self.total, self.distance = a + b, a * y - b * x
        self.c, self.side, self.rate = where(first, x, y), where(first, -1.0, 1.0), where(first, a, -b)

    def __call__(self, v: Tensor) -> Tensor:
        u = self.side * v
        raised = self.c * expm1(u)
        close = absolute(raised) < 0.55
        bend = self.c * expm1_minus(where(close, u, 0.0)) + log1p_minus(where(close, raised, 0.0))
        plain = self.rate * v + self.total * log1p(where(close, 0.0, raised))
        return where(close, self.distance * v + self.total * bend, plain)

    def slope(self, v: Tensor) -> Tensor:
        """The distance, and by how much that of the logarithm grows from v = 0 on."""
        raised = self.c * expm1(self.side * v)
        return self.distance + self.total * (self.side * (1.0 - self.c)) * raised / (1.0 + raised)


def _end(a: Tensor, b: Tensor, x: Tensor, y: Tensor, deepest: float) -> Tensor:
    """Where the exponent is about -deepest: it is concave and falls, so Newton's method comes from the right."""
    a, b, x, y = stop_gradient(a), stop_gradient(b), stop_gradient(x), stop_gradient(y)
    total, exponent = a + b, _Exponent(a, b, x, y)
    v = minimum((deepest - total * log(y)) / a, 1.5 * sqrt(2.0 * deepest / total / x / y))
    for _ in range(STEPS):
        v = v - (exponent(v) - deepest) / exponent.slope(v)
    end: Tensor = stop_gradient(v)
    return end


def _integral(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    nodes, deepest = rule(is_double(x))
    table = wrap(ops.literal(nodes, x._value.dtype))
    end, exponent = _end(a, b, x, y, deepest), _Exponent(a, b, x, y)

    def term(k: Tensor, integral: Tensor) -> Tensor:
        return integral + (table[k, 1] * end) * exp(-exponent(end * table[k, 0]))

    integral: Tensor = fori_loop(0, len(nodes), term, zeros_like(x))
    return integral
