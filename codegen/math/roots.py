"""cbrt, without a division: the cube root is the number times the square of its inverse cube root.

The bits of a float are about its logarithm, so a third of them taken from a constant is about x**(-1/3), to 3.5 % (the
constant makes the largest error least; W. Kahan's start for cube roots, and L. Moroz et al., "Fast calculation of cube
and inverse cube roots using a magic constant and its implementation on microcontrollers", 2021). With e = 1 - x r**3
the root is r (1 - e)**(-1/3), of which the series to e**2 leaves an error of 14/81 e**3. What x lacks of the cube of
the result gives the last digits: errors stay below 0.81 ulp in f32, 0.7 in f64.
"""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.math.logarithmic import INFINITY, LEAST_NORMAL
from loopgrad.codegen.scalar.ops import Ops, V

START = {32: 0x54A1F800, 64: 0x553EE800 << 32}
THIRD = 0x55555556  # of 2**32
STEPS = {32: 2, 64: 3}
SUBNORMAL = {32: 24, 64: 54}  # exponents of 2, thirds of which are exponents too


def cbrt(m: Ops[V], x: V) -> V:
    bits = m.bits(x)
    size = m.abs(x)
    small = m.lt(size, m.const(x, LEAST_NORMAL[bits]))
    root = _normal(m, m.select(small, m.mul(size, m.const(x, 2.0 ** SUBNORMAL[bits])), size))
    root = m.select(small, m.mul(root, m.const(x, 2.0 ** -(SUBNORMAL[bits] // 3))), root)
    usual = m.both(m.lt(m.const(x, 0.0), size), m.lt(size, m.const(x, INFINITY)))
    return m.copysign(m.select(usual, root, size), x)


def _normal(m: Ops[V], x: V) -> V:
    """Of positive normal numbers."""
    one, third, ninth = (m.const(x, value) for value in (1.0, 1 / 3, 2 / 9))
    r = _start(m, x)
    for _ in range(STEPS[m.bits(x)]):
        e = m.fma(m.neg(m.mul(r, r)), m.mul(r, x), one)
        r = m.fma(m.mul(r, e), m.fma(e, ninth, third), r)
    square = m.mul(r, r)
    root = m.mul(x, square)
    lacking = m.fma(m.neg(m.mul(root, root)), root, x)
    return m.fma(m.mul(lacking, square), third, root)


def _start(m: Ops[V], x: V) -> V:
    start, bits = m.integer(x, START[m.bits(x)]), m.as_int(x)
    if m.bits(x) == 32:
        third, _ = m.wide_product(bits, m.integer(x, THIRD))
    else:  # of the upper half, whose product has no more than 64 bits
        third = m.shl(m.shr(m.imul(m.shr(bits, 32), m.integer(x, THIRD)), 32), 32)
    return m.as_float(m.isub(start, third))


RECIPES: Final[dict[str, Any]] = {"cbrt": cbrt}
