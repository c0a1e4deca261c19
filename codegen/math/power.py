"""x ** y as exp(y log|x|), the logarithm and the product to twice the precision; a few factors as products.

log(m) = 2s + 2 s**3/3 + s**5 R(s**2) with s = f/(2 + f): the first two terms are kept to twice the precision, so the
product with y is good to about 2**-63 even where it reaches 745, in f32 to 2**-36 where it reaches 104. Where a driver
rearranges what makes such pairs, f32 is computed in f64.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from loopgrad.codegen.math.compensated import two_sum
from loopgrad.codegen.math.exponential import exp, exponential, split
from loopgrad.codegen.math.logarithmic import decomposed, log
from loopgrad.codegen.scalar.ops import Ops, V, polynomial

R2 = {
    32: (2 / 13, 2 / 11, 2 / 9, 2 / 7, 2 / 5),
    64: (0.13211552163003518, 0.13255218672902302, 0.15386824067850316, 0.18181782964539397, 0.22222222535369904,
         0.28571428570016655, 0.4000000000000242),
}  # fmt: skip
LN2 = {32: (0.6931471824645996, -1.904654299957768e-09), 64: (0.6931471805599453, 2.3190468138462996e-17)}
THIRD = {32: (0.6666666865348816, -1.98682149251302e-08), 64: (2 / 3, 3.700743415417188e-17)}  # 2/3, in two parts
SUBNORMAL = {32: (-126, 24), 64: (-1022, 54)}  # exponents of 2: of the least normal number, of what makes others normal
FARTHEST = {32: 120.0, 64: 1000.0}  # exp of which is infinite or 0
INFINITY = float("inf")
MOST_FACTORS = 8
BEYOND = {32: 136, 64: 1040}  # exponents of 2 of what is infinite; what such a number loses in a product isn't


def pow(m: Ops[V], x: V, y: V) -> V:
    if m.bits(x) == 32 and m.rearranges:
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


def log_pair(m: Ops[V], a: V, shift: V) -> tuple[V, V]:
    """log(a * 2**-shift) for positive normal a, to about 2**-66 relatively."""
    k, mantissa = decomposed(m, a)
    k = m.sub(k, shift)
    one, two = m.const(a, 1.0), m.const(a, 2.0)
    f = m.sub(mantissa, one)
    d, d_low = quick_two_sum(m, two, f)
    inverse = m.div(one, d)
    s = m.mul(f, inverse)
    s_low = m.mul(m.fma(m.neg(s), d_low, m.fma(m.neg(s), d, f)), inverse)
    z, z_low = two_product(m, s, s)
    z_low = m.fma(m.add(s, s), s_low, z_low)
    cube, cube_low = two_product(m, z, s)
    cube_low = m.fma(z, s_low, m.fma(z_low, s, cube_low))
    third, third_low = [m.const(a, part) for part in THIRD[m.bits(a)]]
    c, c_low = two_product(m, cube, third)
    c_low = m.fma(cube, third_low, m.fma(cube_low, third, c_low))
    tail = m.mul(m.mul(cube, z), polynomial(m, z, R2[m.bits(a)]))
    high, low = quick_two_sum(m, m.add(s, s), c)
    low = m.add(low, m.add(m.add(m.add(s_low, s_low), c_low), tail))
    ln2, ln2_low = [m.const(a, part) for part in LN2[m.bits(a)]]
    big, big_low = two_product(m, k, ln2)
    total, total_low = two_sum(m, big, high)
    return quick_two_sum(m, total, m.add(total_low, m.add(low, m.fma(k, ln2_low, big_low))))


def positive_power(m: Ops[V], a: V, y: V) -> V:
    """a ** y for a >= 0."""
    least, shift = SUBNORMAL[m.bits(a)]
    subnormal = m.lt(a, m.const(a, 2.0**least))
    normal = m.select(subnormal, m.mul(a, m.const(a, 2.0**shift)), a)
    high, low = log_pair(m, normal, m.select(subnormal, m.const(a, float(shift)), m.const(a, 0.0)))
    edge = m.either(m.eq(a, m.const(a, 0.0)), m.invert(m.lt(a, m.const(a, INFINITY))))
    extreme = m.select(m.eq(a, m.const(a, 0.0)), m.const(a, -INFINITY), a)
    p, p_low = two_product(m, y, high)
    p_low = m.fma(y, low, p_low)
    bound = m.const(a, FARTHEST[m.bits(a)])
    unbounded = m.invert(m.lt(m.abs(p), bound))
    p = m.select(edge, m.mul(y, extreme), p)
    p_low = m.select(m.either(edge, unbounded), m.const(a, 0.0), p_low)
    return exp_pair(m, p, p_low)


def exp_pair(m: Ops[V], p: V, p_low: V) -> V:
    """exp(p + p_low)."""
    limit = m.const(p, FARTHEST[m.bits(p)])
    p = m.select(m.lt(limit, p), limit, p)
    p = m.select(m.lt(p, m.neg(limit)), m.neg(limit), p)
    shifted, r = split(m, p)
    r = m.add(r, p_low)
    return m.times_power(exponential(m, r), shifted)


def has_few_factors(exponent: float) -> bool:
    """Whether `whole_power` takes a power to this constant."""
    return exponent == int(exponent) and 1 <= abs(exponent) <= MOST_FACTORS if abs(exponent) < INFINITY else False


def whole_power(m: Ops[V], x: V, n: int, exact: bool = True) -> V:
    """x ** n for a constant n with few factors. Where it shall be `exact`, x**2, x**4 and their product are pairs
    (h, l) that stand for h + l: h is rounded, and l is what that lost. The last product is rounded once, by an fma."""
    base = x if n > 0 else m.div(m.const(x, 1.0), x)
    size = abs(n)
    if not exact or size == 1:
        return _plain_power(m, base, size)
    first: tuple[V, V | None] = (base, None if n > 0 else _lost_by_reciprocal(m, x, base))
    square, factors = first, []
    for bit in range(1, size.bit_length()):
        if size == 1 << bit:
            factors = [square, square]
            break
        square = _pair_product(m, square, square, bound=2.0 ** (2 * BEYOND[m.bits(x)] / n) if bit == 1 < n else None)
        if size >> bit & 1:
            factors.append(square)
    if size % 2:
        factors.append(first)
    product = reduce(lambda a, b: _pair_product(m, a, b), factors[1:-1], factors[0])
    return _last_product(m, product, factors[-1], guarded=n < 0)


def _plain_power(m: Ops[V], base: V, n: int) -> V:
    result: V | None = None
    while True:
        if n & 1:
            result = base if result is None else m.mul(result, base)
        n >>= 1
        if not n:
            assert result is not None
            return result
        base = m.mul(base, base)


def _lost_by_reciprocal(m: Ops[V], x: V, base: V) -> V:
    """1/x - base to twice the precision."""
    product, error = two_product(m, base, x)
    return m.mul(m.sub(m.sub(m.const(x, 1.0), product), error), base)


def _lost(m: Ops[V], a: tuple[V, V | None], b: tuple[V, V | None]) -> V | None:
    """What the rounded parts of two pairs leave out of their product."""
    if a[1] is None:
        return None if b[1] is None else m.mul(a[0], b[1])
    if b[1] is None:
        return m.mul(a[1], b[0])
    return m.mul(m.add(a[0], a[0]), a[1]) if a is b else m.fma(a[0], b[1], m.mul(a[1], b[0]))


def _pair_product(m: Ops[V], a: tuple[V, V | None], b: tuple[V, V | None], bound: float | None = None) -> tuple[V, V]:
    """The product of two pairs. Where it is beyond `bound` the power is beyond the range, and becomes infinite without
    a difference of infinities: h stays at the bound, and l, the rest, isn't negative."""
    product = m.mul(a[0], b[0])
    if bound is not None:
        limit = m.const(product, bound)
        product = m.select(m.lt(product, limit), product, limit)
    lost, error = _lost(m, a, b), m.fma(a[0], b[0], m.neg(product))
    return product, error if lost is None else m.add(error, lost)


def _last_product(m: Ops[V], a: tuple[V, V | None], b: tuple[V, V | None], guarded: bool) -> V:
    """The product, rounded once. Where it is `guarded` it is the plain one wherever what is lost isn't a number: where
    it is beyond the range, or 1/x is."""
    lost, product = _lost(m, a, b), m.mul(a[0], b[0])
    if lost is None:
        return product
    result = m.fma(a[0], b[0], lost)
    if not guarded:
        return result
    signed = m.copysign(result, product)  # of -0.0, where what is lost is 0.0
    return m.select(m.lt(m.abs(lost), m.const(lost, INFINITY)), signed, product)


RECIPES: Final[dict[str, Any]] = {"pow": pow}
