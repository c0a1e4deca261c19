"""float16 and bfloat16, which are computed in f32 and rounded once, to nearest, ties to even.

bfloat16 is rounded by integer arithmetic: the instructions that some machines have for it flush denormals.
"""

from __future__ import annotations

from loopgrad.codegen.scalar.ops import Ops, V


def bfloat_bits(m: Ops[V], x: V) -> V:
    """The i32 whose upper half is the bfloat16 nearest to an f32; NaN stays NaN. The lower half is anything."""
    bits = m.as_int(x)
    return m.select(m.is_nan(x), m.ior(bits, m.const(bits, 0x400000)), nearest_bits(m, bits, m.shr(bits, 16)))


def nearest_bits(m: Ops[V], bits: V, upper: V) -> V:
    """As `bfloat_bits`, of the bits of an f32 that isn't NaN, and their upper half."""
    odd = m.iand(upper, m.const(bits, 1))
    return m.iadd(bits, m.iadd(odd, m.const(bits, 0x7FFF)))


def odd_float(m: Ops[V], x: V) -> V:
    """An f64 as an f32 from which rounding to fewer bits gives what rounding the f64 gives: rounded toward zero, and
    where that isn't exact made odd (Boldo and Melquiond, When double rounding is odd, 2004)."""
    near = m.narrow(x)
    back = m.widen(near)
    one, zero = m.number("i32", 1), m.number("i32", 0)
    beyond = m.select(m.lt(m.abs(x), m.abs(back)), one, zero)
    inexact = m.select(m.test("FUnordNotEqual", back, x), one, zero)
    return m.as_float(m.ior(m.isub(m.as_int(near), beyond), inexact))
