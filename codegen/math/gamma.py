"""lgamma and digamma; f32 is computed in f64.

lgamma: on [1, 2] (x - 1)(x - 2) times a minimax polynomial, so that the zeros are exact; by recurrence on (0, 1)
and [2, 8); Stirling's series above; reflection below zero. digamma: recurrence up to 10, then the asymptotic series
(Abramowitz and Stegun 6.1.41, 6.3.18). Near the other zeros the error is small absolutely, not relatively.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as real_log
from math import pi
from typing import Any, Final

from loopgrad.codegen.math.logarithmic import log
from loopgrad.codegen.math.trigonometric import sin, tan
from loopgrad.codegen.scalar.ops import Ops, V, polynomial

ONE_TO_TWO = (
    -3.554658355430909e-06, 5.2472597888942414e-06, -2.86694679567861e-06, 4.93394044646733e-06,
    -1.1265440744056302e-05, 1.7458786836307296e-05, -2.6223051120853335e-05, 4.159622441829691e-05,
    -6.63458430767444e-05, 0.00010565284169262815, -0.0001688903432576284, 0.00027127397259658627,
    -0.000437995450515721, 0.0007115224775848916, -0.0011644144562759087, 0.0019229161305543592,
    -0.003212074077791475, 0.005446457844804948, -0.00942562244845858, 0.01679709863118345, -0.0313084875010111,
    0.06291140107456496, -0.14595989591430608, 0.4831289505409809,
)  # fmt: skip
STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
INFINITY = float("inf")


def in_double(m: Ops[V], x: V, function: Callable[[Ops[V], V], V]) -> V:
    return m.narrow(function(m, m.widen(x))) if m.bits(x) == 32 else function(m, x)


def lgamma(m: Ops[V], x: V) -> V:
    return in_double(m, x, lgamma_double)


def digamma(m: Ops[V], x: V) -> V:
    return in_double(m, x, digamma_double)


def positive_lgamma(m: Ops[V], a: V) -> V:
    """For a > 0."""
    one, two = m.const(a, 1.0), m.const(a, 2.0)
    low = m.lt(a, one)
    t, product = m.select(low, m.add(a, one), a), m.select(low, a, one)
    for _ in range(6):
        high = m.le(two, t)
        t = m.select(high, m.sub(t, one), t)
        product = m.select(high, m.mul(product, t), product)
    logarithm = log(m, product)
    centred = m.sub(t, m.const(a, 1.5))
    zeros = m.mul(m.select(low, a, m.sub(t, one)), m.select(low, m.sub(a, one), m.sub(t, two)))
    core = m.mul(zeros, polynomial(m, centred, ONE_TO_TWO))
    near = m.select(low, m.sub(core, logarithm), m.add(core, logarithm))
    return m.rarely(m.le(m.const(a, 8.0), a), lambda: stirling(m, a), near)


def stirling(m: Ops[V], a: V) -> V:
    inverse = m.div(m.const(a, 1.0), a)
    series = m.mul(polynomial(m, m.mul(inverse, inverse), STIRLING), inverse)
    main = m.mul(m.sub(a, m.const(a, 0.5)), m.sub(log(m, a), m.const(a, 1.0)))
    return m.add(main, m.add(m.const(a, 0.5 * real_log(2 * pi) - 0.5), series))


def lgamma_double(m: Ops[V], x: V) -> V:
    size = m.abs(x)
    value = positive_lgamma(m, size)

    def reflected() -> V:
        """log(pi / (|x| |sin(pi x)|)) - lgamma(|x|), and -log|x| where the product would underflow"""
        rest = m.sub(x, m.round_even(x))
        wave = m.abs(sin(m, m.mul(rest, m.const(x, pi))))
        small = m.lt(size, m.const(x, 1e-20))
        logarithm = log(m, m.select(small, size, m.div(m.const(x, pi), m.mul(size, wave))))
        mirrored = m.select(small, m.neg(logarithm), m.sub(logarithm, value))
        infinite = m.either(m.eq(size, m.const(x, 0.0)), m.eq(size, m.const(x, INFINITY)))
        return m.select(infinite, m.const(x, INFINITY), mirrored)

    return m.rarely(m.le(x, m.const(x, 0.0)), reflected, value)


def positive_digamma(m: Ops[V], x: V) -> V:
    """For x > 0: below 10, minus the sum of 1/(x + i) as one fraction."""
    low = m.lt(x, m.const(x, 10.0))
    numerator, denominator = m.const(x, 0.0), m.const(x, 1.0)
    a = x
    for _ in range(10):
        numerator = m.fma(numerator, a, denominator)
        denominator = m.mul(denominator, a)
        a = m.add(a, m.const(x, 1.0))
    shift = m.select(low, m.div(numerator, denominator), m.const(x, 0.0))
    a = m.select(low, a, x)
    inverse = m.div(m.const(x, 1.0), a)
    square = m.mul(inverse, inverse)
    series = m.mul(square, polynomial(m, square, DIGAMMA))
    return m.sub(m.sub(m.sub(log(m, a), m.mul(inverse, m.const(x, 0.5))), series), shift)


def digamma_double(m: Ops[V], x: V) -> V:
    negative = m.le(x, m.const(x, 0.0))
    value = positive_digamma(m, m.select(negative, m.sub(m.const(x, 1.0), x), x))

    def reflected() -> V:
        """digamma(1 - x) - pi / tan(pi x), NaN at the poles but for 0, where the sign says from which side"""
        rest = m.sub(x, m.round_even(x))
        pole = m.either(m.eq(rest, m.const(x, 0.0)), m.is_nan(rest))
        mirrored = m.sub(value, m.div(m.const(x, pi), tan(m, m.mul(rest, m.const(x, pi)))))
        at_zero = m.div(m.const(x, -1.0), x)
        outside = m.select(m.eq(x, m.const(x, 0.0)), at_zero, m.const(x, float("nan")))
        return m.select(pole, outside, mirrored)

    return m.rarely(negative, reflected, value)


RECIPES: Final[dict[str, Any]] = {"lgamma": lgamma, "digamma": digamma}
