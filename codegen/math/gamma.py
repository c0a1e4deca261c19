"""lgamma and digamma; f32 is computed in f64, lgamma by shorter series.

lgamma: on [1, 2] (x - 1)(x - 2) times a minimax polynomial, so that the zeros are exact; by recurrence on (0, 1)
and [2, 8); Stirling's series above; reflection below zero. digamma: recurrence up to 10, then the asymptotic series
(Abramowitz and Stegun 6.1.41, 6.3.18). Near the other zeros the error is small absolutely, not relatively.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log as real_log
from math import pi
from typing import Any, Final, NamedTuple

from loopgrad.codegen.math.logarithmic import decomposed, log
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
SHORT_ONE_TO_TWO = (
    0.0009349331277874866, -0.0015244858346622184, 0.0018638849491948337, -0.0031169820596948635, 0.005453080503264046,
    -0.009436288268733021, 0.01679679922060099, -0.031308005354291575, 0.06291140483558316, -0.14595990197047848,
    0.4831289505409809,
)  # fmt: skip
# (log(1 + f) - f) / f**2 for 1 + f in [sqrt(1/2), sqrt(2)]
SHORT_LOG = (
    -0.06020956499496654, 0.10589881969443307, -0.10769472428395056, 0.11037689258302641, -0.1243226805928479,
    0.14285624989907217, -0.16669006307204182, 0.2000005738825762, -0.24999971698140327, 0.33333332792999204,
    -0.5000000005545165,
)  # fmt: skip
DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
INFINITY = float("inf")


def in_double(m: Ops[V], x: V, function: Callable[[Ops[V], V], V]) -> V:
    return m.narrow(function(m, m.widen(x))) if m.bits(x) == 32 else function(m, x)


def lgamma(m: Ops[V], x: V) -> V:
    short = m.bits(x) == 32
    return m.narrow(_lgamma(m, m.widen(x), short)) if short else _lgamma(m, x, short)


class _Series(NamedTuple):
    """In f64, to the digits of a result: coefficients, and the logarithm of positive normal numbers."""

    one_to_two: tuple[float, ...]
    stirling: tuple[float, ...]
    log: Callable[[Ops[Any], Any], Any]


def short_log(m: Ops[V], x: V) -> V:
    """To about 2e-10 of the result."""
    k, mantissa = decomposed(m, x)
    f = m.sub(mantissa, m.const(x, 1.0))
    return m.fma(k, m.const(x, real_log(2)), m.fma(m.mul(f, f), polynomial(m, f, SHORT_LOG), f))


def digamma(m: Ops[V], x: V) -> V:
    return in_double(m, x, digamma_double)


def positive_lgamma(m: Ops[V], a: V, series: _Series) -> V:
    """For a > 0."""
    one, two = m.const(a, 1.0), m.const(a, 2.0)
    low = m.lt(a, one)

    def lowered(t: V, product: V, steps: int) -> tuple[V, V]:
        for _ in range(steps):
            high = m.le(two, t)
            t = m.select(high, m.sub(t, one), t)
            product = m.select(high, m.mul(product, t), product)
        return t, product

    def near(t: V, product: V) -> V:
        logarithm = series.log(m, product)
        centred = m.sub(t, m.const(a, 1.5))
        zeros = m.mul(m.select(low, a, m.sub(t, one)), m.select(low, m.sub(a, one), m.sub(t, two)))
        core = m.mul(zeros, polynomial(m, centred, series.one_to_two))
        return m.select(low, m.sub(core, logarithm), m.add(core, logarithm))

    first = lowered(m.select(low, m.add(a, one), a), m.select(low, a, one), 1)
    below_8 = m.rarely(m.le(m.const(a, 3.0), a), lambda: near(*lowered(*first, 5)), near(*first))
    return m.rarely(m.le(m.const(a, 8.0), a), lambda: stirling(m, a, series), below_8)


def stirling(m: Ops[V], a: V, series: _Series) -> V:
    inverse = m.div(m.const(a, 1.0), a)
    rest = m.mul(polynomial(m, m.mul(inverse, inverse), series.stirling), inverse)
    main = m.mul(m.sub(a, m.const(a, 0.5)), m.sub(series.log(m, a), m.const(a, 1.0)))
    return m.add(main, m.add(m.const(a, 0.5 * real_log(2 * pi) - 0.5), rest))


def _lgamma(m: Ops[V], x: V, short: bool) -> V:
    size, full = m.abs(x), _Series(ONE_TO_TWO, STIRLING, log)
    series = _Series(SHORT_ONE_TO_TWO, STIRLING[-3:], short_log) if short else full
    value = positive_lgamma(m, size, series)

    def reflected() -> V:
        """log(pi / (|x| |sin(pi x)|)) - lgamma(|x|), which may nearly be as large, and -log|x| where the product would
        underflow"""
        exact = positive_lgamma(m, size, full) if short else value
        rest = m.sub(x, m.round_even(x))
        wave = m.abs(sin(m, m.mul(rest, m.const(x, pi))))
        small = m.lt(size, m.const(x, 1e-20))
        logarithm = log(m, m.select(small, size, m.div(m.const(x, pi), m.mul(size, wave))))
        mirrored = m.select(small, m.neg(logarithm), m.sub(logarithm, exact))
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
