"""x ** y as exp2(y log2|x|), the logarithm and the product to twice the precision; a few factors as products.

log2(m) = s (C + z (C/3 + z T(z))) with s = f/(2 + f), z = s**2 and C = 2/ln 2: all but T is kept to twice the
precision. The reciprocal of 2 + f is no division: what the quotient lacks is computed exactly, and added. So the
product with y is good to about 2**-63 even where it reaches 1075, in f32 to 2**-26 where it reaches 150. Bases that
aren't positive normal numbers, and powers near the ends of the range, leave the common path together. Where y is a
small constant, only s C is such a pair. Where a driver rearranges what makes such pairs, f32 is computed in f64.
"""

from __future__ import annotations

from functools import reduce
from math import log as real_log
from typing import Any, Final

from loopgrad.codegen.math.exponential import MAGIC, exp, exponential
from loopgrad.codegen.math.logarithmic import LEAST_NORMAL, MANTISSA, decomposed, log
from loopgrad.codegen.scalar.ops import Ops, V, polynomial

INVERSE = (-0.057135023176670074, 0.12813332676887512, -0.25038620829582214, 0.49995696544647217)  # of 2 + f, to 2**-13
FIRST = {32: (2.885390043258667, 3.851926067000022e-08), 64: (2.8853900817779268, 4.0710547481862066e-17)}  # 2/ln 2
THIRD = {32: (0.9617967009544373, -7.028461812552678e-09), 64: (0.9617966939259756, 5.0577616648125907e-17)}
TAIL = {
    32: (0.3378604054450989, 0.4118480086326599, 0.5770801901817322),
    64: (0.1903829301386065, 0.19125543731773392, 0.22198398554760276, 0.26230770139874116, 0.3205989022703375,
         0.41219858309195867, 0.577078016355618),
}  # fmt: skip
SUBNORMAL = {32: 24, 64: 54}  # exponents of 2 that make subnormal numbers normal
FARTHEST = {32: 170.0, 64: 1200.0}  # 2 to this power is infinite or 0
ORDINARY = {32: 125.0, 64: 1021.0}  # 2 to this power is a normal number, and so are its neighbours
INFINITY = float("inf")
MOST_FACTORS = 8
SMALL_POWER = 8.0  # to which what a logarithm near 0 lacks doesn't matter, only what it lacks of 1
BEYOND = {32: 136, 64: 1040}  # exponents of 2 of what is infinite; what such a number loses in a product isn't


def pow(m: Ops[V], x: V, y: V) -> V:
    bits = m.bits(x)
    if bits == 32 and m.rearranges:
        wide_x, wide_y = m.widen(x), m.widen(y)
        size = exp(m, m.mul(wide_y, log(m, m.abs(wide_x))))
        return m.narrow(with_cases(m, wide_x, wide_y, size))
    a, known = m.abs(x), m.known(y)
    close = known is None or abs(known) > SMALL_POWER
    p, p_low = product_with(m, y, log2_pair(m, a) if close else rough_log2_pair(m, a))
    value, shifted = powered(m, p, p_low)
    scaled = m.as_float(m.iadd(m.as_int(value), m.shl(m.as_int(shifted), MANTISSA[bits])))
    near = m.lt(m.abs(p), m.const(x, ORDINARY[bits]))
    usual = m.both(m.usual(x), near)

    def unusual() -> V:
        size = m.rarely(m.invert(m.both(m.usual(a), near)), lambda: positive_power(m, a, y), scaled)
        return with_cases(m, x, y, size)

    return m.rarely(m.invert(usual), unusual, scaled)


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
    """a + b exactly, for |a| >= |b| or a = 0."""
    s = m.add(a, b)
    return s, m.sub(b, m.sub(s, a))


def inverse_of(m: Ops[V], d: V, f: V) -> V:
    """1 / d for d = 2 + f: nearly all digits, which double with each of Newton's steps."""
    near = m.near_inverse(d)
    if near is not None:
        return near
    found = polynomial(m, f, INVERSE)
    for _ in range({32: 1, 64: 2}[m.bits(d)]):
        found = m.fma(found, m.fma(m.neg(d), found, m.const(d, 1.0)), found)
    return found


def ratio(m: Ops[V], mantissa: V) -> tuple[V, V]:
    """s = f / (2 + f) to twice the precision, for f = mantissa - 1."""
    one = m.const(mantissa, 1.0)
    f = m.sub(mantissa, one)
    inverse = inverse_of(m, m.add(mantissa, one), f)
    s = m.mul(f, inverse)
    return s, m.mul(m.fma(m.neg(s), f, m.fma(s, m.const(f, -2.0), f)), inverse)


def rough_log2_pair(m: Ops[V], a: V) -> tuple[V, V]:
    """log2(a) for positive normal a, to about 2**-60 absolutely, 2**-30 in f32: all but s C is computed plainly."""
    bits = m.bits(a)
    k, mantissa = decomposed(m, a)
    s, s_low = ratio(m, mantissa)
    first, first_low, third, _ = [m.const(a, part) for part in (*FIRST[bits], *THIRD[bits])]
    z = m.mul(s, s)
    tail = m.fma(z, polynomial(m, z, TAIL[bits]), third)
    h, h_low = two_product(m, s, first)
    slope = m.fma(z, m.const(a, 3 * THIRD[bits][0]), first)  # of the cubic, by s
    h_low = m.fma(m.mul(s, z), tail, m.fma(s_low, slope, m.fma(s, first_low, h_low)))
    high, low = quick_two_sum(m, k, h)
    return high, m.add(low, h_low)


def log2_pair(m: Ops[V], a: V, shift: V | None = None) -> tuple[V, V]:
    """log2(a * 2**-shift) for positive normal a, to about 2**-66 relatively, 2**-35 in f32."""
    bits = m.bits(a)
    k, mantissa = decomposed(m, a)
    k = k if shift is None else m.sub(k, shift)
    s, s_low = ratio(m, mantissa)
    z, z_low = two_product(m, s, s)
    z_low = m.fma(m.add(s, s), s_low, z_low)
    first, first_low, third, third_low = [m.const(a, part) for part in (*FIRST[bits], *THIRD[bits])]
    t, t_low = quick_two_sum(m, third, m.mul(z, polynomial(m, z, TAIL[bits])))
    w, w_low = two_product(m, z, t)
    w_low = m.fma(z_low, t, m.fma(z, m.add(t_low, third_low), w_low))
    u, u_low = quick_two_sum(m, first, w)
    h, h_low = two_product(m, s, u)
    h_low = m.fma(s_low, u, m.fma(s, m.add(u_low, m.add(w_low, first_low)), h_low))
    high, low = quick_two_sum(m, k, h)
    return high, m.add(low, h_low)


def product_with(m: Ops[V], y: V, factor: tuple[V, V]) -> tuple[V, V]:
    p, p_low = two_product(m, y, factor[0])
    return p, m.fma(y, factor[1], p_low)


def powered(m: Ops[V], p: V, p_low: V) -> tuple[V, V]:
    """(v, MAGIC + n) with v * 2**n = 2**(p + p_low)."""
    shifted = m.add(p, m.const(p, MAGIC[m.bits(p)]))
    ln2 = m.const(p, real_log(2))
    r = m.sub(p, m.sub(shifted, m.const(p, MAGIC[m.bits(p)])))
    return exponential(m, m.fma(r, ln2, m.mul(p_low, ln2))), shifted


def positive_power(m: Ops[V], a: V, y: V) -> V:
    """a ** y for a >= 0."""
    bits = m.bits(a)
    zero, shift = m.const(a, 0.0), float(SUBNORMAL[bits])
    subnormal = m.lt(a, m.const(a, LEAST_NORMAL[bits]))
    normal = m.select(subnormal, m.mul(a, m.const(a, 2.0**shift)), a)
    p, p_low = product_with(m, y, log2_pair(m, normal, m.select(subnormal, m.const(a, shift), zero)))
    edge = m.either(m.eq(a, zero), m.invert(m.lt(a, m.const(a, INFINITY))))
    extreme = m.select(m.eq(a, zero), m.const(a, -INFINITY), a)
    unbounded = m.invert(m.lt(m.abs(p), m.const(a, FARTHEST[bits])))
    p = m.clamp(m.select(edge, m.mul(y, extreme), p), -FARTHEST[bits], FARTHEST[bits])
    return m.times_power(*powered(m, p, m.select(m.either(edge, unbounded), zero, p_low)))


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
REGISTERS: Final = {"pow": {32: 40, 64: 64}}  # 1.17 times as long without on an H200, in f64 1.42 times
