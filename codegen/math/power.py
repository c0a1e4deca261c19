"""x ** y as exp(y log|x|), the logarithm and the product in double-double (f32 in f64).

log(m) = 2s + 2 s**3/3 + s**5 R(s**2) with s = f/(2 + f): the first two terms are kept to twice the precision, so the
product with y is good to about 2**-63 even where it reaches 745.
"""

from __future__ import annotations

from loopgrad.codegen.math.exponential import exp, exponential, nearest
from loopgrad.codegen.math.logarithmic import decomposed, log
from loopgrad.codegen.math.ops import Ops, V, polynomial

R2 = (0.13211552163003518, 0.13255218672902302, 0.15386824067850316, 0.18181782964539397, 0.22222222535369904,
      0.28571428570016655, 0.4000000000000242)  # fmt: skip
LN2 = (0.6931471805599453, 2.3190468138462996e-17)
INFINITY = float("inf")


def pow(m: Ops[V], x: V, y: V) -> V:
    if m.bits(x) == 32:
        wide_x, wide_y = m.widen(x), m.widen(y)
        size = exp(m, m.mul(wide_y, log(m, m.abs(wide_x))))
        return m.narrow(with_cases(m, wide_x, wide_y, size))
    return with_cases(m, x, y, positive_power(m, m.abs(x), y))


def with_cases(m: Ops[V], x: V, y: V, size: V) -> V:
    """Sign, domain and the cases that IEEE 754 fixes; `size` is |x| ** y."""
    zero, one, half = m.const(x, 0.0), m.const(x, 1.0), m.const(x, 0.5)
    whole = m.eq(m.round_even(y), y)
    halved = m.mul(y, half)
    odd = m.both(whole, m.invert(m.eq(m.round_even(halved), halved)))
    negative = m.lt(m.copysign(one, x), zero)
    signed = m.select(m.both(negative, odd), m.neg(size), size)
    impossible = m.both(m.both(m.lt(x, zero), m.invert(whole)), m.lt(m.const(x, -INFINITY), x))
    result = m.select(impossible, m.const(x, float("nan")), signed)
    flat = m.both(m.eq(m.abs(x), one), m.eq(m.abs(y), m.const(x, INFINITY)))
    unit = m.either(m.either(m.eq(x, one), m.eq(y, zero)), flat)
    return m.select(unit, one, result)


def two_product(m: Ops[V], a: V, b: V) -> tuple[V, V]:
    p = m.mul(a, b)
    return p, m.fma(a, b, m.neg(p))


def quick_two_sum(m: Ops[V], a: V, b: V) -> tuple[V, V]:
    """a + b exactly, for |a| >= |b|."""
    s = m.add(a, b)
    return s, m.sub(b, m.sub(s, a))


def two_sum(m: Ops[V], a: V, b: V) -> tuple[V, V]:
    s = m.add(a, b)
    t = m.sub(s, a)
    return s, m.add(m.sub(a, m.sub(s, t)), m.sub(b, t))


def log_pair(m: Ops[V], a: V) -> tuple[V, V]:
    """log(a) for positive normal a, to about 2**-66 relatively."""
    k, mantissa = decomposed(m, a)
    one, two = m.const(a, 1.0), m.const(a, 2.0)
    f = m.sub(mantissa, one)
    d, d_low = quick_two_sum(m, two, f)
    s = m.div(f, d)
    s_low = m.div(m.fma(m.neg(s), d_low, m.fma(m.neg(s), d, f)), d)
    z, z_low = two_product(m, s, s)
    z_low = m.fma(m.add(s, s), s_low, z_low)
    cube, cube_low = two_product(m, z, s)
    cube_low = m.fma(z, s_low, m.fma(z_low, s, cube_low))
    third = m.const(a, 2 / 3)
    c, c_low = two_product(m, cube, third)
    c_low = m.fma(cube, m.const(a, 3.700743415417188e-17), m.fma(cube_low, third, c_low))
    tail = m.mul(m.mul(cube, z), polynomial(m, z, R2))
    high, low = quick_two_sum(m, m.add(s, s), c)
    low = m.add(low, m.add(m.add(m.add(s_low, s_low), c_low), tail))
    big, big_low = two_product(m, k, m.const(a, LN2[0]))
    total, total_low = two_sum(m, big, high)
    return quick_two_sum(m, total, m.add(total_low, m.add(low, m.fma(k, m.const(a, LN2[1]), big_low))))


def positive_power(m: Ops[V], a: V, y: V) -> V:
    """a ** y for a >= 0 in f64."""
    subnormal = m.lt(a, m.const(a, 2.0**-1022))
    normal = m.select(subnormal, m.mul(a, m.const(a, 2.0**54)), a)
    high, low = log_pair(m, normal)
    shift = m.select(subnormal, m.const(a, 54 * LN2[0]), m.const(a, 0.0))
    high, moved = two_sum(m, high, m.neg(shift))
    low = m.add(low, moved)
    edge = m.either(m.eq(a, m.const(a, 0.0)), m.invert(m.lt(a, m.const(a, INFINITY))))
    extreme = m.select(m.eq(a, m.const(a, 0.0)), m.const(a, -INFINITY), a)
    p, p_low = two_product(m, y, high)
    p_low = m.fma(y, low, p_low)
    bound = m.const(a, 1000.0)
    unbounded = m.invert(m.lt(m.abs(p), bound))
    p = m.select(edge, m.mul(y, extreme), p)
    p_low = m.select(m.either(edge, unbounded), m.const(a, 0.0), p_low)
    return exp_pair(m, p, p_low)


def exp_pair(m: Ops[V], p: V, p_low: V) -> V:
    """exp(p + p_low)."""
    limit = m.const(p, 1000.0)
    p = m.select(m.lt(limit, p), limit, p)
    p = m.select(m.lt(p, m.neg(limit)), m.neg(limit), p)
    shifted, n = nearest(m, p, 1 / LN2[0])
    r = m.fma(n, m.const(p, -6.93147180369123816490e-01), p)
    r = m.add(m.fma(n, m.const(p, -1.90821492927058770002e-10), r), p_low)
    return m.times_power(exponential(m, r), shifted)
