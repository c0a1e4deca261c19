"""The incomplete beta function, by an integral of one exponential.

With y = 1 - x and d = x**a y**b / B(a, b), for x up to the mean a / (a + b)

    betainc(a, b, x) = d * integral of exp(-a v - (a + b) log(1 - x + x exp(-v))) dv over v > 0

whose integrand falls from 1 on (t is x exp(-v) over y in the odds); beyond the mean it is what betainc(b, a, y)
leaves to 1. Gauss and Legendre's rule takes the same work for all arguments, on the range where the exponent is above
-40 (in float32 -20), which Newton's method finds. Where v is small the exponent is computed from its parts of one
sign, with c the smaller one of x and y and u = -v or v: -((a y - b x) v + (a + b) (c (exp(u) - 1 - u) + log(1 + z) -
z)), z = c (exp(u) - 1). Below a = 1 the part exp(-a v), which is long, is integrated exactly. Derivatives, by `a` and
`b` as well, are those of the integral.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from loopgrad.graph import ops
from loopgrad.lazy.loops.fori_loop import fori_loop
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.elementwise import absolute, exp, expm1, log1p, minimum, sqrt, stop_gradient
from loopgrad.lazy.numpy.special_values import isinf, where
from loopgrad.lazy.special.entropies import log1p_minus
from loopgrad.lazy.special.gamma_functions import log_scaled
from loopgrad.lazy.special.incomplete_gamma import expm1_minus, rule
from loopgrad.lazy.special.operands import is_double, of_domain
from loopgrad.lazy.tensor.core import ArrayLike, wrap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_SPECIAL: Final = "betainc betaincc"
NAN: Final = float("nan")
STEPS: Final = 10


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularised incomplete beta function: the integral of t**(a - 1) (1 - t)**(b - 1) / B(a, b) from 0 to x.

    Operands broadcast; integers give the default float. NaN for a and b that aren't positive, and for x outside 0 to 1.
    Differentiable by all three.

    >>> lg.special.betainc([1.0, 2.0], [1.0, 3.0], [0.25, 0.5])
    Tensor([0.25  , 0.6875], dtype=float64)
    """
    return of_domain("betainc", lambda a, b, x: _incomplete(a, b, x)[0], a, b, x)


def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """1 - betainc(a, b, x), accurate where it is small.

    Operands broadcast; integers give the default float. NaN for a and b that aren't positive, and for x outside 0 to 1.
    Differentiable by all three.

    >>> lg.special.betaincc([1.0, 2.0], [1.0, 3.0], [0.25, 0.5])
    Tensor([0.75  , 0.3125], dtype=float64)
    """
    return of_domain("betaincc", lambda a, b, x: _incomplete(a, b, x)[1], a, b, x)


def _incomplete(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    shapes = (a > 0.0) & (b > 0.0) & ~isinf(a) & ~isinf(b)
    inside = shapes & (x > 0.0) & (x < 1.0)
    p, q, at = where(inside, a, 1.0), where(inside, b, 1.0), where(inside, x, 0.5)
    other = 1.0 - at
    beyond = stop_gradient(q * at) > stop_gradient(p * other)
    found = _below_mean(where(beyond, q, p), where(beyond, p, q), where(beyond, other, at), where(beyond, at, other))
    real = (a >= 0.0) & (b >= 0.0)
    late = real & (a > b) & ((b == 0.0) | isinf(a))  # all at x = 1
    early = real & (b > a) & ((a == 0.0) | isinf(b))  # all at x = 0
    nothing = late & (x < 1.0) | (shapes | late | early & (a > 0.0)) & (x == 0.0)
    whole = early & (x > 0.0) | real & (x == 1.0) & ((a > 0.0) | (b > 0.0))
    known = (x >= 0.0) & (x <= 1.0)
    ends = [where(known & nothing, first, where(known & whole, 1.0 - first, NAN)) for first in (0.0, 1.0)]
    return (
        where(inside, where(beyond, 1.0 - found, found), ends[0]),
        where(inside, where(beyond, found, 1.0 - found), ends[1]),
    )


def _density(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x**a y**b / B(a, b)."""
    total = a + b
    distance = (b * x - a * y) / total
    first, second = a / total, b / total
    exponent = a * log1p_minus(distance / first, x / first) + b * log1p_minus(-distance / second, y / second)
    scale = sqrt((a / (2.0 * math.pi)) * (b / total))
    return scale * exp(exponent + ((log_scaled(total) - log_scaled(a)) - log_scaled(b)))


def _end(a: Tensor, b: Tensor, x: Tensor, y: Tensor, deepest: float) -> Tensor:
    """Where the exponent is about -deepest: it is concave and falls, so Newton's method comes from the right."""
    a, b, x, y = stop_gradient(a), stop_gradient(b), stop_gradient(x), stop_gradient(y)
    total = a + b
    v = minimum((deepest - total * log1p(-x)) / a, 1.5 * sqrt(2.0 * deepest / (total * x * y)))
    for _ in range(STEPS):
        inner = x * expm1(-v)
        slope = total * x * exp(-v) / (1.0 + inner) - a
        v = v - (deepest - a * v - total * log1p(inner)) / slope
    end: Tensor = stop_gradient(v)
    return end


def _below_mean(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    nodes, deepest = rule(is_double(x))
    table = wrap(ops.literal(nodes, x._value.dtype))
    total = a + b
    brief = stop_gradient(a) < 1.0
    end = where(brief, deepest, _end(a, b, x, y, deepest))
    smaller = stop_gradient(x) <= stop_gradient(y)
    c, side = where(smaller, x, y), where(smaller, -1.0, 1.0)
    distance = a * y - b * x
    odds = x / y

    def term(k: Tensor, integral: Tensor) -> Tensor:
        v = end * table[k, 0]
        u = side * v
        raised = c * expm1(u)
        close = (absolute(raised) < 0.55) & ~brief
        parts = distance * v + total * (c * expm1_minus(where(close, u, 0.0)) + log1p_minus(where(close, raised, 0.0)))
        plain = a * v + total * log1p(x * expm1(-v))
        usual = exp(-where(close, parts, where(brief, 0.0, plain)))
        short = exp(-a * v) * expm1(where(brief, -total * log1p(odds * exp(-v)), 0.0))
        return integral + (table[k, 1] * end) * where(brief, short, usual)

    integral: Tensor = fori_loop(0, len(nodes), term, zeros_like(x))
    whole = exp(where(brief, -total * log1p(-where(brief, x, 0.0)), 0.0)) * (1.0 / where(brief, a, 1.0) + integral)
    return _density(a, b, x, y) * where(brief, whole, integral)
