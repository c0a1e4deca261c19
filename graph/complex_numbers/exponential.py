"""Exponentials of complex numbers, with the special values of C's Annex G.

exp(x + iy)     e**x cos(y) + i e**x sin(y), in two steps where e**x overflows and the product needn't
expm1(x + iy)   the real part by expm1(x) cos(y) - 2 sin(y/2)**2, which keeps its digits near 0; NumPy's formula
"""

from __future__ import annotations

from math import exp, log

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.complex_numbers.reals import (
    INFINITY,
    SHIFT,
    constant,
    is_finite,
    largest_exponent,
    with_sign,
)
from loopgrad.graph.nodes import Value


def exponential(z: Value) -> Value:
    return joined(exponential_parts(parts(z)))


def exponential_parts(z: Parts) -> Parts:
    x, y = z
    re, im = scaled_circle(x, y)
    # at infinity, with an angle that there isn't
    undefined = ops.and_(ops.is_inf(x), ops.invert(is_finite(y)))
    vanishing = ops.and_(undefined, ops.lt(x, 0))
    re = ops.select(undefined, ops.select(vanishing, 0, constant(INFINITY, x)), re)
    return re, ops.select(vanishing, with_sign(ops.zeros_like(y), y), im)


def scaled_circle(x: Value, y: Value, factor: float = 1.0) -> Parts:
    """factor exp(x) (cos(y) + i sin(y)), without its imaginary part on the axis becoming NaN."""
    over = ops.gt(x, largest_exponent(x))
    size = ops.exp(ops.select(over, ops.sub(x, SHIFT), x))
    step = ops.select(over, constant(exp(SHIFT) * factor, x), constant(factor, x))
    re = ops.mul(ops.mul(size, ops.cos(y)), step)
    sine = ops.sin(y)
    im = ops.mul(ops.mul(size, sine), step)
    return re, ops.select(ops.and_(ops.eq(y, 0), ops.invert(is_finite(size))), y, im)


def exponential_base_2(z: Value) -> Value:
    x, y = parts(z)
    return joined(exponential_parts((ops.mul(x, log(2)), ops.mul(y, log(2)))))


def exponential_minus_1(z: Value) -> Value:
    x, y = parts(z)
    half = ops.sin(ops.mul(y, 0.5))
    re = ops.sub(ops.mul(ops.expm1(x), ops.cos(y)), ops.mul(ops.mul(half, half), 2))
    return ops.join(re, ops.mul(ops.exp(x), ops.sin(y)))
