"""log, log2, log10, log1p.

x = 2**k m with m in [sqrt(1/2), sqrt(2)); log(m) from f = m - 1: in f32 f - f**2/2 + f**3 P(f), in f64
through s = f/(2 + f) (fdlibm's arrangement, which keeps the error below 1 ulp). Zero, negative,
infinite, NaN and subnormal arguments leave the common path together, by one comparison.
"""

from __future__ import annotations

from math import frexp, ldexp
from math import log as real_log
from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V, polynomial

P32 = (0.06915392752998858, -0.11789791275732488, 0.11872956748408334, -0.12384350712688773, 0.14218661311690795,
       -0.1666925080506377, 0.20002226440665577, -0.2499998659500612, 0.3333331044225205)  # fmt: skip
R64 = (0.13267127675109766, 0.13248381526265693, 0.15387167732628004, 0.181817739061894, 0.2222222266876568,
       0.2857142856894017, 0.400000000000067, 0.6666666666666666)  # fmt: skip
LN2 = {32: (0.693145751953125, 1.42860682030941723212e-6), 64: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
MANTISSA = {32: 23, 64: 52}
LEAST_NORMAL = {32: 2.0**-126, 64: 2.0**-1022}
ROOT_HALF = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}
INFINITY = float("inf")
EXPONENT_OF_FOUR = {32: 129, 64: 1025}
INVERSE = (-0.8, 1.0, -1.0)  # 1 / (1 + f) is about 1 - f + f**2 - 0.8 f**3


def decomposed(m: Ops[V], x: V) -> tuple[V, V]:
    """(k, m) of a positive normal x, k as a float."""
    bits = m.bits(x)
    offset = m.integer(x, ROOT_HALF[bits])
    moved = m.isub(m.as_int(x), offset)
    k = _small_float(m, m.sar(moved, MANTISSA[bits]))
    low = m.iand(moved, m.integer(x, (1 << MANTISSA[bits]) - 1))
    return k, m.as_float(m.iadd(low, offset))


def _small_float(m: Ops[V], i: V) -> V:
    """Of an integer of less than 51 bits. Few processors convert those of 64 bits by a quick instruction."""
    if m.bits(i) == 32:
        return m.to_float(i)
    magic = 1.5 * 2.0**52
    return m.sub(m.as_float(m.iadd(i, m.as_int(m.number("f64", magic)))), m.number("f64", magic))


def log_near_one(m: Ops[V], f: V, rest: V) -> V:
    """log(1 + f) + rest for 1 + f in [sqrt(1/2), sqrt(2)), rest small."""
    if m.bits(f) == 32:
        square = m.mul(f, f)
        tail = m.mul(m.mul(polynomial(m, f, P32), f), square)
        return m.add(f, m.add(m.fma(square, m.const(f, -0.5), tail), rest))
    half_square = m.mul(m.mul(f, f), m.const(f, 0.5))
    s = m.near_quotient(f, m.add(f, m.const(f, 2.0)))
    z = m.mul(s, s)
    r = m.mul(polynomial(m, z, R64), z)
    corrected = m.fma(s, m.add(half_square, r), rest)
    return m.add(f, m.sub(corrected, half_square))


def ordinary_log(m: Ops[V], x: V, extra: float = 0.0) -> V:
    """log of positive normal numbers, plus extra * ln 2."""
    k, mantissa = decomposed(m, x)
    if extra:
        k = m.add(k, m.const(x, extra))
    high, low = LN2[m.bits(x)]
    one = m.sub(mantissa, m.const(x, 1.0))
    return m.fma(k, m.const(x, high), log_near_one(m, one, m.mul(k, m.const(x, low))))


def unusual(m: Ops[V], x: V) -> V:
    """Not a positive, normal, finite number."""
    return m.invert(m.usual(x))


def log(m: Ops[V], x: V) -> V:
    def special() -> V:
        power = float(MANTISSA[m.bits(x)] + 2)
        subnormal = ordinary_log(m, m.mul(x, m.const(x, 2.0**power)), -power)
        result = m.select(m.lt(x, m.const(x, INFINITY)), subnormal, m.add(x, x))
        result = m.select(m.eq(x, m.const(x, 0.0)), m.const(x, -INFINITY), result)
        return m.select(m.lt(x, m.const(x, 0.0)), m.const(x, float("nan")), result)

    return m.rarely(unusual(m, x), special, ordinary_log(m, x))


def scaled_log(m: Ops[V], x: V, base: float, parts: tuple[float, float]) -> V:
    """log to a base: k log_base(2) + log(m) / ln(base), both factors in two parts."""

    def finish(argument: V, extra: float) -> V:
        k, mantissa = decomposed(m, argument)
        k = m.add(k, m.const(x, extra)) if extra else k
        natural = log_near_one(m, m.sub(mantissa, m.const(x, 1.0)), m.const(x, 0.0))
        inverse = 1 / real_log(base)
        high = single(inverse) if m.bits(x) == 32 else inverse
        low = inverse - high if m.bits(x) == 32 else parts[1]
        value = m.fma(natural, m.const(x, high), m.mul(natural, m.const(x, low)))
        if base == 2:
            return m.add(k, value)
        two_high, two_low = {32: (0.301025390625, 4.605038981195214e-06), 64: (
            3.01029995663611771306e-01, 3.69423907715893078616e-13)}[m.bits(x)]  # fmt: skip
        return m.fma(k, m.const(x, two_high), m.fma(k, m.const(x, two_low), value))

    def special() -> V:
        power = float(MANTISSA[m.bits(x)] + 2)
        subnormal = finish(m.mul(x, m.const(x, 2.0**power)), -power)
        result = m.select(m.lt(x, m.const(x, INFINITY)), subnormal, m.add(x, x))
        result = m.select(m.eq(x, m.const(x, 0.0)), m.const(x, -INFINITY), result)
        return m.select(m.lt(x, m.const(x, 0.0)), m.const(x, float("nan")), result)

    return m.rarely(unusual(m, x), special, finish(x, 0.0))


def single(value: float) -> float:
    """Rounded to 12 bits, so that the rest of it fits an f32 to full precision."""
    mantissa, exponent = frexp(value)
    return ldexp(round(mantissa * 4096), exponent - 12)


def log2(m: Ops[V], x: V) -> V:
    return scaled_log(m, x, 2, (1.4426950408889634, 2.0355273740931033e-17))


def log10(m: Ops[V], x: V) -> V:
    return scaled_log(m, x, 10, (0.4342944819032518, 1.098319650216765e-17))


def roughly_divided(m: Ops[V], lost: V, u: V, mantissa: V, f: V) -> V:
    """About four times lost / u, to 1.1 % and, near f = 0, to f**3, which is enough where it is below a unit of u's
    last digit. 4 / 2**k is normal for every k."""
    bits = m.bits(u)
    four = m.integer(u, EXPONENT_OF_FOUR[bits] << MANTISSA[bits])
    scaled = m.mul(lost, m.as_float(m.iadd(m.isub(m.as_int(mantissa), m.as_int(u)), four)))
    return m.fma(scaled, m.mul(polynomial(m, f, INVERSE), f), scaled)


def log1p(m: Ops[V], x: V) -> V:
    """log(u) for u = 1 + x rounded, corrected by what the rounding lost."""
    one = m.const(x, 1.0)
    u = m.add(one, x)
    lost = m.select(m.le(one, x), m.sub(one, m.sub(u, x)), m.sub(x, m.sub(u, one)))
    k, mantissa = decomposed(m, u)
    f = m.sub(mantissa, one)
    high, low = LN2[m.bits(x)]
    rest = m.fma(roughly_divided(m, lost, u, mantissa, f), m.const(x, 0.25), m.mul(k, m.const(x, low)))
    value = m.fma(k, m.const(x, high), log_near_one(m, f, rest))
    tiny = m.lt(m.abs(x), m.const(x, {32: 2.0**-25, 64: 2.0**-54}[m.bits(x)]))
    value = m.select(tiny, x, value)

    def special() -> V:
        result = m.select(m.eq(x, m.const(x, -1.0)), m.const(x, -INFINITY), m.add(x, x))
        return m.select(m.lt(x, m.const(x, -1.0)), m.const(x, float("nan")), result)

    return m.rarely(unusual(m, u), special, value)


RECIPES: Final[dict[str, Any]] = {"log": log, "log2": log2, "log10": log10, "log1p": log1p}
REGISTERS: Final = {"log1p": {32: 48}}  # 1.08 times as long without on an H200
