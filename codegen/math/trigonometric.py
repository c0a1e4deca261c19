"""sin, cos, tan and their inverses.

Arguments are reduced by pi/2 in three parts with fused multiply-adds (Cody and Waite), the quadrant
found by adding 1.5 * 2**(mantissa bits); beyond 2**17 (f32) or 2**27 (f64) quarter turns the target's
`reduce_large` takes over (Payne and Hanek). The kernels are minimax polynomials on [-pi/4, pi/4], those
for f64 from fdlibm. sin and cos of one value share everything up to the last selection.
"""

from __future__ import annotations

from math import pi
from typing import Any, Final

from loopgrad.codegen.scalar.ops import Ops, V, polynomial

TWO_OVER_PI = 2 / pi
MAGIC = {32: 1.5 * 2.0**23, 64: 1.5 * 2.0**52}
LARGEST = {32: 2.0e5, 64: 2.0e8}
HALF_PI = {
    32: (1.5707963705062866, -4.371139000186241e-08, -1.7151245100058819e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
SIN = {
    32: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    64: (1.58969099521155010221e-10, -2.50507602534068634195e-8, 2.75573137070700676789e-6,
         -1.98412698298579493134e-4, 8.33333333332248946124e-3, -1.66666666666666324348e-1),
}  # fmt: skip
COS = {
    32: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    64: (-1.13596475577881948265e-11, 2.08757232129817482790e-9, -2.75573143513906633035e-7,
         2.48015872894767294178e-5, -1.38888888888741095749e-3, 4.16666666666666019037e-2),
}  # fmt: skip


def reduced(m: Ops[V], x: V) -> tuple[V, V]:
    """(quadrant in the low two bits, rest)."""
    bits = m.bits(x)
    magic = m.const(x, MAGIC[bits])
    shifted = m.fma(x, m.const(x, TWO_OVER_PI), magic)
    turns = m.sub(shifted, magic)
    rest = x
    for part in HALF_PI[bits]:
        rest = m.fma(turns, m.const(x, -part), rest)
    large = m.invert(m.le(m.abs(x), m.const(x, LARGEST[bits])))
    quadrant, rest = m.reduce_large(x, large, m.as_int(shifted), rest)
    return quadrant, rest


def sine_cosine(m: Ops[V], x: V) -> tuple[V, V, V]:
    """(quadrant, sin(rest), cos(rest)); what isn't used is left to dead code elimination."""
    bits = m.bits(x)
    quadrant, rest = reduced(m, x)
    square = m.mul(rest, rest)
    cube = m.mul(square, rest)
    sine = m.fma(polynomial(m, square, SIN[bits]), cube, rest)
    sine = m.select(m.eq(x, m.const(x, 0.0)), x, sine)  # -0.0, whose sign reducing and adding lose
    if bits == 32:
        cosine = polynomial(m, square, (*COS[bits], -0.5, 1.0))
    else:
        half = m.fma(square, m.const(x, -0.5), m.const(x, 1.0))
        lost = m.fma(square, m.const(x, -0.5), m.sub(m.const(x, 1.0), half))
        tail = m.fma(m.mul(square, square), polynomial(m, square, COS[bits]), lost)
        cosine = m.add(half, tail)
    return quadrant, sine, cosine


def shared(m: Ops[V], x: V) -> tuple[V, V, V, V]:
    """(quadrant in the top two bits, sin, cos, whether the quadrant is even) of the rest."""

    def make() -> tuple[V, ...]:
        bits = m.bits(x)
        quadrant, sine, cosine = sine_cosine(m, x)
        raised = m.shl(quadrant, bits - 2)
        return raised, sine, cosine, m.is_zero(m.iand(raised, m.integer(raised, 1 << (bits - 2))))

    raised, sine, cosine, even = m.once(("sine_cosine", x), make)
    return raised, sine, cosine, even


def signed(m: Ops[V], x: V, raised: V) -> V:
    """x negated where the top bit is set."""
    sign = m.iand(raised, m.integer(raised, -(1 << (m.bits(x) - 1))))
    return m.as_float(m.ixor(m.as_int(x), sign))


def sin(m: Ops[V], x: V) -> V:
    raised, sine, cosine, even = shared(m, x)
    return signed(m, m.select(even, sine, cosine), raised)


def cos(m: Ops[V], x: V) -> V:
    raised, sine, cosine, even = shared(m, x)
    following = m.iadd(raised, m.integer(raised, 1 << (m.bits(x) - 2)))
    return signed(m, m.select(even, cosine, sine), following)


def tan(m: Ops[V], x: V) -> V:
    _quadrant, sine, cosine, even = shared(m, x)
    ratio = m.div(m.select(even, sine, cosine), m.select(even, cosine, sine))
    return m.select(even, ratio, m.neg(ratio))


RECIPES: Final[dict[str, Any]] = {"sin": sin, "cos": cos, "tan": tan}
"""Which share their range reduction and the two series (`shared`)."""
