"""asin, acos, atan, atan2: minimax polynomials, with square-root and reciprocal reductions.

asin(x) = x + x**3 P(x**2) for |x| <= 1/2, else pi/2 - 2 asin(sqrt((1 - |x|)/2)).
atan(x) = x + x**3 P(x**2) for |x| <= 1, else pi/2 - atan(1/|x|).
"""

from __future__ import annotations

from math import pi
from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V, polynomial

ASIN = {
    32: (0.04221824891550078, 0.024147790598058255, 0.0454770625654734, 0.07495242000605491, 0.16666753925689867),
    64: (0.03369258086386568, -0.026234931869900766, 0.02489324027930259, 0.0006513353850366733, 0.010019081572188428,
         0.009481994998174014, 0.011585984046681505, 0.013961871348240897, 0.017352945561023493, 0.02237215158542862,
         0.030381944645265786, 0.044642857139676334, 0.07500000000002544, 0.1666666666666666),
}  # fmt: skip
ATAN = {
    32: (0.0029746247557155396, -0.016581316802306338, 0.043553741997556635, -0.07580593450371188,
         0.10678946104853494, -0.14214210084120318, 0.1999413722739411, -0.33333166961180816),
    64: (5.789262624099059e-06, -7.219105191037946e-05, 0.0004286984357074088, -0.001620093043318621,
         0.0044016980575191265, -0.009235716381387158, 0.015759871590839743, -0.02285150772205473,
         0.029338139010298622, -0.03468823053116616, 0.03911461199106283, -0.04320568078222563, 0.047551331744474,
         -0.05261819916065754, 0.058821464466391346, -0.06666642349765882, 0.07692305574234772,
         -0.09090908960161498, 0.11111111105733067, -0.14285714285580284, 0.19999999999998289, -0.33333333333333326),
}  # fmt: skip
HALF_PI = {32: (1.5707963705062866, -4.371139000186241e-08), 64: (pi / 2, 6.123233995736766e-17)}


def odd(m: Ops[V], x: V, z: V, coefficients: tuple[float, ...]) -> V:
    """x + x z P(z)."""
    return m.fma(m.mul(x, z), polynomial(m, z, coefficients), x)


def folded(m: Ops[V], x: V) -> tuple[V, V]:
    """(whether |x| > 1/2, asin of |x| or of sqrt((1 - |x|)/2))."""
    size, half = m.abs(x), m.const(x, 0.5)
    outer = m.lt(half, size)
    z = m.select(outer, m.fma(size, m.const(x, -0.5), half), m.mul(size, size))
    argument = m.select(outer, m.sqrt(z), size)
    return outer, odd(m, argument, z, ASIN[m.bits(x)])


def asin(m: Ops[V], x: V) -> V:
    high, low = HALF_PI[m.bits(x)]
    outer, value = folded(m, x)
    far = m.fma(value, m.const(x, -2.0), m.const(x, low))
    return m.copysign(m.select(outer, m.add(m.const(x, high), far), value), x)


def acos(m: Ops[V], x: V) -> V:
    """pi/2 - asin(x) inside; 2 asin(sqrt((1 - |x|)/2)) outside, from pi where x is negative."""
    high, low = HALF_PI[m.bits(x)]
    outer, value = folded(m, x)
    twice = m.add(value, value)
    negative = m.lt(x, m.const(x, 0.0))
    far = m.select(negative, m.sub(m.const(x, 2 * high), m.sub(twice, m.const(x, 2 * low))), twice)
    near = m.sub(m.const(x, high), m.sub(m.copysign(value, x), m.const(x, low)))
    return m.select(outer, far, near)


def atan(m: Ops[V], x: V) -> V:
    size, one = m.abs(x), m.const(x, 1.0)
    inverted = m.lt(one, size)
    t = m.select(inverted, m.div(one, size), size)
    return m.copysign(complemented(m, inverted, odd(m, t, m.mul(t, t), ATAN[m.bits(x)])), x)


def complemented(m: Ops[V], where: V, angle: V) -> V:
    """pi/2 - angle where the mask holds."""
    high, low = HALF_PI[m.bits(angle)]
    rest = m.add(m.const(angle, high), m.sub(m.const(angle, low), angle))
    return m.select(where, rest, angle)


def atan2(m: Ops[V], y: V, x: V) -> V:
    """The angle of (x, y); signed zeros and infinities as in C."""
    high, low = HALF_PI[m.bits(x)]
    ay, ax = m.abs(y), m.abs(x)
    steep = m.lt(ax, ay)
    small, large = m.select(steep, ax, ay), m.select(steep, ay, ax)
    ratio = m.div(small, large)
    ratio = m.select(m.eq(small, large), m.const(x, 1.0), ratio)  # also inf / inf
    ratio = m.select(m.eq(large, m.const(x, 0.0)), m.const(x, 0.0), ratio)
    angle = complemented(m, steep, odd(m, ratio, m.mul(ratio, ratio), ATAN[m.bits(x)]))
    backward = m.lt(m.copysign(m.const(x, 1.0), x), m.const(x, 0.0))
    angle = m.select(backward, m.add(m.const(x, 2 * high), m.sub(m.const(x, 2 * low), angle)), angle)
    return m.select(m.either(m.is_nan(x), m.is_nan(y)), m.add(x, y), m.copysign(angle, y))


RECIPES: Final[dict[str, Any]] = {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}
