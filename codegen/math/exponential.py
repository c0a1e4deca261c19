"""exp, exp2, expm1.

x = n ln 2 + r with |r| <= ln(2)/2 (ln 2 in two parts, fused); exp(r) = 1 + r + r**2 q(r) with q minimax.
n is found by adding MAGIC, which leaves it in the low bits of the sum; 2**n enters through `times_power`, which also
under- and overflows correctly.
"""

from __future__ import annotations

from math import log
from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V, polynomial

LOG2_E = 1 / log(2)
LN2 = {32: (0.693145751953125, 1.42860682030941723212e-6), 64: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
MAGIC = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
HIGHEST = {32: 89.0, 64: 710.0}
LOWEST = {32: -104.0, 64: -746.0}
Q = {
    32: (0.0013813178730433476, 0.008369418606300803, 0.04166845622445653, 0.16666514795288523, 0.4999999305261234),
    64: (2.0825613430536548e-09, 2.5113226021645914e-08, 2.755759245050499e-07, 2.755723148326537e-06,
         2.4801586903760158e-05, 0.0001984126989972544, 0.001388888888913423, 0.008333333333315705,
         0.04166666666666603, 0.16666666666666685, 0.5),
}  # fmt: skip


def nearest(m: Ops[V], x: V, factor: float) -> tuple[V, V]:
    """(MAGIC + n, n) for the integer n (as a float) nearest to x * factor, where |x * factor| < 2**22."""
    magic = m.const(x, MAGIC[m.bits(x)])
    shifted = m.fma(x, m.const(x, factor), magic)
    return shifted, m.sub(shifted, magic)


def split(m: Ops[V], x: V) -> tuple[V, V]:
    """(MAGIC + n, r) with x = n ln 2 + r."""
    shifted, n = nearest(m, x, LOG2_E)
    r = x
    for part in LN2[m.bits(x)]:
        r = m.fma(n, m.const(x, -part), r)
    return shifted, r


def exponential(m: Ops[V], r: V) -> V:
    """exp(r) for |r| <= ln(2)/2."""
    return polynomial(m, r, (*Q[m.bits(r)], 1.0, 1.0))


def exponential_minus_one(m: Ops[V], r: V) -> V:
    """exp(r) - 1 for |r| <= ln(2)/2."""
    return m.fma(m.mul(r, r), polynomial(m, r, Q[m.bits(r)]), r)


def exp_scaled(m: Ops[V], x: V, shift: float) -> V:
    """exp(x) * 2**shift, the product formed before it can overflow."""
    bits = m.bits(x)
    shifted, r = split(m, m.clamp(x, LOWEST[bits], HIGHEST[bits] + 1))
    return m.times_power(exponential(m, r), m.add(shifted, m.const(x, shift)) if shift else shifted)


def exp(m: Ops[V], x: V) -> V:
    return exp_scaled(m, x, 0.0)


def normal_exp(m: Ops[V], x: V) -> V:
    """exp(x) where that is a normal number; of f32 between -80 and 80, to 20 bits where a target has a way for that."""
    near = m.near_exp(x) if m.bits(x) == 32 else None
    if near is not None:
        return near
    shifted, r = split(m, x)
    power = m.shl(m.as_int(shifted), {32: 23, 64: 52}[m.bits(x)])
    return m.as_float(m.iadd(m.as_int(exponential(m, r)), power))


def exp2(m: Ops[V], x: V) -> V:
    limit = 1.1 * {32: 150.0, 64: 1075.0}[m.bits(x)]
    x = m.clamp(x, -limit, limit)
    shifted, n = nearest(m, x, 1.0)
    f = m.sub(x, n)
    high, low = {32: (0.693359375, -2.12194440054690583e-4), 64: (0.6931471805599453, 2.3190468138462996e-17)}[
        m.bits(x)
    ]
    r = m.fma(f, m.const(x, high), m.mul(f, m.const(x, low)))
    return m.times_power(exponential(m, r), shifted)


def expm1(m: Ops[V], x: V) -> V:
    """2**n (exp(r) - 1) + (2**n - 1), formed at half size so that n = 128 or 1024 doesn't overflow."""
    bits = m.bits(x)
    shifted, r = split(m, m.clamp(x, {32: -20.0, 64: -50.0}[bits], HIGHEST[bits]))
    half = power_of_two(m, m.sub(shifted, m.const(x, 1.0)))
    small = exponential_minus_one(m, r)
    result = m.mul(m.fma(half, small, m.sub(half, m.const(x, 0.5))), m.const(x, 2.0))
    tiny = m.eq(shifted, m.const(x, MAGIC[bits]))
    return m.select(m.eq(x, m.const(x, 0.0)), x, m.select(tiny, small, result))  # -0.0 stays what it is


def power_of_two(m: Ops[V], shifted: V) -> V:
    """2**n of MAGIC + n, where it is a normal number."""
    bias, place = {32: (127, 23), 64: (1023, 52)}[m.bits(shifted)]
    n = m.as_int(shifted)
    return m.as_float(m.shl(m.iadd(n, m.integer(n, bias)), place))


RECIPES: Final[dict[str, Any]] = {"exp": exp, "exp2": exp2, "expm1": expm1}
